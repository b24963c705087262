"""A task that trains in a second: copy a few letters."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seq2seq.data.batching import TokenBatchSampler, collate
from seq2seq.interfaces import Batch
from seq2seq.models import create_rnn, create_transformer
from seq2seq.run import Run
from seq2seq.search import GreedySearch
from seq2seq.training.checkpoint import read_checkpoint
from seq2seq.training.criterion import Criterion
from seq2seq.training.loop import TrainingResult, fit
from seq2seq.training.schedule import InverseSqrt, Schedule
from seq2seq.training.settings import TrainerSettings

VOCABULARY = 12
LETTERS = "abcdefgh"


class Letters:
    """Id 4 is "a", and so on."""

    def pieces(self, ids: list[int]) -> list[str]:
        return [LETTERS[i - 4] if i >= 4 else "?" for i in ids]

    def decode(self, ids: list[int]) -> str:
        return " ".join(self.pieces(ids))


class ToyTokenizers:
    source = target = Letters()
    joint = True

    def state(self) -> dict[str, bytes]:
        return {"tokenizer": b"letters\x00\xff"}


class ToyLoader:
    def __init__(self, sampler: TokenBatchSampler, pairs: list[tuple[list[int], list[int]]]) -> None:
        self.sampler, self.pairs = sampler, pairs

    def __iter__(self) -> Iterator[Batch]:
        for rows in self.sampler:
            yield collate([self.pairs[row] for row in rows], rows)

    def state_dict(self) -> dict[str, int]:
        return self.sampler.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.sampler.load_state_dict(state)


class ToyData:
    """`loop.Data` over random letters; the target is the source."""

    tokenizers = ToyTokenizers()
    fingerprint = "toy"

    def __init__(self, train: int = 150, valid: int = 11, max_tokens: int = 60, seed: int = 1) -> None:
        generator = np.random.default_rng(5)
        self.splits = {
            split: [
                (ids := generator.integers(4, VOCABULARY, generator.integers(1, 7)).tolist(), ids) for _ in range(size)
            ]
            for split, size in (("train", train), ("valid", valid))
        }
        self.max_tokens, self.seed = max_tokens, seed

    def train_loader(self, rank: int = 0, world_size: int = 1) -> ToyLoader:
        pairs = self.splits["train"]
        lengths = [np.array([len(pair[side]) for pair in pairs]) for side in (0, 1)]
        return ToyLoader(TokenBatchSampler(*lengths, self.max_tokens, self.seed, None, 1, rank, world_size), pairs)

    def evaluation_batches(self, split: str, max_tokens: int) -> Iterator[Batch]:
        pairs = self.splits[split]
        for start in range(0, len(pairs), 4):
            yield collate(pairs[start : start + 4], range(start, min(start + 4, len(pairs))))

    def pairs(self, split: str) -> tuple[list[str], list[str]]:
        texts = [Letters().decode(source) for source, _ in self.splits[split]]
        return texts, texts


def toy_model(kind: str = "rnn", dropout: float = 0.2) -> torch.nn.Module:
    torch.manual_seed(7)
    if kind == "transformer":
        return create_transformer(VOCABULARY, VOCABULARY, True, 16, 1, heads=2, feedforward_width=16, dropout=dropout)
    return create_rnn(VOCABULARY, VOCABULARY, True, width=16, embedding_width=16, dropout=dropout)


def toy_fit(
    run_dir: Path,
    *,
    model: torch.nn.Module | None = None,
    data: ToyData | None = None,
    schedule: Schedule | None = None,
    trainer: dict[str, Any] | None = None,
    optimizer: Any = None,
    loggers: tuple[Any, ...] = (),
    callbacks: tuple[Any, ...] = (),
    criterion: Criterion | None = None,
) -> TrainingResult:
    settings = {"max_steps": 30, "val_check_interval": 10, "log_every_n_steps": 4, "threads": 1, "patience": None}
    return fit(
        model or toy_model(),
        data or ToyData(),
        criterion=criterion or Criterion(0.1),
        optimizer=optimizer or partial(torch.optim.Adam, lr=3e-3, fused=True),
        schedule=schedule or InverseSqrt(5),
        search=GreedySearch(),
        settings=TrainerSettings(**{**settings, **(trainer or {})}),
        run=Run(run_dir),
        config={"model": {"width": 16}},
        loggers=loggers,
        callbacks=callbacks,
    )


CLOCKS = ("seconds", "aside_seconds", "cpu_seconds", "validated_seconds", "tokens_per_second")


def without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_clocks(item) for key, item in value.items() if key not in CLOCKS}
    if isinstance(value, (list, tuple)):
        return [without_clocks(item) for item in value]
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else value


def history(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "history.jsonl").read_text().splitlines()]


def everything(run_dir: Path) -> dict[str, Any]:
    """All that a run leaves, to the last bit, wall times aside."""
    found = {"history": without_clocks(history(run_dir))}
    for path in (Run(run_dir).last, Run(run_dir).best):
        checkpoint = read_checkpoint(path)
        found[path.name] = without_clocks({key: checkpoint[key] for key in ("state_dict", "optimizer", "seq2seq")})
    averages = (run_dir / "checkpoints" / "average").glob("*.safetensors")
    found["average"] = {path.name: path.read_bytes() for path in averages}
    return found


class UnionLoader(ToyLoader):
    """The batches of two processes joined into one."""

    def __init__(self, first: ToyLoader, second: ToyLoader) -> None:
        super().__init__(first.sampler, first.pairs)
        self.second = second.sampler

    def __iter__(self) -> Iterator[Batch]:
        for rows, others in zip(self.sampler, self.second, strict=True):
            both = [*rows, *others]
            yield collate([self.pairs[row] for row in both], both)


def union_of_two(data: ToyData) -> ToyData:
    """The same data, in one process as two would see it."""
    loaders = [data.train_loader(rank, 2) for rank in range(2)]
    data.train_loader = lambda rank, world_size: UnionLoader(*loaders)
    return data

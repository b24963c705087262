"""A task that trains in a second: copy a few letters. Runs as a program too, so that it can be killed."""

import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seq2seq.data.batching import TokenBatchSampler, collate
from seq2seq.interfaces import Batch
from seq2seq.models import create_rnn, create_transformer
from seq2seq.search import GreedySearch
from seq2seq.training.callbacks import CallbackSettings
from seq2seq.training.interruption import TrainingInterrupted
from seq2seq.training.loss import Criterion
from seq2seq.training.schedule import InverseSqrt, Schedule
from seq2seq.training.trainer import TrainerSettings, TrainingResult, fit

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
    """`trainer.Data` over random letters; the target is the source."""

    tokenizers = ToyTokenizers()
    trainer: Any = None

    def __init__(self, train: int = 150, valid: int = 11, max_tokens: int = 60, seed: int = 1) -> None:
        generator = np.random.default_rng(5)
        self.splits = {
            split: [
                (ids := generator.integers(4, VOCABULARY, generator.integers(1, 7)).tolist(), ids) for _ in range(size)
            ]
            for split, size in (("train", train), ("valid", valid))
        }
        self.max_tokens, self.seed = max_tokens, seed

    def train_dataloader(self) -> ToyLoader:
        pairs = self.splits["train"]
        lengths = [np.array([len(pair[side]) for pair in pairs]) for side in (0, 1)]
        place = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        return ToyLoader(TokenBatchSampler(*lengths, self.max_tokens, self.seed, None, 1, *place), pairs)

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
    callbacks: dict[str, Any] | None = None,
    optimizer: Any = None,
    observers: tuple[Any, ...] = (),
) -> TrainingResult:
    settings = {"max_steps": 30, "val_check_interval": 10, "log_every_n_steps": 4, "threads": 1}
    return fit(
        model or toy_model(),
        data or ToyData(),
        criterion=Criterion(0.1),
        optimizer=optimizer or partial(torch.optim.Adam, lr=3e-3, fused=True),
        schedule=schedule or InverseSqrt(5),
        search=GreedySearch(),
        trainer=TrainerSettings(**{**settings, **(trainer or {})}),
        callbacks=CallbackSettings(**{"patience": None, **(callbacks or {})}),
        run_dir=run_dir,
        config={"model": {"width": 16}},
        observers=observers,
    )


def killed_again_and_again(run_dir: Path, kills: int, seconds: float, options: dict[str, Any]) -> int:
    """Train in forked children, each killed at a random moment within `seconds` of training, then once to the end.
    Returns the number of children that were killed before they were done."""
    chance = random.Random(3)
    died = 0
    for number in range(kills + 1):
        child = os.fork()
        if child == 0:
            toy_fit(run_dir, **options)
            os._exit(0)
        if number < kills:
            time.sleep(chance.uniform(0.1, seconds))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
        else:
            died += 1
    return died


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    task, folder, text = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    if task == "kill":
        print(json.dumps(killed_again_and_again(folder, text.pop("kills"), text.pop("seconds"), text)))
    else:
        try:
            print(json.dumps(toy_fit(folder, **text).summary()))
        except TrainingInterrupted as interruption:
            print(interruption)
            sys.exit(interruption.exit_code)

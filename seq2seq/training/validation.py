"""Validation: teacher-forced likelihood and score of the whole set, each segment exactly once over all processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from torch import Tensor
from torch.distributed.fsdp import FullyShardedDataParallel

from seq2seq.evaluation.lengths import spread
from seq2seq.evaluation.metrics import PRIMARY, References
from seq2seq.interfaces import EOS_PIECE, Batch, Hypothesis, Model
from seq2seq.search import Search, decode_batch
from seq2seq.training.checkpoint import model_weights
from seq2seq.training.criterion import token_nll
from seq2seq.training.signals import StopSignals
from seq2seq.training.state import random_state_kept

Score = Callable[[Sequence[str], Sequence[str]], float]
"""Hypotheses and references of a whole set -> the score that chooses the best checkpoint."""


@dataclass(frozen=True)
class Sample:
    """One translated segment to look at. weights: the attention (target pieces, source pieces) averaged over heads,
    as nested lists, with the pieces that label it; None if the model does not attend."""

    row: int
    source: str
    reference: str
    hypothesis: str
    source_pieces: list[str] = field(default_factory=list)
    target_pieces: list[str] = field(default_factory=list)
    weights: list[list[float]] | None = None


@dataclass(frozen=True)
class Validation:
    """nll: nats per target token, EOS included. score: of the metric that selects. hypotheses: in the set's order."""

    nll: float
    score: float
    hypotheses: list[str]
    samples: list[Sample]

    @property
    def perplexity(self) -> float:
        return perplexity(self.nll)


def perplexity(nll: float) -> float:
    """exp(nll), infinite where that overflows."""
    return math.exp(nll) if nll < 700 else math.inf


@torch.inference_mode()
def likelihood(
    model: Model, batches: Sequence[Batch], device: torch.device | str = "cpu"
) -> dict[int, tuple[float, int]]:
    """Teacher-forced negative log-likelihood in nats and target tokens (EOS included) of every segment, by row.

    The model must be in eval mode.
    """
    found: dict[int, tuple[float, int]] = {}
    for batch in batches:
        batch = batch.to(device)
        decoded = model.decode(batch.target_in, model.encode(batch.source, batch.source_mask), batch.target_mask)
        nll = token_nll(decoded, model.output, batch.target_out, batch.target_mask).double().sum(1).tolist()
        tokens = batch.target_mask.sum(1).tolist()
        found |= dict(zip(batch.rows.tolist(), zip(nll, tokens, strict=True), strict=True))
    return found


class Validator:
    """Scores a model on one split; built once, called at every validation.

    batches cover the split, each row once; sources and references are its raw texts in order. decode and pieces turn
    target ids into text and either side's ids into labels. score chooses (None: `primary_score`). A call
    shares the batches out over the processes and returns the same result in all. Before each batch it asks `interrupt`,
    and returns None if a signal asks to stop.
    """

    def __init__(
        self,
        batches: Sequence[Batch],
        sources: Sequence[str],
        references: Sequence[str],
        search: Search,
        decode: Callable[[list[int]], str],
        source_pieces: Callable[[list[int]], list[str]],
        target_pieces: Callable[[list[int]], list[str]],
        samples: int = 4,
        score: Score | None = None,
    ) -> None:
        self.batches = batches
        self.sources = sources
        self.references = references
        self.search = search
        self.decode = decode
        self.source_pieces = source_pieces
        self.target_pieces = target_pieces
        self.score = score or primary_score
        self.sample_rows = set(spread(len(references), samples))

    @classmethod
    def on_data(cls, data: Any, search: Search, max_tokens: int, samples: int, score: Score | None) -> Validator:
        """A validator on the split "valid" of `TranslationData`."""
        source, target = data.tokenizers.source, data.tokenizers.target
        batches = list(data.evaluation_batches("valid", max_tokens))
        sources, references = data.pairs("valid")
        return cls(batches, sources, references, search, target.decode, source.pieces, target.pieces, samples, score)

    def __call__(
        self, model: Model, device: torch.device | str, interrupt: Callable[[], bool] = lambda: False
    ) -> Validation | None:
        rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        found: dict[int, tuple[float, int]] = {}
        hypotheses: dict[int, str] = {}
        samples: list[Sample] = []
        for batch in self.batches[rank::world]:
            if interrupt():
                return None
            batch = batch.to(device)
            found |= likelihood(model, [batch], device)
            rows = batch.rows.tolist()
            wanted = bool(self.sample_rows.intersection(rows)) and model.attends
            nbest = decode_batch(model, self.search, batch.source, batch.source_mask, numbers=rows, with_weights=wanted)
            for place, (row, (best, *_)) in enumerate(zip(rows, nbest, strict=True)):
                source = batch.source[place][batch.source_mask[place]].tolist()
                if len(source) == 1 or self.sources[row].isspace():
                    best = Hypothesis([], 0.0, 0.0, True)  # as the translator, which never shows a model blank text
                hypotheses[row] = self.decode(best.tokens)
                if row in self.sample_rows:
                    samples.append(self._sample(row, source, best, hypotheses[row]))
        if world > 1:
            gathered: list[Any] = [None] * world
            dist.all_gather_object(gathered, (found, hypotheses, samples))
            found = {row: value for part in gathered for row, value in part[0].items()}
            hypotheses = {row: value for part in gathered for row, value in part[1].items()}
            samples = [sample for part in gathered for sample in part[2]]
        texts = [hypotheses[row] for row in range(len(self.references))]
        tokens = sum(count for _, count in found.values())
        nll = math.fsum(value for value, _ in found.values()) / max(1, tokens)
        samples.sort(key=lambda sample: sample.row)
        return Validation(nll, self.score(texts, self.references), texts, samples)

    def _sample(self, row: int, source: list[int], best: Hypothesis, text: str) -> Sample:
        weights = None
        target_pieces = [*self.target_pieces(best.tokens), EOS_PIECE]
        if best.weights is not None:
            mean = best.weights.float().mean(1)
            weights = mean.tolist()
            target_pieces = target_pieces[: mean.shape[0]]
        source_pieces = [*self.source_pieces(source[:-1]), EOS_PIECE]
        return Sample(row, self.sources[row], self.references[row], text, source_pieces, target_pieces, weights)


def validate(fabric: Fabric, module: Any, validator: Validator, signals: StopSignals) -> Validation | None:
    """Validate without leaving a trace on training; None if a signal asked to stop meanwhile (in a single process).

    module: a `TrainingModule` as Fabric has set it up.
    """
    alone = fabric.world_size == 1
    module.eval()
    try:
        with random_state_kept(), fabric.autocast(), FullyShardedDataParallel.summon_full_params(module):
            return validator(module.model, fabric.device, lambda: alone and signals.received is not None)
    finally:
        module.train()


def whole_weights(module: Any) -> dict[str, Tensor]:
    """Copy the model's weights out of a `TrainingModule`; whole in every process even where they are sharded."""
    with FullyShardedDataParallel.summon_full_params(module):
        return model_weights({name: value.detach().cpu().clone() for name, value in module.state_dict().items()})


def primary_score(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", lowercase: bool = False
) -> float:
    """Score a set by the primary metric. tokenize, lowercase: sacreBLEU's."""
    return References(references, tokenize, lowercase).statistics(PRIMARY, hypotheses).score()

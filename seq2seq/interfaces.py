"""Seams of the package: the types that data, attention, models, search and training hand to each other.

Shape legend, used in every docstring: B batch (sentences), S source length, T target length, V vocabulary,
D model width, H heads, K beam size, N = B x K decoder rows, Q queries. Batch comes first everywhere. Masks are bool,
and True means "real token, may be attended". Token ids are int64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Ids of the special tokens, the same in every tokenizer."""
EOS_PIECE = "</s>"
WORD_START = "\u2581"
"""First character of a piece that begins a word (SentencePiece)."""

Self = TypeVar("Self")


@dataclass(frozen=True)
class Batch:
    """Sentence pairs, padded on the right with PAD.

    source (B, S) ends each row with EOS. target_in (B, T) is BOS y1 .. yn and target_out (B, T) is y1 .. yn EOS.
    rows (B,) are the pairs' positions in their split, by which outputs are put back in order.
    """

    source: Tensor
    source_mask: Tensor
    target_in: Tensor
    target_out: Tensor
    target_mask: Tensor
    rows: Tensor

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        return Batch(*(getattr(self, field.name).to(device, non_blocking=non_blocking) for field in fields(self)))

    def pin_memory(self) -> Batch:
        return Batch(*(getattr(self, field.name).pin_memory() for field in fields(self)))

    def __len__(self) -> int:
        return self.source.shape[0]


@dataclass(frozen=True)
class SampledAttention:
    """Record of sampled positions that the REINFORCE gradient of hard attention needs, one entry per query.

    log_probability (B, Q): log-probability of the sampled source position. entropy (B, Q): entropy of the weights.
    """

    log_probability: Tensor
    entropy: Tensor


@dataclass(frozen=True)
class AttentionOutput:
    """Result of attention: context (B, Q, Dv), weights (B, Q, S).

    The other entries are None unless an alignment chooses one position. sampling, expected: of sampled choices in
    training; expected (B, Q, Dv) is the mean of the context over the choices, which is soft attention's. log_weights
    (B, Q, S): in training, where the word's distribution is a mixture over positions. best (B, Q, Dv): where the word
    is predicted from another context than the one that enters the recurrence.
    """

    context: Tensor
    weights: Tensor
    sampling: SampledAttention | None = None
    expected: Tensor | None = None
    log_weights: Tensor | None = None
    best: Tensor | None = None

    @property
    def predicting(self) -> Tensor:
        """Context (B, Q, Dv) that the word is predicted from."""
        return self.context if self.best is None else self.best


@dataclass(frozen=True)
class PositionMixture:
    """Distribution of each word as a mixture of those that single source positions predict.

    features (B, T, S, D) for the output layer, log_weights (B, T, S), mask (B, T, S) or (B, 1, S): the positions there
    are.
    """

    features: Tensor
    log_weights: Tensor
    mask: Tensor


@dataclass(frozen=True)
class DecoderOutput:
    """Result of a decoder: features (B, T, D) for the output layer.

    sampling, expected: of sampled hard attention in training, else None. sampling's entries are (B, T). expected
    (B, T, D): the features of each step if it alone had used the expected context, all earlier ones the sampled.
    mixture: of `hard_marginal` attention in training, else None; the loss then takes it instead of features.
    """

    features: Tensor
    sampling: SampledAttention | None = None
    expected: Tensor | None = None
    mixture: PositionMixture | None = None


class State(Protocol):
    """State of a decoder for N = B x K rows, sentence-major (row b * K + k).

    It also holds what the decoder needs of the memory, once per sentence: the K rows of a sentence share it.
    """

    def select(self: Self, rows: Tensor) -> Self:
        """Return the state of new rows. rows (B', K') holds old row numbers.

        Each line of `rows` stays within one sentence, and lines come in ascending order of sentence, each sentence at
        most once: B' == B means that no sentence has left, so the memory need not be touched. K' may differ from K.
        The old state must not be used afterwards (buffers may be reused).
        """
        ...


@runtime_checkable
class Model(Protocol):
    """Translation model as training and search see it. Implementations are plain `nn.Module`s."""

    output: OutputLayer
    attends: bool
    """False for a model without attention weights (the fixed-context model)."""
    longest_source: int | None
    longest_output: int | None
    """The most tokens, without EOS, for which positions are learned; None: any number."""

    def encode(self, source: Tensor, mask: Tensor) -> Any:
        """source (B, S), mask (B, S) -> memory of B sentences, of a type that only the model knows."""
        ...

    def decode(self, target_in: Tensor, memory: Any, target_mask: Tensor | None = None) -> DecoderOutput:
        """Decode a whole target, teacher-forced: target_in (B, T) -> features (B, T, D).

        No position sees later ones. Features at padding are unspecified but finite.
        """
        ...

    def start(self, memory: Any) -> Any:
        """Return the state before the first step, K = 1 (B rows)."""
        ...

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor | None]:
        """Decode one step: tokens (N,), the previous token of each row (BOS first) -> features (N, D), the next state,
        and attention weights (N, H, S) of this step (H = 1 for single-head models; None if the model does not attend).
        """
        ...

    def logits(self, features: Tensor, out: Tensor | None = None) -> Tensor:
        """features (..., D) -> unnormalized scores (..., V) by `output`.

        out: where no gradient is needed, memory (N, V) that the scores of features (N, D) may be written to.
        """
        ...


class OutputLayer(Protocol):
    """Projection onto the vocabulary. Training fuses it with the loss, so its parameters are part of the interface."""

    weight: nn.Parameter  # (V, D)
    bias: nn.Parameter  # (V,)

    def __call__(self, features: Tensor) -> Tensor: ...


Step = Callable[[Tensor, Any], tuple[Tensor, Any, "Tensor | None"]]
"""Step function of a search: tokens (N,), state -> log-probabilities (N, V) float32, next state, weights (N, H, S) or
None."""


@dataclass
class Hypothesis:
    """One translation of one sentence.

    tokens: ids without BOS and EOS. log_probability: sum over tokens, EOS included when finished. score: the value that
    ranks hypotheses (log_probability after normalization and penalties). weights: (len(tokens) [+ 1 for EOS], H, S')
    float32 attention over the sentence's own S' source tokens, or None. finished: False when cut at the length limit.
    """

    tokens: list[int]
    log_probability: float
    score: float
    finished: bool
    weights: Tensor | None = field(default=None, compare=False)

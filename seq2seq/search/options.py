"""Options that all searches share, and their effect on one step's log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.interfaces import BOS, EOS, PAD, UNK, Hypothesis, Step
from seq2seq.search.penalties import Ranking

NEVER = -math.inf


class Search(Protocol):
    """Decoding method. It sees a step function and lengths, never a model; each sentence's result depends only on that
    sentence.
    """

    @property
    def ranking(self) -> Ranking: ...

    def __call__(
        self,
        step: Step,
        state: Any,
        source_lengths: Tensor,
        *,
        prefix: Sequence[Sequence[int]] | None = None,
        numbers: Sequence[int] | None = None,
        longest: int | None = None,
        with_weights: bool = False,
    ) -> list[list[Hypothesis]]:
        """Decode B sentences and return their n-best lists, best first.

        step: see `interfaces.Step`; its log-probabilities may be overwritten. state: the decoder's first (B rows).
        source_lengths (B,): source tokens, EOS counted. prefix: for each sentence the tokens, without BOS, that its
        output must begin with. numbers: each sentence's number, which seeds its random draws (None: 0 .. B - 1).
        longest: the most tokens of an output, whatever the options say. with_weights: fill Hypothesis.weights.
        """
        ...


LARGEST = 10**9
"""Greatest value of a setting, so that nothing computed from a few of them overflows."""
WIDEST = 1000
"""Most hypotheses of a sentence, beams or samples; the memory of a search is proportional to them."""


@dataclass(frozen=True)
class Options:
    """Options of greedy search, beam search and sampling.

    - max_length_a, max_length_b: an output has at most max(1, floor(a * source + b)) tokens before EOS, `source`
      counting EOS (or as many as its forced prefix). A hypothesis that has not ended there is cut: finished = False.
    - min_length_a, min_length_b: EOS is not allowed before floor(a * source + b) tokens (the maximum takes precedence).
    - no_repeat_ngram: n > 0 forbids any n-gram from occurring twice in one output.
    - suppress_unknown: UNK is never generated. (PAD and BOS never are.)
    - shortlist: n > 0 lets whoever decodes with a `Shortlist` restrict the vocabulary to n translations of each token.
    - length_penalty, normalization (power or gnmt), coverage_penalty: terms of a hypothesis' score, see `Ranking`.

    A forced prefix overrides all of these.
    """

    max_length_a: float = 2.0
    max_length_b: float = 10
    min_length_a: float = 0.0
    min_length_b: float = 0
    no_repeat_ngram: int = 0
    suppress_unknown: bool = False
    shortlist: int = 0
    length_penalty: float = 1.0
    normalization: str = "power"
    coverage_penalty: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_length_a", "max_length_b", "min_length_a", "min_length_b", "length_penalty"):
            at_least(name, getattr(self, name), 0)
        at_least("coverage_penalty", self.coverage_penalty, 0)
        whole("no_repeat_ngram", self.no_repeat_ngram, 0)
        whole("shortlist", self.shortlist, 0)
        if self.max_length_a == 0 and self.max_length_b < 1:
            raise UserError("search.max_length_a and max_length_b allow no token at all; raise one of them")
        if self.normalization not in ("power", "gnmt"):
            raise UserError(f"search.normalization={self.normalization!r} is unknown; choose power or gnmt")

    @property
    def ranking(self) -> Ranking:
        return Ranking(self.length_penalty, self.normalization, self.coverage_penalty)


def at_least(name: str, value: float, least: float) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not (least <= value <= LARGEST):
        raise UserError(f"search.{name}={value!r} must be a number of at least {least} (and at most {LARGEST})")


def whole(name: str, value: int, least: int, most: float = math.inf) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not (least <= value <= most):
        limit = "" if most == math.inf else f" and at most {most}"
        raise UserError(f"search.{name}={value!r} must be a whole number of at least {least}{limit}")


class Constraints:
    """Shared options applied to the A sentences still in a search; arguments as in `Search`."""

    def __init__(
        self,
        options: Options,
        source_lengths: Tensor,
        prefix: Sequence[Sequence[int]] | None = None,
        longest: int | None = None,
    ) -> None:
        lengths, device = source_lengths.tolist(), source_lengths.device
        forced = [list(tokens) for tokens in prefix] if prefix is not None else [[] for _ in lengths]
        if len(forced) != len(lengths):
            raise UserError(f"{len(forced)} prefixes were given for {len(lengths)} sentences; give one each")
        for number, tokens in enumerate(forced):
            if {PAD, BOS, EOS} & set(tokens):
                raise UserError(
                    f"the prefix of sentence {number} holds a special token; PAD, BOS and EOS are not allowed"
                )
        most = math.inf if longest is None else longest
        limits = [
            max(1, math.floor(min(most, options.max_length_a * length + options.max_length_b)), len(tokens))
            for length, tokens in zip(lengths, forced, strict=True)
        ]
        minima = [
            min(limit, math.floor(options.min_length_a * length + options.min_length_b))
            for length, limit in zip(lengths, limits, strict=True)
        ]
        width = max(map(len, forced), default=0)
        self.options = options
        self.source_lengths = source_lengths  # (B,), of all the sentences that the search began with
        self.limit = torch.tensor(limits, device=device)  # (A,)
        self.minimum = torch.tensor(minima, device=device)  # (A,)
        self.prefix = torch.tensor(
            [tokens + [-1] * (width - len(tokens)) for tokens in forced], dtype=torch.long, device=device
        ).reshape(len(forced), width)
        self.longest_minimum = max(minima, default=0)

    def keep(self, sentences: Tensor) -> None:
        self.limit = self.limit[sentences]
        self.minimum = self.minimum[sentences]
        self.prefix = self.prefix[sentences]

    def at_limit(self, length: int) -> Tensor:
        """Mark (A,) the sentences whose outputs of `length` tokens must end now or be cut."""
        return self.limit <= length

    def apply(self, log_probs: Tensor, length: int, history: Tensor | None) -> None:
        """Forbid tokens in log_probs (A, K, V), in place, after outputs of `length` tokens, history (A, K, length)."""
        forced, values = None, None
        if length < self.prefix.shape[1]:
            forced = (self.prefix[:, length] >= 0).nonzero().squeeze(1)
            tokens = self.prefix[forced, length]
            values = log_probs[forced, :, tokens]
        log_probs[..., PAD] = NEVER
        log_probs[..., BOS] = NEVER
        if self.options.suppress_unknown:
            log_probs[..., UNK] = NEVER
        if length < self.longest_minimum:
            log_probs[..., EOS].masked_fill_((length < self.minimum)[:, None], NEVER)
        if history is not None and length >= self.options.no_repeat_ngram:
            size = self.options.no_repeat_ngram
            grams = history.unfold(-1, size, 1)  # (A, K, places, size)
            tail = history[..., length - size + 1 :]  # (A, K, size - 1)
            repeats = (grams[..., : size - 1] == tail.unsqueeze(-2)).all(-1)
            log_probs.scatter_(-1, torch.where(repeats, grams[..., -1], PAD), NEVER)
        if forced is not None and values is not None:
            log_probs[forced] = NEVER
            log_probs[forced, :, tokens] = values

"""Ranking of finished hypotheses: log-probability normalized by length, plus a coverage penalty."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seq2seq.errors import UserError

LEAST_COVERAGE = 1e-6
"""Least coverage of a source token, so that a token without attention costs a finite penalty."""
NO_COVERAGE = "search.coverage_penalty needs attention weights, and this model has none; set it to 0"


@dataclass(frozen=True)
class Ranking:
    """Score of hypotheses, score(Y) = log P(Y | X) / norm(|Y|) + coverage_penalty * cp(X, Y), with

    - power:  norm(n) = n ** length_penalty  (0: plain log-probability, 1: mean log-probability of a token);
    - gnmt:   norm(n) = ((5 + n) / 6) ** length_penalty  (Wu et al. 2016, equation 14);
    - cp(X, Y) = sum over source tokens i of log(min(sum over target steps j of p_ij, 1)), p_ij being the attention
      weights averaged over heads (Wu et al. 2016, equation 14), each inner sum no less than 1e-6.

    |Y| counts EOS when the hypothesis is finished, and so does the sum over j. X counts the source's EOS.
    """

    length_penalty: float
    normalization: str
    coverage_penalty: float

    def norm(self, length: Tensor) -> Tensor:
        """Return the float64 divisor of hypotheses of `length` scored tokens (any shape); never falling in length."""
        length = length.double().clamp(min=1)
        base = length if self.normalization == "power" else (5 + length) / 6
        return base**self.length_penalty

    def score(self, log_probability: Tensor, length: Tensor | int, penalty: Tensor | float) -> Tensor:
        """log_probability (A, K) float64, length broadcastable to it, penalty (A, K) from `Coverage` -> (A, K)."""
        length = torch.as_tensor(length, device=log_probability.device)
        return log_probability / self.norm(length) + self.coverage_penalty * penalty

    def bound(self, log_probability: Tensor, longest: Tensor) -> Tensor:
        """Return the best score that a live hypothesis can still reach if it may grow to `longest` scored tokens.

        Its log-probability is never positive and can only fall, its divisor is greatest at the greatest length, and
        its coverage penalty is at most 0, so the bound is log_probability / norm(longest).
        """
        return log_probability / self.norm(longest)


class Coverage:
    """Attention that each source token of the A sentences in a search has received, (A, K, S).

    It does nothing when the coverage penalty is 0.
    """

    def __init__(self, ranking: Ranking, source_lengths: Tensor) -> None:
        self.on = ranking.coverage_penalty > 0
        self.source_lengths = source_lengths
        self.before: Tensor | None = None
        self.after: Tensor | None = None

    def add(self, weights: Tensor | None) -> None:
        """Add the weights (A, K, H, S) of one step."""
        if not self.on:
            return
        if weights is None:
            raise UserError(NO_COVERAGE)
        attention = weights.double().mean(2)
        self.before = torch.zeros_like(attention) if self.after is None else self.after
        self.after = self.before + attention

    def penalty(self, parents: Tensor, ended: Tensor | bool) -> Tensor | float:
        """Return the penalty (A, K') of continuations of `parents` (A, K'), or of the parents where not `ended`."""
        if self.before is None or self.after is None:
            return 0.0
        ended = torch.as_tensor(ended, device=parents.device).expand(parents.shape)
        covered = torch.where(ended[..., None], select_beams(self.after, parents), select_beams(self.before, parents))
        real = torch.arange(covered.shape[-1], device=parents.device) < self.source_lengths[:, None]
        return (covered.clamp(LEAST_COVERAGE, 1).log() * real[:, None]).sum(-1)

    def advance(self, parents: Tensor) -> None:
        if self.after is not None:
            self.after = select_beams(self.after, parents)

    def keep(self, sentences: Tensor) -> None:
        if self.after is not None:
            self.after = self.after[sentences]
            self.source_lengths = self.source_lengths[sentences]


def select_beams(values: Tensor, parents: Tensor) -> Tensor:
    """Pick beams: values (A, K, X), parents (A, K') -> (A, K', X)."""
    return values.gather(1, parents[..., None].expand(-1, -1, values.shape[-1]))

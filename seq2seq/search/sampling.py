"""Sampling from the model's distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.interfaces import Hypothesis, Step
from seq2seq.search.candidates import best_tokens
from seq2seq.search.greedy import run_chains
from seq2seq.search.options import NEVER, WIDEST, Constraints, Options, at_least, whole

MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Sampling(Options):
    """Sampling: n_best independent samples of each sentence, best score first (finished ones before cut ones).

    Each token is drawn from p_i ** (1 / temperature), renormalized over the tokens that are kept: the top_k most
    probable (0: all) and of these the smallest set, most probable first, whose probability after temperature and top_k
    reaches top_p (nucleus sampling, Holtzman et al. 2020). The reported log-probability is the model's own, without
    temperature and truncation.

    The token drawn is the one whose log-probability / temperature plus Gumbel noise is greatest (Gumbel 1954; Maddison
    et al. 2014), and the noise depends only on (seed, sentence number, sample, step, token), not on the batch, the
    device or n_best. The last digits of probabilities do depend on these, but change a draw only where two tokens are
    practically equal (or one is at the edge of what top_k and top_p keep).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    n_best: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("temperature", self.temperature, 0)
        at_least("top_p", self.top_p, 0)
        whole("top_k", self.top_k, 0)
        whole("n_best", self.n_best, 1, WIDEST)
        whole("seed", self.seed, 0)
        if self.temperature == 0:
            raise UserError(
                "search.temperature=0 does not define a distribution; use search=greedy, or a temperature above 0"
            )
        if not 0 < self.top_p <= 1:
            raise UserError(f"search.top_p={self.top_p} must be above 0 and at most 1")

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
        numbers = range(len(source_lengths)) if numbers is None else numbers
        if len(numbers) != len(source_lengths):
            raise UserError(f"{len(numbers)} sentence numbers were given for {len(source_lengths)} sentences")
        keys = [[key(self.seed, number, sample) for sample in range(self.n_best)] for number in numbers]

        def choose(log_probs: Tensor, length: int, active: Tensor) -> Tensor:
            uniform = uniforms([keys[sentence] for sentence in active.tolist()], length, log_probs.shape[-1])
            return self.draw(log_probs, uniform.to(log_probs.device))

        constraints = Constraints(self, source_lengths, prefix, longest)
        return run_chains(step, state, constraints, self.n_best, choose, with_weights)

    def draw(self, log_probs: Tensor, uniform: Tensor) -> Tensor:
        """Draw tokens (A, K) from log_probs (A, K, V), given uniform (A, K, V) in [0, 1)."""
        log_probs = log_probs.double()
        if self.temperature < COLD:
            log_probs = log_probs - log_probs.amax(-1, keepdim=True).clamp(min=-1e300)
        scaled = log_probs / self.temperature
        if not self.top_k and self.top_p == 1:
            return best_tokens(scaled.add_(gumbel(uniform)))
        size = min(self.top_k or scaled.shape[-1], scaled.shape[-1])
        scaled, tokens = scaled.sort(dim=-1, descending=True, stable=True)
        scaled, tokens = scaled[..., :size], tokens[..., :size]
        if self.top_p < 1:
            reached = (scaled - scaled.amax(-1, keepdim=True).clamp(min=-1e300)).exp().cumsum(-1)
            enough = (reached < self.top_p * reached[..., -1:]).sum(-1, keepdim=True)
            scaled = scaled.masked_fill(torch.arange(size, device=scaled.device) > enough, NEVER)
        choice = (scaled + gumbel(uniform.gather(-1, tokens))).argmax(-1, keepdim=True)
        return tokens.gather(-1, choice).squeeze(-1)


COLD = 1e-6
"""Below this temperature division might overflow, so log-probabilities are taken relative to the greatest, which then
stays 0."""


def gumbel(uniform: Tensor) -> Tensor:
    """Turn numbers from [0, 1) into Gumbel noise, in place."""
    return uniform.log_().neg_().log_().neg_()


def uniforms(keys: Sequence[Sequence[int]], step: int, size: int) -> Tensor:
    """keys (A, K) -> (A, K, size) float64 in [0, 1) from a counter-based generator (Philox, Salmon et al. 2011).

    The numbers depend only on key and step, not on earlier draws.
    """
    found = np.empty((len(keys), len(keys[0]), size))
    for numbers, row in zip(found, keys, strict=True):
        for own, one in zip(numbers, row, strict=True):
            np.random.Generator(np.random.Philox(key=one, counter=[0, step, 0, 0])).random(out=own)
    return torch.from_numpy(found)


def key(seed: int, number: int, sample: int) -> int:
    """Hash (seed, sentence number, sample) to a key by a chain of splitmix64."""
    state = 0
    for value in (seed, number, sample):
        state = (state ^ value) + 0x9E3779B97F4A7C15 & MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & MASK
        state ^= state >> 31
    return state

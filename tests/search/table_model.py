"""Table that serves as a translation model, and the enumeration of its outputs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from seq2seq.interfaces import BOS, EOS, PAD, UNK


@dataclass(frozen=True)
class TableState:
    sentence: Tensor  # (N,)
    time: int

    def select(self, rows: Tensor) -> TableState:
        picked = self.sentence[rows]
        assert (picked == picked[:, :1]).all() and (picked[:, 0].diff() > 0).all(), "State.select's contract"
        return TableState(picked.flatten(), self.time)


class Table:
    """log P(next | sentence, time, previous token), and attention weights by the same key."""

    def __init__(self, sentences: int, times: int, vocabulary: int, seed: int, heads: int = 2, source: int = 4) -> None:
        generator = torch.Generator().manual_seed(seed)
        logits = 2 * torch.randn(sentences, times, vocabulary, vocabulary, generator=generator)
        self.log_probs = logits.log_softmax(-1)
        self.lengths = torch.randint(1, source + 1, (sentences,), generator=generator)
        weights = torch.rand(sentences, times, vocabulary, heads, source, generator=generator) + 0.01
        weights[torch.rand(weights.shape, generator=generator) < 0.3] = 0.0
        real = torch.arange(source) < self.lengths[:, None]
        weights = weights * real[:, None, None, None]
        self.weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)
        self.rows = 0

    def start(self, sentences: list[int] | None = None) -> TableState:
        return TableState(torch.tensor(sentences) if sentences is not None else torch.arange(len(self.lengths)), 0)

    def __call__(self, tokens: Tensor, state: TableState) -> tuple[Tensor, TableState, Tensor]:
        self.rows += len(tokens)
        key = state.sentence, torch.full_like(tokens, state.time), tokens
        return self.log_probs[key].clone(), TableState(state.sentence, state.time + 1), self.weights[key]

    def run(self, search, sentences: list[int] | None = None, **options):
        lengths = self.lengths if sentences is None else self.lengths[sentences]
        return search(self, self.start(sentences), lengths, **options)

    def log_probability(self, sentence: int, tokens) -> float:
        """Return the log-probability of `tokens`, which may end in EOS, in float64."""
        path = [BOS, *tokens]
        return sum(
            float(self.log_probs[sentence, time, before, after])
            for time, (before, after) in enumerate(itertools.pairwise(path))
        )

    def attention(self, sentence: int, tokens) -> Tensor:
        """Return the attention (len(tokens), H, S') of `tokens`, which may end in EOS."""
        before = [BOS, *tokens][:-1]
        rows = [self.weights[sentence, time, token] for time, token in enumerate(before)]
        return torch.stack(rows)[..., : int(self.lengths[sentence])]

    def outputs(self, sentence: int, longest: int, shortest: int = 0):
        """Enumerate the outputs of shortest .. longest tokens, EOS added."""
        vocabulary = [token for token in range(self.log_probs.shape[-1]) if token not in (PAD, BOS, EOS)]
        for length in range(shortest, longest + 1):
            for tokens in itertools.product(vocabulary, repeat=length):
                yield (*tokens, EOS)


def norm(length: int, alpha: float, normalization: str) -> float:
    return length**alpha if normalization == "power" else ((5 + length) / 6) ** alpha


def rank(table: Table, sentence: int, tokens, alpha=1.0, normalization="power", coverage=0.0) -> float:
    """Compute the documented score with plain floats."""
    score = table.log_probability(sentence, tokens) / norm(max(1, len(tokens)), alpha, normalization)
    if coverage:
        sums = table.attention(sentence, tokens).double().mean(1).sum(0).tolist()
        score += coverage * sum(math.log(max(min(one, 1.0), 1e-6)) for one in sums)
    return score


__all__ = ["BOS", "EOS", "PAD", "UNK", "Table", "TableState", "norm", "rank"]

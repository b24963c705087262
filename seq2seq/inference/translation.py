"""Translations and scores as a translator returns them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Candidate:
    """One translation of a source.

    text: plain text of one line. score and log_probability: see `seq2seq.search.Ranking`. tokens: target pieces without
    EOS. finished: False when it was cut at the maximum length. heads: (H, len(tokens), len(source_tokens)) float32
    attention of each head, if requested and the model attends; == ignores it.
    """

    text: str
    score: float
    log_probability: float
    tokens: list[str]
    finished: bool
    heads: Tensor | None = field(default=None, compare=False)

    @property
    def alignment(self) -> Tensor | None:
        """(len(tokens), len(source_tokens)), the mean over heads."""
        return None if self.heads is None else self.heads.mean(0)


BLANK = Candidate("", 0.0, 0.0, [], True)
"""The translation of a blank line."""


@dataclass(frozen=True)
class Translation:
    """The translations of one source.

    nbest: candidates, best first; those of beam search have different texts (samples are independent draws and may
    repeat one). source_tokens: the source's pieces as the model saw them, with "</s>" after each part. parts: number of
    parts that a long source was cut into (0: blank). truncated: its end was left out.
    """

    nbest: list[Candidate]
    source_tokens: list[str]
    parts: int
    truncated: bool = False

    @property
    def text(self) -> str:
        return self.nbest[0].text

    @property
    def score(self) -> float:
        return self.nbest[0].score

    @property
    def tokens(self) -> list[str]:
        return self.nbest[0].tokens

    @property
    def finished(self) -> bool:
        return self.nbest[0].finished

    @property
    def alignment(self) -> Tensor | None:
        return self.nbest[0].alignment

    def record(self, heads: bool = False) -> dict[str, Any]:
        """Plain values, as in JSON lines: the best candidate, and all of them under "n_best".

        Attention is rounded to 4 digits. heads: add the attention of each head.
        """
        best = _record(self.nbest[0], heads)
        return {
            **best,
            "source_tokens": self.source_tokens,
            "parts": self.parts,
            "truncated": self.truncated,
            "n_best": [best, *(_record(candidate, heads) for candidate in self.nbest[1:])],
        }


def different(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first candidate of each text."""
    found: dict[str, Candidate] = {}
    for candidate in candidates:
        found.setdefault(candidate.text, candidate)
    return list(found.values())


def _record(candidate: Candidate, heads: bool) -> dict[str, Any]:
    record = {name: value for name, value in vars(candidate).items() if name != "heads"}
    if candidate.heads is not None and candidate.alignment is not None:
        record["alignment"] = _rounded(candidate.alignment)
        if heads:
            record["heads"] = [_rounded(head) for head in candidate.heads]
    return record


def _rounded(table: Tensor) -> list[list[float]]:
    return [[round(weight, 4) for weight in row] for row in table.tolist()]


@dataclass(frozen=True)
class ScoredPair:
    """A given translation with its score.

    tokens: target pieces without EOS. token_log_probabilities: one for each token and one for EOS.
    """

    score: float
    log_probability: float
    tokens: list[str]
    token_log_probabilities: list[float]

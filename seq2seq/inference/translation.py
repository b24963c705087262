"""What a translator returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Candidate:
    """One of a source's translations.

    text: plain text of one line. score and log_probability: see `seq2seq.search.Ranking`. tokens: target pieces without
    EOS. finished: False when it was cut at the maximum length. heads: (H, len(tokens), len(source_tokens)) float32
    attention of each head, if asked for and the model attends; == leaves it out.
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
    """nbest: the translations of one source, best first. source_tokens: its pieces as the model saw them, "</s>" after
    each part. parts: into how many parts a long source was cut (0: blank). truncated: its end was left out."""

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
        """Plain values, as JSON lines hold them; attention is rounded to 4 digits. heads: each head's attention too."""
        return {
            **_record(self.nbest[0], heads),
            "source_tokens": self.source_tokens,
            "parts": self.parts,
            "truncated": self.truncated,
            "n_best": [_record(candidate, heads) for candidate in self.nbest[1:]],
        }


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
    """A given translation under the model. tokens: target pieces without EOS; token_log_probabilities: one for each and
    one for EOS."""

    score: float
    log_probability: float
    tokens: list[str]
    token_log_probabilities: list[float]

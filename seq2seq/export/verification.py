"""Verification that an exported model translates as its original does."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from seq2seq.errors import UserError
from seq2seq.inference.bundle import Bundle
from seq2seq.inference.engines import Engine, Ids
from seq2seq.interfaces import EOS
from seq2seq.search import GreedySearch, Sampling, Search
from seq2seq.search.forced_decoding import Scored

TOLERANCE = 1e-3
"""Greatest difference of a token's log-probability in float32; closer tokens count as tied."""
LONGEST = 200
"""Most tokens of a source in a verification."""
BATCH_TOKENS = 4096


@dataclass(frozen=True)
class Verification:
    """An exported model against its original, on a sample of `segments` sources.

    log_probability: greatest difference of a token's log-probability in the original's greedy translations; infinite
    where one is not finite. greedy and own: shares of segments with the same tokens, by greedy search and by the
    bundle's own search (None: that is greedy search, or draws samples, or is refused); the two engines' beam searches
    differ a little.
    ties: segments whose greedy tokens diverge where two tokens are equally probable; they count as the same. refused:
    the reason why the exported model cannot use the bundle's own search, which remains its default.
    """

    segments: int
    log_probability: float
    greedy: float
    ties: int
    own: float | None
    refused: str | None = None

    @property
    def agrees(self) -> bool:
        """True if the two are the same in float32."""
        return self.greedy == 1 and self.log_probability <= TOLERANCE

    def __str__(self) -> str:
        own = "" if self.own is None else f", its own search in {self.own:.1%}"
        refused = f"\nIts own search needs another search= here: {self.refused}" if self.refused else ""
        return (
            f"verified on {self.segments} segments: greedy search gives the same tokens in {self.greedy:.1%}{own}; "
            f"log-probabilities of tokens differ by at most {self.log_probability:.2g}{refused}"
        )


def sample_ids(bundle: Bundle, sample: Sequence[str] | None, positions: int | None = None) -> list[list[int]]:
    """Token ids of the sample's texts that are neither blank nor too long; without a sample, 32 random sources.

    positions: the most tokens that a model takes on either side, which no translation of them can exceed.
    """
    search = GreedySearch()
    longest = LONGEST
    if positions is not None:
        longest = min(LONGEST, int((positions - search.max_length_b) / search.max_length_a) - 1)
    if sample is None:
        draw, size = random.Random(0), len(bundle.tokenizers.source)
        return [
            [draw.randrange(EOS + 1, size) for _ in range(draw.randint(1, max(1, min(longest, 30))))] for _ in range(32)
        ]
    kept = [ids for ids in bundle.tokenizers.source.encode(list(sample)) if 0 < len(ids) <= longest]
    if not kept:
        raise UserError("the sample has no line to verify the export with: all are blank or too long")
    return kept


def verify(original: Engine, exported: Engine, sources: Sequence[Ids], search: Search) -> Verification:
    """Compare two engines' greedy translations, their scores, and the translations of `search`."""
    greedy = GreedySearch()
    wanted, found = (
        [best.tokens for best, *_ in engine.decode(sources, greedy, BATCH_TOKENS)] for engine in (original, exported)
    )
    one, other = (engine.score(sources, wanted, greedy.ranking, BATCH_TOKENS) for engine in (original, exported))
    differences = (
        abs(a - b)
        for left, right in zip(one, other, strict=True)
        for a, b in zip(left.token_log_probabilities, right.token_log_probabilities, strict=True)
    )
    difference = max(each if math.isfinite(each) else math.inf for each in differences)
    apart = [place for place, tokens in enumerate(found) if tokens != wanted[place]]
    again = original.score([sources[p] for p in apart], [found[p] for p in apart], greedy.ranking, BATCH_TOKENS)
    ties = sum(is_tie(one[place], scored) for place, scored in zip(apart, again, strict=True))
    own, refused = None, None
    try:
        exported.check(search)
    except UserError as error:
        refused = str(error)
    if refused is None and search != greedy and not isinstance(search, Sampling):
        lists = [engine.decode(sources, search, BATCH_TOKENS) for engine in (original, exported)]
        own = sum(a[0].tokens == b[0].tokens for a, b in zip(*lists, strict=True)) / len(sources)
    same = (len(sources) - len(apart) + ties) / len(sources)
    return Verification(len(sources), difference, same, ties, own, refused)


def is_tie(one: Scored, other: Scored) -> bool:
    """True if the first tokens in which two outputs differ are equally probable."""
    place = next(
        (p for p, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=False)) if a != b),
        min(len(one.tokens), len(other.tokens)),
    )
    return abs(one.token_log_probabilities[place] - other.token_log_probabilities[place]) <= TOLERANCE

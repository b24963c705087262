"""Random segmentations into subwords. SentencePiece can draw them too, but not the same ones in every process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from random import Random

from seq2seq.interfaces import WORD_START

CACHED = 100_000
"""Words whose possible segmentations are remembered."""

Draw = Callable[[str, Random], list[str]]
Edge = tuple[int, str, float]


def unigram_sampler(scores: Mapping[str, float], alpha: float) -> Draw:
    """Segmentations of a string with probability proportional to (the product of its pieces' probabilities) ^ alpha:
    Kudo 2018, over all of them, by forward filtering and backward sampling.

    scores: each piece's logarithm of its probability. The string must have a segmentation.
    """
    longest = max(map(len, scores), default=0)

    @lru_cache(CACHED)
    def lattice(word: str) -> list[list[Edge]]:
        """For each end the pieces that may lead there: (start, piece, weight of all ways that end with it)."""
        edges: list[list[Edge]] = [[]]
        totals = [0.0]
        for end in range(1, len(word) + 1):
            into = [
                (start, piece, totals[start] + alpha * scores[piece])
                for start in range(max(0, end - longest), end)
                if totals[start] > -math.inf and (piece := word[start:end]) in scores
            ]
            most = max((weight for _, _, weight in into), default=-math.inf)
            edges.append([(start, piece, math.exp(weight - most)) for start, piece, weight in into])
            total = sum(weight for _, _, weight in edges[-1])
            totals.append(most + math.log(total) if into else -math.inf)
        return edges

    def draw(word: str, random: Random) -> list[str]:
        edges, end, pieces = lattice(word), len(word), []
        while end:
            end, piece, _ = _weighted(edges[end], random)
            pieces.append(piece)
        return pieces[::-1]

    return draw


def _weighted(edges: Sequence[Edge], random: Random) -> Edge:
    if len(edges) == 1:
        return edges[0]
    place = random.random() * sum(weight for _, _, weight in edges)
    for edge in edges:
        place -= edge[2]
        if place < 0:
            return edge
    return edges[-1]


def bpe_sampler(scores: Mapping[str, float], alpha: float) -> Draw:
    """Byte pair encoding that passes over each possible merge with probability alpha whenever it chooses the next one
    (BPE-dropout; Provilkov et al. 2020).

    scores: of each piece, the larger the earlier it was merged.
    """

    def draw(word: str, random: Random) -> list[str]:
        pieces = list(word)  # "" where a piece went into the one before
        before, after = list(range(-1, len(pieces) - 1)), list(range(1, len(pieces) + 1))
        merges: list[tuple[float, int, int, str]] = []

        def offer(left: int, right: int) -> None:
            if (
                left >= 0
                and right < len(pieces)
                and (score := scores.get(pair := pieces[left] + pieces[right])) is not None
            ):
                heappush(merges, (-score, left, right, pair))

        for right in range(1, len(pieces)):
            offer(right - 1, right)
        while merges:
            passed_over = []
            while merges:
                merge = heappop(merges)
                _, left, right, pair = merge
                if not pieces[right] or pieces[left] + pieces[right] != pair:
                    continue  # one of them has been merged since
                if random.random() >= alpha:
                    break
                passed_over.append(merge)
            else:
                break
            pieces[left], pieces[right] = pair, ""
            after[left] = after[right]
            if after[left] < len(pieces):
                before[after[left]] = left
            offer(before[left], left)
            offer(left, after[left])
            for merge in passed_over:
                heappush(merges, merge)
        return [piece for piece in pieces if piece]

    return draw


def resegment(pieces: Sequence[str], known: Mapping[str, float], draw: Draw, random: Random) -> Iterator[str]:
    """The pieces of one text with each word drawn again. Pieces that are not `known`, such as bytes, stay."""
    word = ""
    for piece in pieces:
        if word and (piece not in known or piece.startswith(WORD_START)):
            yield from draw(word, random)
            word = ""
        if piece in known:
            word += piece
        else:
            yield piece
    if word:
        yield from draw(word, random)

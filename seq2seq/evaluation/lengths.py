"""Lengths: buckets of source lengths and of length differences, and the parts of a joined segment."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from seq2seq.evaluation.languages import Unit

Range = tuple[int, int | None]
"""Lowest and highest length, both included; None is open."""

LENGTH_BUCKETS: dict[Unit, tuple[Range, ...]] = {
    "words": ((1, 9), (10, 19), (20, 29), (30, 39), (40, 49), (50, 59), (60, None)),
    "characters": ((1, 19), (20, 39), (40, 59), (60, 79), (80, 99), (100, 119), (120, None)),
}
"""Source lengths. About two Chinese or Japanese characters stand for an English word, four Thai ones."""

SHORT: dict[Unit, Range] = {"words": (10, 19), "characters": (20, 39)}
LONG: dict[Unit, Range] = {"words": (40, None), "characters": (80, None)}
"""Retention is the score on LONG sources divided by the score on SHORT ones."""

STEP: dict[Unit, int] = {"words": 10, "characters": 20}
"""Additional length per which regressions report the loss; as wide as a bucket."""

DIFFERENCE_BUCKETS: tuple[tuple[int | None, int | None], ...] = (
    (None, -6),
    (-5, -3),
    (-2, -1),
    (0, 0),
    (1, 2),
    (3, 5),
    (6, None),
)
"""Length of a hypothesis minus that of its reference, both ends included; None is open."""


def units_of(text: str, unit: Unit = "words") -> list[str]:
    """Words between spaces, or the characters that are not spaces."""
    return text.split() if unit == "words" else list("".join(text.split()))


def length(text: str, unit: Unit = "words") -> int:
    """Number of words between spaces, or of characters that are not spaces."""
    return len(text.split()) if unit == "words" else sum(map(len, text.split()))


def rows_by_length(sources: Sequence[str], unit: Unit = "words") -> list[tuple[int, int | None, list[int]]]:
    """(low, high, rows) of every length bucket that holds a segment. A blank source counts as one word."""
    lengths = [max(1, length(source, unit)) for source in sources]
    buckets = [(low, high, _inside(lengths, low, high)) for low, high in LENGTH_BUCKETS[unit]]
    return [bucket for bucket in buckets if bucket[2]]


def rows_of_lengths(sources: Sequence[str], low: int, high: int | None, unit: Unit = "words") -> list[int]:
    """Rows whose source has low to high words or characters."""
    return _inside([length(source, unit) for source in sources], low, high)


def spread(size: int, count: int) -> list[int]:
    """Choose `count` of the rows 0 to size - 1, spread evenly over them; all where there are no more."""
    count = min(size, count)
    return [size * place // count for place in range(count)]


def bucket_label(low: int | None, high: int | None) -> str:
    """Label a bucket for people: '60+', '0', and with typographic signs '10-19', '<= -6'."""
    if low is None:
        return f"≤ {_signed(high)}"
    if high is None:
        return f"{_signed(low)}+"
    if low == high:
        return _signed(low)
    return f"{_signed(low)} to {_signed(high)}" if low < 0 else f"{low}\u2013{high}"


def length_differences(
    hypotheses: Sequence[str], references: Sequence[str], unit: Unit = "words"
) -> list[Mapping[str, Any]]:
    """Count the segments that are shorter or longer than their reference, by words or characters.

    One entry per bucket of DIFFERENCE_BUCKETS, in order: {"low", "high", "segments", "share"}.
    """
    differences = [length(h, unit) - length(r, unit) for h, r in zip(hypotheses, references, strict=True)]
    counts = [(low, high, len(_inside(differences, low, high))) for low, high in DIFFERENCE_BUCKETS]
    total = max(1, len(differences))
    return [{"low": low, "high": high, "segments": n, "share": n / total} for low, high, n in counts]


def split_like_reference(hypothesis: str, reference_parts: Sequence[str], unit: Unit = "words") -> list[str]:
    """Cut a hypothesis where its reference's parts meet; the result has as many parts.

    The method of mwerSegmenter (Matusov et al., 2005): align the words (or characters) of the hypothesis with those of
    the joined parts by minimum edit distance (lowercased, unit costs), then cut after the hypothesis words that are
    aligned with a part's last word. Joining the result with spaces gives the hypothesis' words back. Words inserted at
    a border go to the earlier part; among equal alignments, the one that misses the later reference words wins.
    """
    words = units_of(hypothesis, unit)
    target = [word.lower() for part in reference_parts for word in units_of(part, unit)]
    ends = np.cumsum([length(part, unit) for part in reference_parts])
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(target))}
    columns = np.array([vocabulary.get(word.lower(), -1) for word in words], dtype=np.int64)
    steps = np.arange(len(words) + 1)

    # distance[i, j]: edits between the first i reference words and the first j hypothesis words. Along a row,
    # distance[i, j] = min over k <= j of best[k] + (j - k): a running minimum of best - steps.
    distance = np.empty((len(target) + 1, len(words) + 1), dtype=np.int64)
    distance[0] = steps
    for i, word in enumerate(target, start=1):
        best = distance[i - 1] + 1
        best[1:] = np.minimum(best[1:], distance[i - 1, :-1] + (columns != vocabulary[word]))
        distance[i] = np.minimum.accumulate(best - steps) + steps

    cuts = [0] * len(target) + [len(words)]
    i, j = len(target), len(words)
    while i > 0:
        cuts[i] = max(cuts[i], j)
        same = j > 0 and columns[j - 1] == vocabulary[target[i - 1]]
        if distance[i, j] == distance[i - 1, j] + 1:
            i -= 1
        elif j > 0 and distance[i, j] == distance[i - 1, j - 1] + (not same):
            i, j = i - 1, j - 1
        else:
            j -= 1
    borders = [0, *(cuts[end] if end else 0 for end in ends[:-1]), len(words)]
    return _cut(hypothesis, borders) if unit == "characters" else [" ".join(words[a:b]) for a, b in pairwise(borders)]


def _cut(text: str, borders: Sequence[int]) -> list[str]:
    """The text between pairs of borders, which count its characters without spaces."""
    places = [place for place, character in enumerate(text) if not character.isspace()] + [len(text)]
    return [text[places[start] : places[end]].strip() if start < end else "" for start, end in pairwise(borders)]


def _inside(values: Sequence[int], low: int | None, high: int | None) -> list[int]:
    return [
        row for row, value in enumerate(values) if (low is None or value >= low) and (high is None or value <= high)
    ]


def _signed(value: int | None) -> str:
    return str(value).replace("-", "\u2212")

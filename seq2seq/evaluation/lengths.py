"""Buckets: of source lengths, of length differences, and the position of a part within a concatenated segment."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

LENGTH_BUCKETS: tuple[tuple[int, int | None], ...] = (
    (1, 9),
    (10, 19),
    (20, 29),
    (30, 39),
    (40, 49),
    (50, 59),
    (60, None),
)
"""Source lengths in white-space words, both ends included; None is open."""

SHORT: tuple[int, int | None] = (10, 19)
LONG: tuple[int, int | None] = (40, None)
"""Retention is BLEU on LONG sources divided by BLEU on SHORT ones."""

DIFFERENCE_BUCKETS: tuple[tuple[int | None, int | None], ...] = (
    (None, -6),
    (-5, -3),
    (-2, -1),
    (0, 0),
    (1, 2),
    (3, 5),
    (6, None),
)
"""Hypothesis words (or characters) minus reference ones, both ends included; None is open."""


def word_count(text: str) -> int:
    """Number of white-space words."""
    return len(text.split())


def hardly_spaced(texts: Sequence[str]) -> bool:
    """Whether most of the texts of more than 20 characters have fewer than one white-space word in 15 of them, as those
    of languages that are written without spaces: lengths in words then mean little."""
    long = [text for text in texts if len(text) > 20]
    return 2 * sum(len(text) > 15 * word_count(text) for text in long) > len(long)


def words_of(text: str, characters: bool) -> list[str]:
    """White-space words, or for a language without them the characters."""
    return list("".join(text.split())) if characters else text.split()


def rows_by_length(sources: Sequence[str]) -> list[tuple[int, int | None, list[int]]]:
    """(low, high, rows) of every length bucket that holds a segment. A blank source counts as one word."""
    lengths = [max(1, word_count(source)) for source in sources]
    buckets = [(low, high, _inside(lengths, low, high)) for low, high in LENGTH_BUCKETS]
    return [bucket for bucket in buckets if bucket[2]]


def rows_of_lengths(sources: Sequence[str], low: int, high: int | None) -> list[int]:
    """Rows whose source has low to high words."""
    return _inside([word_count(source) for source in sources], low, high)


def spread(size: int, count: int) -> list[int]:
    """`count` of the rows 0 to size - 1, spread evenly over them; all where there are no more."""
    count = min(size, count)
    return [size * place // count for place in range(count)]


def bucket_label(low: int | None, high: int | None) -> str:
    """What people read on an axis: '60+', '0', and with typographic signs '10-19', '<= -6'."""
    if low is None:
        return f"≤ {_signed(high)}"
    if high is None:
        return f"{_signed(low)}+"
    if low == high:
        return _signed(low)
    return f"{_signed(low)} to {_signed(high)}" if low < 0 else f"{low}\u2013{high}"


def length_differences(hypotheses: Sequence[str], references: Sequence[str]) -> list[Mapping[str, Any]]:
    """How many segments are how many words, of hardly spaced references characters, shorter or longer than these.

    One entry a bucket of DIFFERENCE_BUCKETS, in order: {"low", "high", "segments", "share"}.
    """
    characters = hardly_spaced(references)
    differences = [
        len(words_of(h, characters)) - len(words_of(r, characters)) for h, r in zip(hypotheses, references, strict=True)
    ]
    counts = [(low, high, len(_inside(differences, low, high))) for low, high in DIFFERENCE_BUCKETS]
    total = max(1, len(differences))
    return [{"low": low, "high": high, "segments": n, "share": n / total} for low, high, n in counts]


def split_like_reference(hypothesis: str, reference_parts: Sequence[str]) -> list[str]:
    """Cut a hypothesis where its reference's parts meet; as many parts come back as went in.

    The method of mwerSegmenter (Matusov et al., 2005): align the words of the hypothesis with those of the joined
    parts by minimum edit distance (lower-cased, unit costs), then cut after the hypothesis words that are aligned with
    a part's last word. Joining the result with blanks gives the hypothesis's words back. Words inserted at a border go
    to the earlier part; among equal alignments, the one that misses the later words of the reference is taken.
    """
    words = hypothesis.split()
    target = [word.lower() for part in reference_parts for word in part.split()]
    ends = np.cumsum([word_count(part) for part in reference_parts])
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
    return [" ".join(words[start:end]) for start, end in pairwise(borders)]


def _inside(values: Sequence[int], low: int | None, high: int | None) -> list[int]:
    return [
        row for row, value in enumerate(values) if (low is None or value >= low) and (high is None or value <= high)
    ]


def _signed(value: int | None) -> str:
    return str(value).replace("-", "\u2212")

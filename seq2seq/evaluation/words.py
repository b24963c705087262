"""Words: the F1 by their frequency and the n-grams that a system gets right (Neubig et al., 2019), and repetitions."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seq2seq.evaluation.languages import Unit
from seq2seq.evaluation.lengths import units_of

FREQUENCY_BUCKETS: tuple[tuple[int, int | None], ...] = (
    (0, 0),
    (1, 1),
    (2, 4),
    (5, 9),
    (10, 99),
    (100, 999),
    (1000, None),
)
"""Occurrences of a word, both ends included; None is open."""

KEPT_WORDS = 200_000
"""Words of the training targets whose counts a run keeps: the most frequent ones."""

REPEAT_ORDER = 4
"""Longest n-gram whose repetition counts."""

_PLANES = (*range(0x300, 0x20000), *range(0xE0000, 0xE1000))
_MARKS = [chr(code) for code in _PLANES if unicodedata.category(chr(code)) in ("Mn", "Mc")]
_BASIC = "".join(mark for mark in _MARKS if mark < "\U00010000")
_BEYOND = "".join(mark for mark in _MARKS if mark >= "\U00010000")
_WORD = re.compile(rf"\w+[{_BASIC}\w]*(?:(?=[\U00010000-\U0010ffff])[{_BEYOND}][{_BASIC}\w]*)*|[^\w\s]")
"""Combining marks, which \\w lacks, stay inside words. Python's re is slow with classes that reach beyond U+FFFF: those
are tried last, and only where such a character stands."""


def split_words(text: str, unit: Unit = "words") -> list[str]:
    """Split text into words and single punctuation marks, case kept; or into characters."""
    return _WORD.findall(text) if unit == "words" else units_of(text, unit)


def count_words(texts: Iterable[str], unit: Unit = "words") -> Counter[str]:
    """Count each word of `split_words`: over the training targets, the frequency of `word_f1`."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(split_words(text, unit))
    return counts


def unlisted(counts: Mapping[str, int]) -> int:
    """The highest frequency of a word that a run's counts lack: they may be of the KEPT_WORDS most frequent only."""
    return min(counts.values()) if len(counts) >= KEPT_WORDS else 0


def word_f1(
    hypotheses: Sequence[str],
    references: Sequence[str],
    frequency: Mapping[str, int],
    missing: int = 0,
    unit: Unit = "words",
) -> list[dict[str, Any]]:
    """Precision, recall and F1 of words (or characters), grouped by their frequency in training.

    missing: highest frequency of a word that `frequency` lacks; the buckets up to that count become one.
    A word of a hypothesis is right as often as its segment's reference has it. One entry per bucket of
    FREQUENCY_BUCKETS that a reference or hypothesis word falls into: {"low", "high", "words" (in the references),
    "precision", "recall", "f1"}, the last three between 0 and 1.
    """
    first = _bucket(missing)

    def bucket_of(word: str) -> int:
        return max(first, _bucket(frequency.get(word, 0)))

    matched, proposed, wanted = Counter[int](), Counter[int](), Counter[int]()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        ours, theirs = (Counter(split_words(text, unit)) for text in (hypothesis, reference))
        for word, count in ours.items():
            bucket = bucket_of(word)
            proposed[bucket] += count
            matched[bucket] += min(count, theirs[word])
        for word, count in theirs.items():
            wanted[bucket_of(word)] += count
    result = []
    for bucket, (low, high) in enumerate(FREQUENCY_BUCKETS):
        if not proposed[bucket] and not wanted[bucket]:
            continue
        precision = matched[bucket] / proposed[bucket] if proposed[bucket] else 0.0
        recall = matched[bucket] / wanted[bucket] if wanted[bucket] else 0.0
        f1 = 2 * matched[bucket] / (proposed[bucket] + wanted[bucket])
        words = wanted[bucket]
        low = 0 if bucket == first else low
        result.append({"low": low, "high": high, "words": words, "precision": precision, "recall": recall, "f1": f1})
    return result


def ngram_matches(
    hypotheses: Sequence[str], references: Sequence[str], order: int = 4, unit: Unit = "words"
) -> Counter[tuple[str, ...]]:
    """Count the n-grams (n = 1 to order) of the references that a system produces, clipped by segment as in BLEU."""
    matches: Counter[tuple[str, ...]] = Counter()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        matches.update(_ngrams(hypothesis, order, unit) & _ngrams(reference, order, unit))
    return matches


def ngram_differences(
    first: Counter[tuple[str, ...]], second: Counter[tuple[str, ...]], limit: int = 20, unit: Unit = "words"
) -> list[dict[str, Any]]:
    """The n-grams that `first` gets and `second` misses most, from two systems' `ngram_matches`.

    Ordered by the difference of the counts, longer n-grams first among equals, and of nested n-grams with the same
    counts only the longest stays. Entries: {"ngram", "first", "second"}.
    """
    ranked = sorted(
        (ngram for ngram in first if first[ngram] > second[ngram]),
        key=lambda ngram: (second[ngram] - first[ngram], -len(ngram), ngram),
    )
    kept: list[tuple[str, ...]] = []
    for ngram in ranked:
        counts = (first[ngram], second[ngram])
        if not any(counts == (first[other], second[other]) and _within(ngram, other) for other in kept):
            kept.append(ngram)
        if len(kept) == limit:
            break
    joint = " " if unit == "words" else ""
    return [{"ngram": joint.join(ngram), "first": first[ngram], "second": second[ngram]} for ngram in kept]


def repetition_rate(texts: Sequence[str], unit: Unit = "words") -> float:
    """Share of words between spaces (or characters) that repeat what was just said, between 0 and 1.

    A word counts when it lies in an n-gram, n = 1 to 4, that equals the n words right before it: all copies but the
    first. "a b a b a b ." has 4 of 7.
    """
    total = repeated = 0
    for text in texts:
        words = units_of(text, unit)
        marked = [False] * len(words)
        for n in range(1, REPEAT_ORDER + 1):
            for start in range(n, len(words) - n + 1):
                if words[start : start + n] == words[start - n : start]:
                    marked[start : start + n] = [True] * n
        total += len(words)
        repeated += sum(marked)
    return repeated / total if total else 0.0


def _bucket(count: int) -> int:
    return next(
        i for i, (low, high) in enumerate(FREQUENCY_BUCKETS) if count >= low and (high is None or count <= high)
    )


def _ngrams(text: str, order: int, unit: Unit) -> Counter[tuple[str, ...]]:
    words = split_words(text, unit)
    return Counter(tuple(words[i : i + n]) for n in range(1, order + 1) for i in range(len(words) - n + 1))


def _within(inner: tuple[str, ...], outer: tuple[str, ...]) -> bool:
    return any(outer[i : i + len(inner)] == inner for i in range(len(outer) - len(inner) + 1))

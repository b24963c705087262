"""Which words and which n-grams a system gets right, as compare-mt (Neubig et al., 2019) asks."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FREQUENCY_BUCKETS: tuple[tuple[int, int | None], ...] = (
    (0, 0),
    (1, 1),
    (2, 4),
    (5, 9),
    (10, 99),
    (100, 999),
    (1000, None),
)
"""How often a word was seen, both ends included; None is open."""

_WORD = re.compile(r"\w+|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Words and single punctuation marks, case kept."""
    return _WORD.findall(text)


def count_words(texts: Iterable[str]) -> Counter[str]:
    """How often each word of `split_words` occurs: over the training targets, what `word_f1` calls frequency."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(split_words(text))
    return counts


def word_f1(hypotheses: Sequence[str], references: Sequence[str], frequency: Mapping[str, int]) -> list[dict[str, Any]]:
    """Precision, recall and F1 of words, grouped by how often the word was seen in training.

    A word of a hypothesis is right as often as its segment's reference has it. One entry a bucket of
    FREQUENCY_BUCKETS that a reference or hypothesis word falls into: {"low", "high", "words" (in the references),
    "precision", "recall", "f1"}, the last three between 0 and 1.
    """
    matched, proposed, wanted = Counter[int](), Counter[int](), Counter[int]()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        ours, theirs = Counter(split_words(hypothesis)), Counter(split_words(reference))
        for word, count in ours.items():
            bucket = _bucket(frequency.get(word, 0))
            proposed[bucket] += count
            matched[bucket] += min(count, theirs[word])
        for word, count in theirs.items():
            wanted[_bucket(frequency.get(word, 0))] += count
    result = []
    for bucket, (low, high) in enumerate(FREQUENCY_BUCKETS):
        if not proposed[bucket] and not wanted[bucket]:
            continue
        precision = matched[bucket] / proposed[bucket] if proposed[bucket] else 0.0
        recall = matched[bucket] / wanted[bucket] if wanted[bucket] else 0.0
        f1 = 2 * matched[bucket] / (proposed[bucket] + wanted[bucket])
        words = wanted[bucket]
        result.append({"low": low, "high": high, "words": words, "precision": precision, "recall": recall, "f1": f1})
    return result


def ngram_matches(hypotheses: Sequence[str], references: Sequence[str], order: int = 4) -> Counter[tuple[str, ...]]:
    """How often a system produces each n-gram (n = 1 to order) of the references, clipped by segment as in BLEU."""
    matches: Counter[tuple[str, ...]] = Counter()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        matches.update(_ngrams(hypothesis, order) & _ngrams(reference, order))
    return matches


def ngram_differences(
    first: Counter[tuple[str, ...]], second: Counter[tuple[str, ...]], limit: int = 20
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
    return [{"ngram": " ".join(ngram), "first": first[ngram], "second": second[ngram]} for ngram in kept]


def _bucket(count: int) -> int:
    return next(
        i for i, (low, high) in enumerate(FREQUENCY_BUCKETS) if count >= low and (high is None or count <= high)
    )


def _ngrams(text: str, order: int) -> Counter[tuple[str, ...]]:
    words = split_words(text)
    return Counter(tuple(words[i : i + n]) for n in range(1, order + 1) for i in range(len(words) - n + 1))


def _within(inner: tuple[str, ...], outer: tuple[str, ...]) -> bool:
    return any(outer[i : i + len(inner)] == inner for i in range(len(outer) - len(inner) + 1))

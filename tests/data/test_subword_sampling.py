"""Sampled segmentations against the exact probabilities of all of them, and without chance against SentencePiece."""

from collections import Counter
from collections.abc import Iterator
from math import exp, sqrt
from random import Random

import pytest
from toy_text import lines

from seq2seq.data.subword_sampling import bpe_sampler, resegment, unigram_sampler
from seq2seq.data.tokenizer import Tokenizer, TokenizerSettings, train_tokenizer

UNIGRAM = {"a": -2.0, "b": -2.5, "c": -3.0, "ab": -2.2, "bc": -2.9, "abc": -4.5, "ca": -3.5}
BPE = {"a": -90.0, "b": -91.0, "c": -92.0, "ab": 0.0, "bc": -1.0, "abc": -2.0, "ca": -3.0, "cab": -4.0}
DRAWS = 20_000


def segmentations(word: str) -> Iterator[tuple[str, ...]]:
    if not word:
        yield ()
    for end in range(1, len(word) + 1):
        if word[:end] in UNIGRAM:
            yield from ((word[:end], *rest) for rest in segmentations(word[end:]))


def unigram_probabilities(word: str, alpha: float) -> dict[tuple[str, ...], float]:
    weights = {pieces: exp(alpha * sum(UNIGRAM[piece] for piece in pieces)) for pieces in segmentations(word)}
    return {pieces: weight / sum(weights.values()) for pieces, weight in weights.items()}


def bpe_probabilities(pieces: tuple[str, ...], alpha: float) -> Counter[tuple[str, ...]]:
    """Every subset of the possible merges may be the one that is left."""
    found: Counter[tuple[str, ...]] = Counter()
    merges = sorted(
        (-BPE[pair], place) for place in range(len(pieces) - 1) if (pair := pieces[place] + pieces[place + 1]) in BPE
    )
    for number, (_, place) in enumerate(merges):
        merged = (*pieces[:place], pieces[place] + pieces[place + 1], *pieces[place + 2 :])
        for result, probability in bpe_probabilities(merged, alpha).items():
            found[result] += alpha**number * (1 - alpha) * probability
    found[pieces] += alpha ** len(merges)
    return found


@pytest.mark.parametrize("alpha", [0.3, 1.0])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sampled_frequencies_equal_the_probabilities(kind: str, alpha: float) -> None:
    if kind == "unigram":
        draw, expected = unigram_sampler(UNIGRAM, alpha), unigram_probabilities("abcab", alpha)
    else:
        draw, expected = bpe_sampler(BPE, alpha / 2), dict(bpe_probabilities(tuple("abcab"), alpha / 2))
    assert sum(expected.values()) == pytest.approx(1) and len(expected) > 5
    random = Random(3)
    counts = Counter(tuple(draw("abcab", random)) for _ in range(DRAWS))
    assert counts.keys() <= expected.keys()
    for pieces, probability in expected.items():
        deviation = sqrt(DRAWS * probability * (1 - probability))
        assert abs(counts[pieces] - DRAWS * probability) < 4.5 * deviation + 1, pieces


@pytest.mark.parametrize(("kind", "alpha"), [("unigram", 1000.0), ("bpe", 0.0)])
def test_sampling_without_chance_equals_sentencepiece(kind: str, alpha: float) -> None:
    text = [*lines("train", "x"), *lines("train", "y"), "neu: ∆ und \u4e2d!", "", "  two  spaces "]
    tokenizer = train_tokenizer(lambda: iter(text[:-3]), len(text) - 3, TokenizerSettings(kind, 400))
    assert tokenizer.sample(text, alpha, 1) == tokenizer.encode(text)


def test_resegment_keeps_pieces_that_are_not_text() -> None:
    pieces = ["\u2581a", "b", "<0xE2>", "<0x88>", "b", "c", "\u2581a"]
    scores = {**BPE, "\u2581": -95.0, "\u2581a": -5.0}
    found = list(resegment(pieces, scores, bpe_sampler(scores, 0.0), Random(1)))
    assert found == ["\u2581", "ab", "<0xE2>", "<0x88>", "bc", "\u2581a"]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sampling_of_long_words_ends_soon(kind: str) -> None:
    text = ["ab" * 3000, "x" * 5000, "ab x"]
    tokenizer: Tokenizer = train_tokenizer(lambda: iter(["ab abab x xx"] * 9), 9, TokenizerSettings(kind, 300))
    assert tokenizer.decode_batch(tokenizer.sample(text, 0.1, 4)) == text

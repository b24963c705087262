"""IBM Model 1 against a brute-force computation, and on a lexicon that is known."""

import random
from collections import defaultdict

import numpy as np
import pytest
import torch

from seq2seq.data.batching import collate
from seq2seq.data.lexical_translation import cooccurrences, translation_candidates, translation_probabilities
from seq2seq.interfaces import EOS, PAD

SOURCES, TARGETS = 16, 19


def batches_of(pairs, size=3):
    return lambda: [
        collate(pairs[start : start + size], range(len(pairs))[start : start + size])
        for start in range(0, len(pairs), size)
    ]


def random_pairs(count=25):
    draw = random.Random(3)
    return [
        (draw.choices(range(4, SOURCES), k=draw.randint(1, 6)), draw.choices(range(4, TARGETS), k=draw.randint(1, 7)))
        for _ in range(count)
    ]


def by_hand(pairs, iterations):
    """Textbook EM in plain float64; EOS is the empty word."""
    probability = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts, totals = defaultdict(float), defaultdict(float)
        for source, target in pairs:
            for token in target:
                norm = sum(probability[own, token] for own in (*source, EOS))
                for own in (*source, EOS):
                    share = probability[own, token] / norm
                    counts[own, token] += share
                    totals[own] += share
        probability = {key: count / totals[key[0]] for key, count in counts.items()}
    return probability


@pytest.mark.parametrize("iterations", [1, 4])
def test_probabilities_equal_textbook_expectation_maximization(iterations, monkeypatch):
    monkeypatch.setattr("seq2seq.data.lexical_translation.CHUNK", 100)
    pairs = random_pairs()
    keys, probabilities = translation_probabilities(batches_of(pairs), TARGETS, iterations)
    expected = by_hand(pairs, iterations)
    assert np.all(np.diff(keys) > 0)
    found = {divmod(key, TARGETS): value for key, value in zip(keys.tolist(), probabilities.tolist(), strict=True)}
    assert found == pytest.approx(expected)
    assert np.bincount(keys // TARGETS, probabilities)[4:] == pytest.approx(1)


def test_candidates_find_a_lexicon():
    draw = random.Random(5)
    lexicon = {source: source + 3 for source in range(4, SOURCES)}
    pairs = []
    for _ in range(300):
        source = draw.sample(range(4, SOURCES - 1), k=draw.randint(2, 5))
        target = [lexicon[token] for token in source]
        draw.shuffle(target)
        pairs.append((source, [*target, 4]))  # 4 belongs to no source token
    candidates, frequent = translation_candidates(batches_of(pairs), SOURCES, TARGETS, 3, joint=True)
    assert candidates.shape == (SOURCES, 3) and candidates.dtype == frequent.dtype == np.int32
    assert [row[0] for row in candidates[4 : SOURCES - 1]] == [lexicon[token] for token in range(4, SOURCES - 1)]
    assert candidates[EOS, 0] == 4
    assert candidates[SOURCES - 1].tolist() == [SOURCES - 1, PAD, PAD], "a token that never occurred is copied"
    assert set(frequent[:2].tolist()) == {EOS, 4}
    separate, _ = translation_candidates(batches_of(pairs), SOURCES, TARGETS, 3, joint=False)
    assert separate[SOURCES - 1].tolist() == [PAD] * 3
    assert separate[PAD].tolist() == [PAD] * 3


def test_memory_is_bounded_by_leaving_out_the_rarest_pairs(monkeypatch):
    monkeypatch.setattr("seq2seq.data.lexical_translation.CHUNK", 10)
    pairs = [([5], [7])] * 20 + random_pairs()
    everything = cooccurrences(batches_of(pairs), TARGETS, 1000)
    few = cooccurrences(batches_of(pairs), TARGETS, 20)
    assert 0 < len(few) <= 20 < len(everything)
    assert 5 * TARGETS + 7 in few
    keys, probabilities = translation_probabilities(batches_of(pairs), TARGETS, cells=20)
    assert len(keys) <= 20 and np.isfinite(probabilities).all()
    assert torch.tensor(probabilities).max() <= 1 + 1e-12

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import TER
from sacrebleu.metrics.lib_ter import BeamEditDistance, translation_edit_rate

from seq2seq.evaluation.corpus_statistics import CorpusStatistics
from seq2seq.evaluation.edit_rate import edit_distances, translation_edits
from seq2seq.evaluation.scorers import TerScorer


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from("abcdefg"), max_size=25),
    st.lists(st.sampled_from("abcdefg"), max_size=25),
)
def test_edits_equal_sacrebleus(hypothesis, reference):
    assert translation_edits(hypothesis, reference) == translation_edit_rate(hypothesis, reference)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("mine", "theirs"), [(70, 70), (10, 90), (90, 10), (1, 120), (60, 45)])
def test_edits_of_long_wrong_segments_equal_sacrebleus_at_its_limits(mine, theirs):
    rng = random.Random(mine)
    hypothesis, reference = rng.choices("abcdefghijklmnopq", k=mine), rng.choices("abcdefghijklmnopqrst", k=theirs)
    assert translation_edits(hypothesis, reference) == translation_edit_rate(hypothesis, reference)[0]


def test_shifted_block_counts_as_one_edit():
    assert translation_edits(["d", "e", "f", "a", "b", "c"], ["a", "b", "c", "d", "e", "f"]) == 1
    assert translation_edits([], ["a", "b"]) == 2
    assert translation_edits(["a", "b"], []) == 2


@pytest.mark.parametrize(("length", "size"), [(5, 80), (80, 5), (40, 40), (3, 3)])
def test_batched_distances_equal_sacrebleus_within_its_beam(length, size):
    rng = random.Random(length)
    reference = rng.choices("abcdef", k=size)
    hypotheses = [rng.choices("abcdefg", k=length) for _ in range(20)]
    expected = [BeamEditDistance(reference)(hypothesis)[0] for hypothesis in hypotheses]
    np.testing.assert_array_equal(edit_distances(hypotheses, reference), expected)


def test_ter_scorer_has_sacrebleus_corpus_score_and_signature():
    rng = random.Random(5)
    references = [
        " ".join(rng.choices(["Der", "Hund", "lief", "weg", ",", "und"], k=rng.randint(0, 20))) for _ in range(40)
    ]
    hypotheses = [" ".join(rng.sample(line.split(), k=len(line.split()))) + " Ende ." for line in references]
    ours, theirs = CorpusStatistics(TerScorer(), hypotheses, references), TER()
    assert ours.score() == theirs.corpus_score(hypotheses, [references]).score
    assert ours.signature == theirs.get_signature().format()

import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from seq2seq.errors import UserError
from seq2seq.evaluation.bootstrap import two_sided_p_value
from seq2seq.evaluation.corpus_statistics import CorpusStatistics
from seq2seq.evaluation.metrics import References
from seq2seq.evaluation.scorers import BleuScorer
from seq2seq.evaluation.signatures import require_same_signature
from seq2seq.evaluation.significance import (
    difference_test,
    mean_and_deviation,
    paired_bootstrap,
)

RNG = random.Random(3)
REFERENCES = [" ".join(RNG.choices(["a", "b", "c", "d", "e", "f", "g", "h"], k=12)) for _ in range(80)]


def worse(rate: float, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(word if rng.random() > rate else "x" for word in line.split()) for line in REFERENCES]


def test_a_real_difference_is_found_and_a_small_one_is_not():
    baseline, close, good = worse(0.3, 1), worse(0.29, 2), worse(0.1, 3)
    tests = paired_bootstrap(baseline, {"close": close, "good": good}, References(REFERENCES), samples=200)
    for metric, sacrebleu in (("bleu", BLEU()), ("chrf", CHRF())):
        found = tests["good"][metric]
        scores = [sacrebleu.corpus_score(each, [REFERENCES]).score for each in (baseline, good)]
        assert found["difference"] == pytest.approx(scores[1] - scores[0])
        assert 0 < found["low"] < found["difference"] < found["high"]
        assert found["p_value"] == pytest.approx(1 / 201)
        assert tests["close"][metric]["p_value"] > 0.1
        assert tests["close"][metric]["low"] < 0 < tests["close"][metric]["high"]


def null_p_values(trials: int, joined: int, groups: list[int] | None) -> np.ndarray:
    """BLEU's p-values of pairs of equal systems: the outputs of two swapped at random, for every segment of a text or
    for `joined` copies of each segment together."""
    texts = [lines * joined for lines in (worse(0.3, 1), worse(0.3, 2), REFERENCES)]
    first, second = (CorpusStatistics(BleuScorer(), lines, texts[2], groups) for lines in texts[:2])
    ours, theirs = first.counts, second.counts
    rng = np.random.default_rng(0)
    found = []
    for _ in range(trials):
        swapped = np.tile(rng.random(len(REFERENCES)) < 0.5, joined)[:, None]
        first.counts, second.counts = np.where(swapped, ours, theirs), np.where(swapped, theirs, ours)
        draws = second.resampled(None, 99, 7) - first.resampled(None, 99, 7)
        found.append(difference_test(second.score() - first.score(), draws)["p_value"])
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("joined", [1, 4])
def test_of_equal_systems_five_in_a_hundred_differ(joined):
    """Bounds: 99.9% of the binomial distribution with 400 trials; sacreBLEU's test gives 43 or so."""
    groups = None if joined == 1 else list(range(len(REFERENCES))) * joined
    assert 7 <= (null_p_values(400, joined, groups) <= 0.05).sum() <= 36


@pytest.mark.slow
def test_segments_taken_for_independent_give_too_many_differences():
    assert (null_p_values(60, 4, None) <= 0.05).mean() > 0.2


def test_two_sided_p_value_by_hand():
    """Resamples around 3: 2, 1, 0 and 3 away from it."""
    resampled = np.array([1.0, 2.0, 3.0, 6.0])
    assert two_sided_p_value(resampled, 2.0) == two_sided_p_value(resampled, -2.0) == 3 / 5
    assert two_sided_p_value(resampled, 3.5) == 1 / 5
    assert two_sided_p_value(resampled, 0.0) == 1.0


def test_the_baseline_against_itself_is_no_difference():
    baseline = worse(0.3, 1)
    result = paired_bootstrap(baseline, {"copy": list(baseline)}, References(REFERENCES), samples=50)["copy"]["bleu"]
    assert result == {"difference": 0.0, "low": 0.0, "high": 0.0, "p_value": 1.0}


@pytest.mark.parametrize(("segments", "groups"), [(9, None), (80, [row // 10 for row in range(80)])])
def test_too_few_segments_or_groups_say_nothing(segments, groups):
    lines = [worse(0.3, 1)[:segments], worse(0.1, 2)[:segments], REFERENCES[:segments]]
    references = References(lines[2], groups=groups)
    found = paired_bootstrap(lines[0], {"other": lines[1]}, references, samples=50)["other"]["chrf"]
    assert found["difference"] > 0
    assert (found["low"], found["high"], found["p_value"]) == (None, None, None)


def test_paired_bootstrap_without_systems_is_empty():
    assert paired_bootstrap(worse(0.3, 1), {}, References(REFERENCES)) == {}


def test_paired_bootstrap_refuses_other_segments():
    with pytest.raises(UserError, match="short has 79 lines, the baseline 80"):
        paired_bootstrap(worse(0.3, 1), {"short": worse(0.3, 2)[:79]}, References(REFERENCES))


def test_require_same_signature_names_two_that_differ():
    signatures = {"rnn": "case:mixed|tok:13a", "conv": "case:mixed|tok:13a", "outside": "case:lc|tok:none"}
    with pytest.raises(UserError, match=r"rnn has case:mixed\|tok:13a, but outside has case:lc\|tok:none"):
        require_same_signature(signatures)
    require_same_signature({"rnn": "tok:13a", "conv": "tok:13a"})
    require_same_signature({})


def test_mean_and_sample_deviation():
    assert mean_and_deviation([2.0, 4.0, 6.0]) == (4.0, 2.0)
    assert mean_and_deviation([3.5]) == (3.5, None)

import random

import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from seq2seq.errors import UserError
from seq2seq.evaluation.significance import mean_and_deviation, paired_bootstrap, require_same_signature

RNG = random.Random(3)
REFERENCES = [" ".join(RNG.choices(["a", "b", "c", "d", "e", "f", "g", "h"], k=12)) for _ in range(80)]


def worse(rate: float, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(word if rng.random() > rate else "x" for word in line.split()) for line in REFERENCES]


def test_p_values_are_sacrebleus_paired_bootstrap():
    baseline, close, good = worse(0.3, 1), worse(0.29, 2), worse(0.1, 3)
    ours = paired_bootstrap(baseline, {"close": close, "good": good}, REFERENCES, samples=200)
    named = [("b", baseline), ("close", close), ("good", good)]
    _, theirs = PairedTest(named, {"BLEU": BLEU(), "CHRF": CHRF()}, [REFERENCES], test_type="bs", n_samples=200)()
    for row, name in ((1, "close"), (2, "good")):
        assert ours[name]["bleu"]["p_value"] == theirs["BLEU"][row].p_value
        assert ours[name]["chrf"]["p_value"] == theirs["chrF2"][row].p_value
    assert ours["good"]["bleu"]["p_value"] < 0.01 < ours["close"]["bleu"]["p_value"]
    expected = BLEU().corpus_score(good, [REFERENCES]).score - BLEU().corpus_score(baseline, [REFERENCES]).score
    assert ours["good"]["bleu"]["difference"] == pytest.approx(expected)


def test_the_baseline_against_itself_is_no_difference():
    baseline = worse(0.3, 1)
    result = paired_bootstrap(baseline, {"copy": list(baseline)}, REFERENCES, samples=50)["copy"]["bleu"]
    assert result == {"difference": 0.0, "p_value": 1.0}


def test_nothing_to_compare():
    assert paired_bootstrap(worse(0.3, 1), {}, REFERENCES) == {}


def test_other_segments_are_refused():
    with pytest.raises(UserError, match="short has 79 lines, the baseline 80"):
        paired_bootstrap(worse(0.3, 1), {"short": worse(0.3, 2)[:79]}, REFERENCES)


def test_different_signatures_are_refused_by_name():
    signatures = {"rnn": "case:mixed|tok:13a", "conv": "case:mixed|tok:13a", "outside": "case:lc|tok:none"}
    with pytest.raises(UserError, match=r"rnn has case:mixed\|tok:13a, but outside has case:lc\|tok:none"):
        require_same_signature(signatures)
    require_same_signature({"rnn": "tok:13a", "conv": "tok:13a"})
    require_same_signature({})


def test_mean_and_sample_deviation():
    assert mean_and_deviation([2.0, 4.0, 6.0]) == (4.0, 2.0)
    assert mean_and_deviation([3.5]) == (3.5, None)

"""Bootstrap intervals, scores by length, and retention, from the statistics of segments."""

import pytest
from random_texts import texts
from sacrebleu.metrics import BLEU, CHRF, TER

from seq2seq.evaluation.corpus_statistics import CorpusStatistics, retention
from seq2seq.evaluation.metrics import evaluate_texts
from seq2seq.evaluation.scorers import BleuScorer, ChrfScorer, TerScorer


@pytest.mark.parametrize(
    ("metric", "scorer"),
    [(BLEU(), BleuScorer()), (CHRF(), ChrfScorer()), (TER(), TerScorer()), (CHRF(word_order=2), ChrfScorer(False, 2))],
)
def test_interval_is_sacrebleus_own_bootstrap(metric, scorer, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    hypotheses, references, _ = texts()
    theirs = metric.corpus_score(hypotheses, [references], n_bootstrap=400)
    ours = CorpusStatistics(scorer, hypotheses, references).interval(None, samples=400, seed=12345)
    assert ours["score"] == theirs.score
    assert (ours["high"] - ours["low"]) / 2 == pytest.approx(theirs._ci, abs=1e-3)
    assert ours["low"] < ours["score"] < ours["high"]


def test_interval_narrows_with_more_segments_and_vanishes_for_identical_ones():
    few = CorpusStatistics(BleuScorer(), *texts(25)[:2]).interval(samples=200)
    many = CorpusStatistics(BleuScorer(), *texts(400)[:2]).interval(samples=200)
    assert many["high"] - many["low"] < (few["high"] - few["low"]) / 2
    same = CorpusStatistics(BleuScorer(), ["a b c d x"] * 30, ["a b c d e"] * 30).interval(samples=50)
    assert same["low"] == pytest.approx(same["score"]) == pytest.approx(same["high"])


def test_many_segments_draw_the_same_resamples_in_blocks(monkeypatch):
    hypotheses, references, _ = texts(30)
    statistics = CorpusStatistics(BleuScorer(), hypotheses, references)
    whole = statistics.interval(None, samples=100)
    block_of_three = 30 * 3

    import seq2seq.evaluation.bootstrap as bootstrap

    monkeypatch.setattr(bootstrap, "BLOCK", block_of_three)
    assert statistics.interval(None, samples=100) == whole


def test_buckets_hold_the_segments_of_their_length_and_score_them_alone():
    sources = ["w " * n for n in (1, 9, 10, 19, 20, 45, 60, 200)] + [""]
    references = [f"a b c d {i}" for i in range(len(sources))]
    hypotheses = ["a b c d 0", "a b c d 1", "a b c d 2", "x", "a b c d 4", "a b c d 5", "x", "x", "a b c d 8"]
    buckets = evaluate_texts(hypotheses, references, sources, samples=20)["by_length"]
    assert [(b["low"], b["high"], b["segments"]) for b in buckets] == [
        (1, 9, 3),
        (10, 19, 2),
        (20, 29, 1),
        (40, 49, 1),
        (60, None, 2),
    ]
    assert buckets[0]["bleu"]["score"] == pytest.approx(100)
    assert buckets[1]["bleu"]["score"] == BLEU().corpus_score(hypotheses[2:4], [references[2:4]]).score
    assert buckets[-1]["bleu"]["score"] == 0
    assert buckets[-1]["chrf"]["score"] == 0


def test_retention_is_long_bleu_over_short_bleu():
    sources = ["w " * 15] * 10 + ["w " * 40, "w " * 80] * 5
    references = ["a b c d e f g h"] * 20
    hypotheses = ["a b c d e f g h"] * 10 + ["a b c d x y z q"] * 10
    expected = BLEU().corpus_score(hypotheses[10:], [references[10:]]).score / 100
    kept = evaluate_texts(hypotheses, references, sources, samples=20)["retention"]
    assert kept["score"] == pytest.approx(expected)
    assert kept["low"] == pytest.approx(expected) == pytest.approx(kept["high"])


def test_retention_of_groups_is_resampled_with_both_their_lengths():
    """A long segment repeats a short one's errors: however the groups are drawn, little changes between the two."""
    hypotheses, references, _ = texts(40)
    sources = ["w " * 15] * 40 + ["w " * 40] * 40
    together = evaluate_texts(hypotheses * 2, references * 2, sources, samples=50, groups=[*range(40)] * 2)
    assert together["retention"] == {"score": 1.0, "low": 1.0, "high": 1.0}
    apart = evaluate_texts(hypotheses * 2, references * 2, sources, samples=50)
    assert apart["retention"]["low"] < 0.95 and "groups" not in apart["bootstrap"]
    assert together["bootstrap"]["groups"] == 40


def test_intervals_of_groups_are_those_of_their_originals():
    hypotheses, references, sources = texts(40)
    once = evaluate_texts(hypotheses, references, sources, samples=50)
    often = evaluate_texts(hypotheses * 3, references * 3, sources * 3, samples=50, groups=[*range(40)] * 3)
    for metric in ("bleu", "chrf", "ter"):
        assert often[metric] == pytest.approx(once[metric])
    for few, many in zip(once["by_length"], often["by_length"], strict=True):
        assert many["bleu"] == pytest.approx(few["bleu"])


def test_too_few_segments_have_no_interval():
    hypotheses, references, sources = texts(9)
    result = evaluate_texts(hypotheses, references, sources, samples=50)
    assert result["bleu"]["score"] > 0
    assert [result[name][bound] for name in ("bleu", "chrf", "ter") for bound in ("low", "high")] == [None] * 6
    result = evaluate_texts(hypotheses * 2, references * 2, ["w"] * 9 + ["w " * 30] * 9, samples=50)
    assert result["bleu"]["low"] is not None
    assert [bucket["bleu"]["low"] for bucket in result["by_length"]] == [None, None]


@pytest.mark.parametrize(("short", "long"), [(11, 9), (9, 11), (1, 1)])
@pytest.mark.parametrize("grouped", [False, True])
def test_retention_of_too_few_segments_has_no_interval(short, long, grouped):
    sources = ["w " * 15] * short + ["w " * 50] * long
    texts = ["a b c d e"] * len(sources)
    groups = [*range(len(sources))] if grouped else None
    kept = evaluate_texts(texts, texts, sources, samples=20, groups=groups)["retention"]
    assert kept == {"score": pytest.approx(1.0), "low": None, "high": None}


@pytest.mark.parametrize("lengths", [(15, 30), (45, 50), (5,)])
def test_retention_needs_short_and_long_sources(lengths):
    sources = ["w " * n for n in lengths]
    statistics = CorpusStatistics(BleuScorer(), sources, sources)
    assert retention(statistics, sources, samples=5) is None


def test_retention_of_a_system_that_gets_nothing_short_is_undefined():
    sources = ["w " * 15, "w " * 50]
    statistics = CorpusStatistics(BleuScorer(), ["x", "a b c d"], ["a b c d", "a b c d"])
    assert retention(statistics, sources, samples=5) is None

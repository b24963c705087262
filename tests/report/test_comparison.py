import json
import shlex
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from seq2seq.errors import UserError
from seq2seq.report.comparison import compare
from seq2seq.report.figures import figures
from seq2seq.report.headline import fairness, headline
from seq2seq.report.study import collect
from seq2seq.report.systems import without_common_start

SCORE = {"_target_": "seq2seq.attention.GeneralScore", "query_width": 256, "key_width": 256}


def luong(score: dict, width: int = 256) -> dict:
    return {"model": {"_target_": "seq2seq.models.create_luong", "width": width, "attention": {"score": score}}}


@pytest.fixture(scope="module")
def report(tmp_path_factory, make_run):
    root = tmp_path_factory.mktemp("study")
    for model, seed in (("rnn", 1), ("transformer", 1), ("transformer", 2), ("bahdanau", 1)):
        make_run(root / f"{model}-grammar-seed{seed}", model, seed, 36, splits=("test", "test_2017"))
    study = collect(root)
    return compare(study), study


def by_name(report: dict) -> dict:
    return {system["name"]: system for system in report["systems"]}


def test_systems_are_named_shortly_and_ordered_by_bleu(report):
    names = [system["name"] for system in report[0]["systems"]]
    assert sorted(names) == ["bahdanau", "rnn", "transformer"]
    scores = [system["bleu"]["score"] for system in report[0]["systems"]]
    assert scores == sorted(scores, reverse=True)
    assert report[0]["title"] == "grammar en→de, test"
    assert len({system["color"] for system in report[0]["systems"]}) == 3


def test_scores_are_the_runs_own_and_seeds_are_averaged(report):
    values, study = report
    runs = {run.name: run.metrics["splits"]["test"]["bleu"]["score"] for run in study.results}
    systems = by_name(values)
    assert systems["rnn"]["bleu"]["score"] == runs["rnn-grammar-seed1"]
    assert systems["rnn"]["bleu"]["deviation"] is None
    one, two = runs["transformer-grammar-seed1"], runs["transformer-grammar-seed2"]
    assert systems["transformer"]["bleu"]["score"] == pytest.approx((one + two) / 2)
    assert systems["transformer"]["bleu"]["deviation"] == pytest.approx(abs(one - two) / 2**0.5)
    assert systems["transformer"]["seeds"] == [1, 2]
    lengths = [bucket["low"] for bucket in systems["transformer"]["by_length"]]
    assert lengths == [1, 10, 20, 30, 40, 50, 60]


def test_the_fixed_context_model_is_the_baseline_and_the_others_are_tested_against_it(report):
    systems = by_name(report[0])
    assert report[0]["baseline"] == "rnn"
    assert systems["rnn"]["tests"] is None
    assert systems["transformer"]["tests"]["bleu"]["p_value"] < 0.01


def test_headline_and_fairness_follow_from_the_scores(report):
    assert "more than rnn (p < 0.001)" in headline(report[0])
    systems = by_name(long := deepcopy(report[0]))
    for bucket in long["systems"][0]["by_length"]:
        bucket["segments"] *= 3
    lost, kept = systems["rnn"]["retention"]["score"], long["systems"][0]["retention"]["score"]
    assert "more than rnn" in headline(long)
    systems["rnn"]["retention"] |= {"low": lost - 0.1, "high": lost + 0.1}
    long["systems"][0]["retention"] |= {"low": kept - 0.1, "high": kept + 0.1}
    assert f"rnn keeps {lost:.0%} of its BLEU" in headline(long)
    assert f"keeps {kept:.0%}." in headline(long)
    systems["rnn"]["retention"]["high"] = kept - 0.1
    assert "more than rnn" in headline(long)
    for entry in (poor := deepcopy(report[0]))["systems"]:
        entry["bleu"]["score"] = 0.04
    assert (
        headline(poor)
        == f"No system has learned to translate: the best, {poor['systems'][0]['name']}, reaches 0.0 BLEU."
    )
    lines = fairness(report[0])
    assert "Updates: 3k for all." in lines
    assert any(line.startswith("Parameters: 2.67M to 3.39M, the largest 27%") for line in lines)


def test_the_headline_says_the_p_value_of_a_top_system_that_is_the_baseline(report):
    values = compare(report[1], baseline=report[0]["systems"][0]["name"])
    second = values["systems"][1]
    p_value = second["tests"]["bleu"]["p_value"]
    p = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"
    assert headline(values).endswith(f"more than {second['name']} ({p}).")


def test_a_share_of_the_best_compares_systems_at_one_length(report):
    systems = by_name(report[0])
    for place in range(7):
        buckets = {name: system["by_length"][place] for name, system in systems.items()}
        best = max(bucket["bleu"]["score"] for bucket in buckets.values())
        for bucket in buckets.values():
            assert bucket["share_of_best"] == pytest.approx(bucket["bleu"]["score"] / best)
    assert systems["rnn"]["by_length"][-1]["share_of_best"] < 0.6
    assert figures(report[0])["bleu-share-by-length"].series[-1].points[-1].y == pytest.approx(100)


def test_a_single_system_has_no_share_of_the_best(tmp_path, make_run):
    make_run(tmp_path / "conv", "conv", segments=12)
    report = compare(collect(tmp_path))
    assert {bucket["share_of_best"] for bucket in report["systems"][0]["by_length"]} == {None}
    assert "bleu-share-by-length" not in figures(report)


def test_length_losses_are_those_of_sentence_chrf_averaged_over_seeds(report):
    values, study = report
    losses = values["length_losses"]
    assert (losses["metric"], losses["unit"], losses["step"], losses["clusters"]) == ("chrf", "words", 10, 36)
    runs = {result.name: result.texts["test"] for result in study.results}
    slopes = []
    for seed in (1, 2):
        texts = runs[f"transformer-grammar-seed{seed}"]
        scores = [CHRF().sentence_score(h, [r]).score for h, r in zip(texts.hypotheses, texts.references, strict=True)]
        slopes.append(-10 * np.polyfit([len(line.split()) for line in texts.sources], scores, 1)[0])
    found = losses["systems"]["transformer"]["loss"]
    assert found["score"] == pytest.approx(np.mean(slopes))
    assert found["deviation"] == pytest.approx(np.std(slopes, ddof=1))
    assert found["low"] < found["score"] < found["high"]
    rnn, difference = losses["systems"]["rnn"], losses["systems"]["transformer"]["difference"]
    assert rnn["difference"] is None and rnn["loss"]["deviation"] is None
    assert difference["score"] == pytest.approx(found["score"] - rnn["loss"]["score"])
    assert difference["high"] < 0


def test_length_losses_are_clustered_by_the_groups_of_segments(tmp_path, make_run):
    for model in ("rnn", "conv"):
        make_run(tmp_path / model, model, segments=36)
    independent = compare(collect(tmp_path))["length_losses"]
    for model in ("rnn", "conv"):
        (tmp_path / model / "test.groups.json").write_text(json.dumps([row // 3 for row in range(36)]))
    grouped = compare(collect(tmp_path))["length_losses"]
    assert (independent["clusters"], grouped["clusters"]) == (36, 12)
    one, other = (each["systems"]["rnn"]["loss"] for each in (independent, grouped))
    assert one["score"] == pytest.approx(other["score"]) and one["low"] != pytest.approx(other["low"])


def test_comparison_holds_words_ngrams_sentences_attention_and_recipes(report):
    values, study = report
    assert values["words"]["counted_in"] == "training"
    assert [pair["system"] for pair in values["ngrams"]] == [s["name"] for s in values["systems"] if s["name"] != "rnn"]
    assert [other["split"] for other in values["other_splits"]] == ["test_2017"]
    assert len(values["sentences"]["rows"]) == 36
    assert values["sentences"]["systems"]["rnn"]["hypotheses"] == study.results[1].texts["test"].hypotheses
    assert set(values["attention"][0]["systems"]) == {"bahdanau", "transformer"}
    assert [event["update"] for event in values["training"]["rnn"]] == sorted(range(50, 3001, 50))
    assert len(values["reproduce"]) == 4
    json.dumps(values, allow_nan=False)


def test_baseline_and_split_can_be_chosen(tmp_path, make_run):
    make_run(tmp_path / "rnn-grammar-seed1", "rnn", segments=15, splits=("test", "test_2017"))
    make_run(tmp_path / "conv-grammar-seed1", "conv", segments=15, splits=("test", "test_2017"))
    study = collect(tmp_path)
    report = compare(study, baseline="conv", split="test_2017")
    assert (report["baseline"], report["split"]) == ("conv", "test_2017")
    assert compare(study, baseline="conv-grammar-seed1")["baseline"] == "conv"
    with pytest.raises(UserError, match=r"'cnov' is not one of the compared systems.*rnn"):
        compare(study, baseline="cnov")
    with pytest.raises(UserError, match="'valid'; all have: test, test_2017"):
        compare(study, split="valid")


def test_different_signatures_are_refused(tmp_path, make_run):
    make_run(tmp_path / "rnn", "rnn", segments=5)
    make_run(tmp_path / "conv", "conv", segments=5, tokenize="none")
    with pytest.raises(UserError, match=r"different signatures.*conv.*tok:none.*rnn.*tok:13a"):
        compare(collect(tmp_path))


def test_different_test_sets_are_refused(tmp_path, make_run):
    make_run(tmp_path / "rnn", "rnn", segments=5)
    make_run(tmp_path / "conv", "conv", segments=5, test_seed=9)
    with pytest.raises(UserError, match="conv and rnn were scored on different references"):
        compare(collect(tmp_path))
    (tmp_path / "rnn" / "metrics.json").write_text(
        (tmp_path / "rnn" / "metrics.json").read_text().replace('"splits": {"test"', '"splits": {"other"')
    )
    with pytest.raises(UserError, match="no test set was scored by every run"):
        compare(collect(tmp_path))


def test_other_test_sets_whose_texts_differ_are_left_out(tmp_path, make_run):
    for model in ("rnn", "conv"):
        make_run(tmp_path / model, model, segments=6, splits=("test", "test_2017", "test_joined"))
    path = tmp_path / "conv" / "test_joined.src.txt"
    path.write_text("another text\n" + path.read_text().split("\n", 1)[1])
    report = compare(collect(tmp_path), split="test")
    assert [other["split"] for other in report["other_splits"]] == ["test_2017"]
    reason = "conv and rnn were scored on different sources for 'test_joined'"
    assert report["notes"] == [f"test_joined was left out: {reason}"]
    with pytest.raises(UserError, match=f"{reason} and cannot be compared"):
        compare(collect(tmp_path))


def as_written_by_0_1(folder: Path) -> None:
    """Take out of metrics.json what version 0.1.0 did not write."""
    metrics = json.loads((folder / "metrics.json").read_text())
    for scores in metrics["splits"].values():
        scores.pop("units")
        for bucket in scores["by_length"]:
            bucket.pop("length_ratio")
            bucket.pop("ter")
    (folder / "metrics.json").write_text(json.dumps(metrics))


def test_values_that_a_run_of_0_1_lacks_are_computed_from_its_texts(tmp_path, make_run):
    for model in ("rnn", "conv"):
        make_run(tmp_path / model, model, segments=30)
    expected = by_name(compare(collect(tmp_path)))["conv"]
    as_written_by_0_1(tmp_path / "conv")
    metrics = json.loads((tmp_path / "conv" / "metrics.json").read_text())
    del metrics["splits"]["test"]["chrf"]
    (tmp_path / "conv" / "metrics.json").write_text(json.dumps(metrics))
    report = compare(collect(tmp_path))
    found = by_name(report)["conv"]
    assert found["chrf"] == expected["chrf"]
    for own, other in zip(found["by_length"], expected["by_length"], strict=True):
        assert own["length_ratio"] == other["length_ratio"] and own["chrf"] == other["chrf"]
    assert report["notes"] == ["chrF of conv: computed now, from the texts"]
    (tmp_path / "conv" / "test.hyp.txt").unlink()
    without = by_name(compare(collect(tmp_path)))
    assert without["conv"]["chrf"] is None and without["rnn"]["chrf"]["score"] > 0


def test_chinese_sources_of_a_run_of_0_1_are_counted_in_characters(tmp_path, make_run):
    folder = make_run(tmp_path / "conv", "conv", segments=6)
    (folder / "test.src.txt").write_text("一二三四五六七八九十一二三四五六七八九十一二三四五六七八九十。\n" * 6)
    as_written_by_0_1(folder)
    report = compare(collect(tmp_path))
    assert report["units"] == {"source": "characters", "target": "words"}
    assert [(b["low"], b["high"], b["segments"]) for b in report["systems"][0]["by_length"]] == [(20, 39, 6)]
    assert report["notes"] == ["scores by length of conv: computed now, from the texts"]


def test_a_command_is_given_for_runs_that_kept_none(tmp_path, make_run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(Path("my runs") / "rnn-seed1", "rnn", segments=5)
    config = {"checkpoint": "big", "model": {"width": 8, "dropout": 0.1, "word_dropout": 0.2}}
    make_run(Path("my runs") / "tuned-seed1", "conv", segments=5, config=config)
    plain, tuned = (shlex.split(each["command"]) for each in compare(collect("my runs"))["reproduce"])
    assert plain == [
        *("seq2seq", "train", "--config-path", str(tmp_path / "my runs" / "rnn-seed1"), "--config-name", "config"),
        *("run_dir=NEW", "hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=none"),
        "hydra/hydra_logging=none",
    ]
    assert {"model.dropout=0.1", "model.word_dropout=0.2"} < set(tuned)


def test_seeds_are_averaged_wherever_they_stand_in_the_name(tmp_path, make_run):
    for name in ("files-seed{}-from-big-seed1", "rnn-grammar-seed{}-optimizer.lr=0.1", "deep/seed{}", "seed{}0-x"):
        for seed in (1, 2):
            make_run(tmp_path / name.format(seed), "rnn", seed, segments=5)
    names = set(by_name(compare(collect(tmp_path))))
    assert names == {"files-from-big-seed1", "rnn-grammar-optimizer.lr=0.1", "deep", "seed10-x", "seed20-x"}


def test_names_lose_the_words_that_all_begin_with(tmp_path, make_run):
    for model in ("rnn", "luong"):
        make_run(tmp_path / f"multi30k_tok_{model}-seed1", model, segments=5)
    make_run(tmp_path / "multi30k_tok_luong_local-seed1", "luong", 2, segments=5)
    assert set(by_name(compare(collect(tmp_path)))) == {"rnn", "luong", "luong_local"}
    assert without_common_start(["a_b", "a_b_c"]) == ["b", "b_c"]
    assert without_common_start(["alone_x"]) == ["alone_x"]
    assert without_common_start(["ab", "ac"]) == ["ab", "ac"]


def test_comet_is_compared_only_with_the_same_model(tmp_path, make_run):
    for model, signature in (("rnn", "comet:a"), ("conv", "comet:b")):
        folder = make_run(tmp_path / model, model, segments=5)
        metrics = json.loads((folder / "metrics.json").read_text())
        metrics["splits"]["test"]["comet"] = {"score": 0.5, "low": 0.4, "high": 0.6, "signature": signature}
        (folder / "metrics.json").write_text(json.dumps(metrics))
    with pytest.raises(UserError, match=r"different signatures.*conv has comet:b.*rnn has comet:a"):
        compare(collect(tmp_path))


def test_external_systems_are_scored_with_the_runs_settings(tmp_path, make_run):
    folder = make_run(tmp_path / "rnn", "rnn", segments=8, tokenize="none")
    references = (folder / "test.ref.txt").read_text(encoding="utf-8").splitlines()
    theirs = [line.replace("Hund", "Katze") for line in references]
    (tmp_path / "online.hyp.txt").write_text("\n".join(theirs) + "\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("not a translation\n", encoding="utf-8")
    report = compare(collect(tmp_path))
    online = by_name(report)["online"]
    expected = BLEU(tokenize="none", force=True).corpus_score(theirs, [references]).score
    assert online["bleu"]["score"] == pytest.approx(expected)
    assert online["external"] and online["parameters"] is None
    assert "notes was left out: 1 lines, but test has 8 segments" in report["notes"]


def test_external_systems_alone_can_be_compared(tmp_path):
    (tmp_path / "wmt.src.txt").write_text("a b c\nd e f\n")
    (tmp_path / "wmt.ref.txt").write_text("x y z w\nu v w x\n")
    (tmp_path / "one.hyp.txt").write_text("x y z w\nu v w x\n")
    (tmp_path / "two.hyp.txt").write_text("x y z q\nu v w q\n")
    report = compare(collect(tmp_path))
    assert report["split"] == "wmt"
    assert [system["name"] for system in report["systems"]] == ["one", "two"]
    assert report["systems"][0]["bleu"]["score"] == pytest.approx(100)
    assert report["baseline"] == "two"


def test_runs_without_texts_still_give_their_scores(tmp_path, make_run):
    for model in ("rnn", "conv"):
        folder = make_run(tmp_path / model, model, segments=10)
        for kind in ("hyp", "src", "ref"):
            (folder / f"test.{kind}.txt").unlink()
    report = compare(collect(tmp_path))
    assert len(report["systems"]) == 2
    assert report["sentences"] is None and report["words"] is None and report["ngrams"] == []
    assert all(system["tests"] is None for system in report["systems"])


def test_effects_are_pairs_that_differ_in_one_setting(tmp_path, make_run):
    additive = {"_target_": "seq2seq.attention.AdditiveScore", "width": 256}
    make_run(tmp_path / "general", "luong", 1, segments=12, config=luong(SCORE))
    make_run(tmp_path / "additive", "luong", 2, segments=12, config=luong(additive))
    make_run(tmp_path / "narrow-additive", "luong", 3, segments=12, config=luong(additive, width=128))
    report = compare(collect(tmp_path))
    effects = {effect["setting"]: effect for effect in report["effects"]}
    assert set(effects) == {"model.attention.score", "model.width"}
    score = effects["model.attention.score"]
    assert {score["first_value"], score["second_value"]} == {"AdditiveScore", "GeneralScore"}
    systems = by_name(report)
    expected = systems[score["second"]]["bleu"]["score"] - systems[score["first"]]["bleu"]["score"]
    assert score["difference"] == pytest.approx(expected)
    assert 0 < score["p_value"] <= 1

"""Runs grouped into systems by seed, and the tests of systems against each other."""

import json
from pathlib import Path

import pytest

from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import evaluate_texts
from seq2seq.report.comparison import compare
from seq2seq.report.effects import _over_seeds
from seq2seq.report.study import collect


def by_name(report: dict) -> dict:
    return {system["name"]: system for system in report["systems"]}


def luong(width: int) -> dict:
    return {"model": {"_target_": "seq2seq.models.create_luong", "width": width}}


def score_as(folder: Path, hypotheses: list[str], groups: list[int] | None = None, split: str = "test") -> None:
    """Give the run these translations."""
    metrics = json.loads((folder / "metrics.json").read_text())
    references, sources = (
        (folder / f"{split}.{kind}.txt").read_text(encoding="utf-8").splitlines() for kind in ("ref", "src")
    )
    metrics["splits"][split] |= evaluate_texts(hypotheses, references, sources, samples=40, groups=groups)
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / f"{split}.hyp.txt").write_text("\n".join(hypotheses) + "\n", encoding="utf-8")
    if groups is not None:
        (folder / f"{split}.groups.json").write_text(json.dumps(groups))


def outputs(folder: Path, split: str = "test") -> list[str]:
    return (folder / f"{split}.hyp.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
def test_runs_of_one_seed_are_tested_and_must_agree_on_the_sign(tmp_path, make_run):
    """conv is better than luong with one seed and worse with the other, rnn the same as luong with the one seed that
    both have."""
    for name, seed in (("luong", 1), ("luong", 2), ("conv", 2), ("conv", 1), ("rnn", 2), ("rnn", 3)):
        make_run(tmp_path / f"{name}-seed{seed}", name, seed, segments=20)
    good, poor = outputs(tmp_path / "conv-seed1"), outputs(tmp_path / "rnn-seed3")
    score_as(tmp_path / "luong-seed1", good)
    score_as(tmp_path / "luong-seed2", poor)
    score_as(tmp_path / "conv-seed1", poor)
    score_as(tmp_path / "conv-seed2", good)
    score_as(tmp_path / "rnn-seed2", poor)
    systems = by_name(compare(collect(tmp_path), baseline="luong"))
    conv, rnn = systems["conv"]["tests"], systems["rnn"]["tests"]
    assert (conv["bleu"]["p_value"], conv["chrf"]["p_value"]) == (1.0, 1.0)
    difference = conv["bleu"]["difference"]
    assert difference["score"] == pytest.approx(0) and difference["deviation"] > 1
    assert difference["low"] == pytest.approx(-difference["high"], rel=0.5)
    assert rnn["bleu"]["difference"] == {"score": 0.0, "deviation": None, "low": 0.0, "high": 0.0}
    assert rnn["bleu"]["p_value"] == 1.0
    assert systems["luong"]["tests"] is None


def test_the_largest_p_value_is_that_of_each_metric():
    tests = [{"difference": 1.0, "low": 0.5, "high": 1.5, "p_value": p} for p in (0.2, 0.04)]
    assert _over_seeds(tests)["p_value"] == 0.2
    assert _over_seeds([*tests, {"difference": 1.0, "low": None, "high": None, "p_value": None}])["p_value"] is None


def test_runs_with_other_settings_are_no_seeds(tmp_path, make_run):
    for seed, width in ((1, 256), (2, 128), (3, 256)):
        make_run(tmp_path / f"luong-seed{seed}", "luong", seed, segments=10, config=luong(width))
    make_run(tmp_path / "rnn-seed1", "rnn", 1, segments=10, config={"checkpoint": "runs/a-seed1", "data": {"seed": 1}})
    later = {"checkpoint": "runs/a-seed2", "data": {"seed": 2, "younger": 3}, "trainer": {"threads": 4}}
    make_run(tmp_path / "rnn-seed2", "rnn", 2, segments=10, config=later)
    report = compare(collect(tmp_path))
    assert {name: system["seeds"] for name, system in by_name(report).items()} == {
        "luong (model.width=256)": [1, 3],
        "luong (model.width=128)": [2],
        "rnn": [1, 2],
    }
    assert report["notes"] == [
        "luong: its runs differ in more than their seed and are not averaged: luong (model.width=256), "
        "luong (model.width=128)"
    ]


def test_runs_trained_on_more_are_no_seeds(tmp_path, make_run):
    for seed, size in ((1, 1000), (2, 2000)):
        folder = make_run(tmp_path / f"rnn-seed{seed}", "rnn", seed, segments=10)
        metrics = json.loads((folder / "metrics.json").read_text())
        (folder / "metrics.json").write_text(json.dumps({**metrics, "sizes": {"train": size, "valid": 10}}))
    assert set(by_name(compare(collect(tmp_path)))) == {"rnn (training segments=1000)", "rnn (training segments=2000)"}


def test_the_baseline_is_the_lowest_mean_and_beams_are_averaged(tmp_path, make_run):
    folders = {
        (name, seed): make_run(tmp_path / f"{name}-seed{seed}", name, seed, segments=12)
        for name, seed in (("luong", 1), ("luong", 2), ("conv", 1))
    }
    references = (folders["conv", 1] / "test.ref.txt").read_text(encoding="utf-8").splitlines()
    score_as(folders["luong", 1], references)
    score_as(folders["luong", 2], ["x"] * 12)
    for seed, length in ((1, 1.3), (2, 0.7)):
        metrics = json.loads((folders["luong", seed] / "metrics.json").read_text())
        beam = {"beam_size": 5, "bleu": {"score": 30.0}, "length_ratio": length, "sentences_per_second": 100.0 * seed}
        metrics["splits"]["test"]["by_beam_size"] = [beam]
        (folders["luong", seed] / "metrics.json").write_text(json.dumps(metrics))
    report = compare(collect(tmp_path))
    assert report["baseline"] == "luong"
    [beam] = by_name(report)["luong"]["by_beam_size"]
    assert (beam["length_ratio"], beam["sentences_per_second"]) == (pytest.approx(1.0), pytest.approx(150.0))


@pytest.mark.slow
def test_segments_of_a_joined_set_are_drawn_in_groups(tmp_path, make_run):
    for model in ("rnn", "conv"):
        make_run(tmp_path / model, model, segments=20, splits=("test_joined",))
    report = compare(collect(tmp_path))
    assert by_name(report)["conv"]["tests"]["bleu"]["p_value"] is not None
    [note] = report["notes"]
    assert note.startswith("test_joined: the intervals of conv, rnn are too narrow and p-values too small, as segments")
    conv = outputs(tmp_path / "conv", "test_joined")
    score_as(tmp_path / "conv", conv, [row // 4 for row in range(20)], "test_joined")
    (tmp_path / "online.hyp.txt").write_text("\n".join(conv) + "\n", encoding="utf-8")
    report = compare(collect(tmp_path))
    systems = by_name(report)
    assert systems["conv"]["tests"]["bleu"]["p_value"] is None and "low" not in systems["online"]["bleu"]
    [note] = report["notes"]
    assert note.startswith("test_joined: the intervals of rnn are too narrow, as segments")
    (tmp_path / "conv" / "test_joined.groups.json").write_text("[0]")
    with pytest.raises(UserError, match=r"test_joined\.groups\.json has 1 groups, test_joined 20 segments\n"):
        compare(collect(tmp_path))


def name_system(folder: Path, **values: object) -> None:
    """Let metrics.json say its own system, as runs since version 0.2 do."""
    metrics = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps({"format": 2, "study": None, **metrics, **values}))


def test_runs_of_one_system_are_averaged_whatever_their_folders_are_called(tmp_path, make_run):
    for place, seed in (("a/first", 1), ("b/second", 2)):
        name_system(make_run(tmp_path / place, "conv", seed, segments=12), system="conv")
    name_system(make_run(tmp_path / "conv-seed3", "conv", 3, segments=12), system="other")
    systems = by_name(compare(collect(tmp_path)))
    assert {name: system["seeds"] for name, system in systems.items()} == {"conv": [1, 2], "other": [3]}


def test_one_seed_trained_twice_gives_two_systems(tmp_path, make_run):
    for place in ("before", "after"):
        name_system(make_run(tmp_path / place / "conv-seed1", "conv", 1, segments=12), system="conv")
    assert set(by_name(compare(collect(tmp_path)))) == {"before/conv", "after/conv"}
    for number in ("0", "1"):
        name_system(make_run(tmp_path / "sweep" / number, "conv", 1, segments=12), system="conv")
    assert set(by_name(compare(collect(tmp_path / "sweep")))) == {"0", "1"}

import json
from pathlib import Path

import pytest

from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import evaluate_texts
from seq2seq.evaluation.signatures import text_settings
from seq2seq.report.study import collect


def test_finished_runs_are_found_at_any_depth_and_bundles_are_not_runs(tmp_path, make_run):
    make_run(tmp_path / "rnn-grammar-seed1", "rnn", segments=5)
    make_run(tmp_path / "sweep" / "0", "conv", segments=5)
    bundle = tmp_path / "rnn-grammar-seed1" / "bundle"
    bundle.mkdir()
    (bundle / "config.yaml").write_text("model: {}")
    study = collect(tmp_path)
    assert [run.name for run in study.results] == ["rnn-grammar-seed1", "sweep/0"]
    assert study.notes == []
    run = study.results[0]
    assert (run.model, len(run.texts["test"].hypotheses), len(run.history)) == ("rnn", 5, 60)
    assert run.attention == {} and len(study.results[1].attention["test"]) == 4


def test_linked_runs_are_found_once_and_circles_end(tmp_path, make_run):
    make_run(tmp_path / "elsewhere" / "rnn", "rnn", segments=5)
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "a").symlink_to(tmp_path / "elsewhere" / "rnn")
    (folder / "circle").symlink_to(folder)
    assert [run.name for run in collect(folder).results] == ["a"]
    make_run(folder / "deep" / "conv", "conv", segments=5)
    (folder / "best").symlink_to(folder / "deep" / "conv")
    assert [run.name for run in collect(folder).results] == ["a", "deep/conv"]


def test_external_systems_of_one_name_are_kept_apart(tmp_path, make_run):
    for name in ("one", "two"):
        make_run(tmp_path / name / "rnn", "rnn", segments=5)
        (tmp_path / name / "other.txt").write_text(f"{name}\n" * 5)
    study = collect([tmp_path / "one", tmp_path / "two"])
    assert study.outside == {"other": ["one"] * 5, str(tmp_path / "two" / "other.txt"): ["two"] * 5}


def test_a_run_folder_itself_can_be_given(tmp_path, make_run):
    folder = make_run(tmp_path / "conv-grammar-seed1", "conv", segments=5)
    assert [run.name for run in collect(folder).results] == ["conv-grammar-seed1"]
    other = make_run(tmp_path / "b" / "conv-grammar-seed1", "conv", seed=2, segments=5)
    assert [run.name for run in collect([folder, other]).results] == [str(folder), str(other)]


def test_unfinished_and_damaged_runs_become_notes(tmp_path, make_run):
    make_run(tmp_path / "good", "conv", segments=5)
    for name in ("unfinished", "damaged", "unscored"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("seed: 1")
    (tmp_path / "damaged" / "metrics.json").write_text('{"splits": ')
    (tmp_path / "unscored" / "metrics.json").write_text('{"training": {}, "splits": {}}')
    study = collect(tmp_path)
    assert [run.name for run in study.results] == ["good"]
    notes = "\n".join(study.notes)
    assert "unfinished is unfinished (no metrics.json)" in notes
    assert "damaged was left out: " in notes and "metrics.json is damaged" in notes
    assert "unscored has no scores" in notes


@pytest.mark.parametrize(
    ("lost", "note"),
    [
        ("test.hyp.txt", "has no test.hyp.txt"),
        ("history.jsonl", "has no history.jsonl"),
        ("config.yaml", "config.yaml cannot be read"),
    ],
)
def test_a_missing_file_is_named(tmp_path, make_run, lost, note):
    folder = make_run(tmp_path / "conv", "conv", segments=5)
    (folder / lost).unlink()
    study = collect(tmp_path)
    assert len(study.results) == 1
    assert len(study.notes) == 1
    assert note in study.notes[0]


def test_texts_that_are_not_those_that_were_scored_are_left_unread(tmp_path, make_run):
    folder = make_run(tmp_path / "conv", "conv", segments=5)
    sure = collect(tmp_path).results[0].metrics["splits"]["test"]["bleu"]["score"]
    (folder / "test.hyp.txt").write_text((folder / "test.ref.txt").read_text())
    study = collect(tmp_path)
    assert study.results[0].texts == {} and study.results[0].attention == {}
    assert study.notes[0].startswith(f"conv: metrics.json says BLEU {sure:.2f}, its texts have 100.00: test.hyp.txt")


def test_references_that_are_all_empty_are_noted(tmp_path, make_run):
    folder = make_run(tmp_path / "conv", "conv", segments=2)
    scores = evaluate_texts(["a b", "c"], ["", ""], ["x", "y"], samples=5)
    for kind, text in (("src", "x\ny\n"), ("ref", "\n\n"), ("hyp", "a b\nc\n")):
        (folder / f"test.{kind}.txt").write_text(text)
    (folder / "metrics.json").write_text(json.dumps({"training": {}, "splits": {"test": scores}}))
    note = "conv: every reference of test is empty, so that its scores and lengths mean nothing"
    assert collect(tmp_path).notes == [note]


def test_settings_of_a_signature():
    assert text_settings("nrefs:1|case:lc|eff:no|tok:none") == {"tokenize": "none", "lowercase": True}
    assert text_settings("case:mixed|tok:ja-mecab-0.996-IPA") == {"tokenize": "ja-mecab", "lowercase": False}


def test_a_history_cut_short_keeps_its_whole_lines(tmp_path, make_run):
    folder = make_run(tmp_path / "conv", "conv", segments=5)
    with (folder / "history.jsonl").open("a") as stream:
        stream.write('{"update": 3050, "trai')
    study = collect(tmp_path)
    assert len(study.results[0].history) == 60
    assert "line 61 of history.jsonl" in study.notes[0]


def test_not_a_number_is_read_as_missing(tmp_path, make_run):
    folder = make_run(tmp_path / "conv", "conv", segments=5)
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["splits"]["test"]["perplexity"] = float("inf")
    (folder / "metrics.json").write_text(json.dumps(metrics))
    assert collect(tmp_path).results[0].metrics["splits"]["test"]["perplexity"] is None


def test_hypothesis_files_beside_the_runs(tmp_path, make_run):
    make_run(tmp_path / "conv", "conv", segments=3)
    (tmp_path / "online.hyp.txt").write_text("a\n\nc\n")
    (tmp_path / "other.txt").write_text("a\nb\nc")
    named = tmp_path / "elsewhere.out"
    named.write_text("x\ny\nz\n")
    study = collect(tmp_path, {"named": named})
    assert study.outside == {"online": ["a", "", "c"], "other": ["a", "b", "c"], "named": ["x", "y", "z"]}


def test_hypotheses_in_json_lines_are_their_texts(tmp_path, make_run):
    make_run(tmp_path / "conv", "conv", segments=2)
    path = tmp_path / "out.jsonl"
    path.write_text('{"line": 1, "text": "a b", "tokens": []}\n{"line": 2, "text": "", "tokens": []}\n')
    assert collect(tmp_path, {"mine": path}).outside == {"mine": ["a b", ""]}


@pytest.mark.parametrize("kind", ["missing", "empty"])
def test_nothing_to_compare_is_an_error(tmp_path, kind):
    folder = tmp_path / kind
    if kind == "empty":
        folder.mkdir()
    with pytest.raises(UserError, match="is not a folder" if kind == "missing" else "no finished run"):
        collect(folder)


def test_a_missing_or_undecodable_hypothesis_file_is_named(tmp_path, make_run):
    make_run(tmp_path / "conv", "conv", segments=3)
    with pytest.raises(UserError, match=r"hypothesis file of mine is not there: .*nowhere"):
        collect(tmp_path, {"mine": tmp_path / "nowhere"})
    stray = tmp_path / "latin.txt"
    stray.write_bytes(b"fine\ngr\xfcn\n")
    with pytest.raises(UserError, match=r"latin.txt, line 2: not valid UTF-8"):
        collect(tmp_path, {"mine": stray})
    study = collect(tmp_path)
    assert study.notes == [f"latin was left out: {stray}, line 2: not valid UTF-8."]
    assert study.outside == {} and len(study.results) == 1


def test_lines_end_where_ours_end(tmp_path: Path) -> None:
    for name in ("test.src.txt", "test.ref.txt"):
        (tmp_path / name).write_bytes(b"one\n")
    (tmp_path / "other.hyp.txt").write_bytes(b"\xef\xbb\xbfa\rb\xe2\x80\xa8c\r\n")
    assert collect(tmp_path).outside == {"other": ["a\rb\u2028c"]}

"""`seq2seq report` and `seq2seq evaluate` on what must not be compared, as a person meets them."""

import json
from pathlib import Path

import pytest

from seq2seq.cli import run


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run([*arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("error: ") and len(printed.err.splitlines()) <= 2
    return printed.err


def test_runs_on_different_test_sets_are_refused(tmp_path, make_run, capsys):
    make_run(tmp_path / "rnn", "rnn", segments=5)
    make_run(tmp_path / "conv", "conv", segments=5, test_seed=7)
    assert "conv and rnn were scored on different references" in refusal(capsys, "report", f"runs={tmp_path}")


def test_runs_of_different_data_are_refused(tmp_path, make_run, capsys):
    make_run(tmp_path / "rnn-grammar", "rnn", segments=5)
    make_run(tmp_path / "conv-multi30k", "conv", segments=4, data="multi30k", test_seed=9)
    told = refusal(capsys, "report", f"runs={tmp_path}")
    assert "conv-multi30k and rnn-grammar were scored on different references" in told
    make_run(tmp_path / "luong-multi30k", "luong", segments=4, data="multi30k", splits=["test_2017"])
    assert "no test set was scored by every run" in refusal(capsys, "report", f"runs={tmp_path}")


def test_different_signatures_are_refused(tmp_path, make_run, capsys):
    make_run(tmp_path / "rnn", "rnn", segments=5)
    make_run(tmp_path / "conv", "conv", segments=5, tokenize="none")
    told = refusal(capsys, "report", f"runs={tmp_path}")
    assert "different signatures" in told and "tok:none" in told and "tok:13a" in told
    assert not (tmp_path / "report.html").exists()


def test_runs_without_texts_need_as_many_segments(tmp_path, make_run, capsys):
    make_run(tmp_path / "rnn", "rnn", segments=5)
    other = make_run(tmp_path / "conv", "conv", segments=4)
    (other / "test.hyp.txt").unlink()
    told = refusal(capsys, "report", f"runs={tmp_path}")
    assert "conv and rnn were scored on 4 and 5 segments of 'test' and cannot be compared" in told


def test_the_texts_of_a_scored_run_are_not_overwritten(tmp_path, make_run, capsys):
    folder = make_run(tmp_path / "rnn", "rnn", segments=5)
    before = (folder / "test.hyp.txt").read_text()
    told = refusal(capsys, "evaluate", f"checkpoint={folder}", "search=greedy", f"output={folder}")
    assert f"output={folder} is the folder of a run" in told and f"output={folder / 'evaluation'}" in told
    assert (folder / "test.hyp.txt").read_text() == before and not (folder / "scores.json").exists()


def test_a_run_that_was_cut_short_is_left_out_and_named(tmp_path, make_run, capsys):
    make_run(tmp_path / "rnn", "rnn", segments=5)
    hurt = make_run(tmp_path / "conv", "conv", segments=5) / "metrics.json"
    hurt.write_text(hurt.read_text()[:200])
    assert run(["report", f"runs={tmp_path}"]) == 0
    assert "note: conv was left out: " in (told := capsys.readouterr().err) and "metrics.json is damaged" in told
    assert [each["name"] for each in json.loads((tmp_path / "report.json").read_text())["systems"]] == ["rnn"]


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 4], ids=["empty", "a line short"])
def test_a_hypothesis_file_cut_short_is_not_scored(tmp_path, make_run, capsys, kept):
    folder = make_run(tmp_path / "rnn", "rnn", segments=5)
    lines = (folder / "test.hyp.txt").read_text().splitlines(keepends=True)
    short = tmp_path / "short.out"
    short.write_text("".join(lines[:kept]))
    files = [f"references={folder / 'test.ref.txt'}", f"sources={folder / 'test.src.txt'}"]
    told = refusal(capsys, "evaluate", f"hypotheses={short}", *files)
    assert str(kept) in told and "5" in told
    assert run(["report", f"runs={tmp_path}", f"hypotheses={{other: {short}}}"]) == 0
    assert f"note: other was left out: {kept} lines, but test has 5 segments" in capsys.readouterr().err


def test_a_runs_own_translations_cut_short_are_not_read(tmp_path, make_run, capsys):
    folder: Path = make_run(tmp_path / "rnn", "rnn", segments=5)
    path = folder / "test.hyp.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    assert run(["report", f"runs={tmp_path}"]) == 0
    assert "differ in their number of lines; left unread" in capsys.readouterr().err


def test_hypotheses_in_json_lines_score_as_the_same_plain_text(tmp_path, make_run, capsys):
    folder = make_run(tmp_path / "rnn", "rnn", segments=12)
    lines = (folder / "test.hyp.txt").read_text(encoding="utf-8").splitlines()
    (tmp_path / "out.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    files = [f"references={folder / 'test.ref.txt'}", f"sources={folder / 'test.src.txt'}"]
    scores = []
    for hypotheses in (tmp_path / "out.jsonl", folder / "test.hyp.txt"):
        assert run(["evaluate", f"hypotheses={hypotheses}", *files]) == 0
        scores.append(next(iter(json.loads(capsys.readouterr().out).values())))
    assert scores[0] == scores[1]

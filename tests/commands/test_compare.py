"""Several starts of one comparison in one folder, whose trainings are faked here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seq2seq.cli import run
from seq2seq.commands import compare
from seq2seq.run import Run, RunInUse

Train = Callable[[Run], None]


@pytest.fixture
def comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """A function that compares rnn and bahdanau in tmp_path by a fake training; returns the exit status."""
    monkeypatch.chdir(tmp_path)

    def start(training: Train, *overrides: str) -> int:
        monkeypatch.setattr(compare.Jobs, "check", lambda *_: None)
        monkeypatch.setattr(compare, "train", lambda config, run, names: training(run))
        return run(["compare", "models=[rnn,bahdanau]", "run_dir=study", *overrides])

    return start


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The baseline of each report that is written."""
    found: list[Any] = []
    monkeypatch.setattr(compare, "write_report", lambda folders, output, baseline: found.append(baseline))
    return found


def finish(run: Run) -> None:
    if not run.finished:
        run.folder.mkdir(parents=True)
        run.metrics_file.touch()


def all_but(taken: str) -> Train:
    """A training of runs of which another process has this one."""

    def training(run: Run) -> None:
        if run.name == taken:
            raise RunInUse(f"{run} is in use by another process")
        finish(run)

    return training


def test_progress_counts_a_run_once_though_another_process_finishes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = compare.Progress([tmp_path / name for name in "ab"], began=0.0)
    finish(Run(tmp_path / "a"))
    looks = {"a": 0, "b": 0}

    def finished(run: Run) -> bool:
        looks[run.name] += 1
        return run.name == "a" or looks["b"] > 1

    monkeypatch.setattr(Run, "finished", property(finished))
    assert str(progress).startswith("1 of 2 runs finished")


def test_a_line_of_progress_that_fails_ends_no_comparison(
    comparison: Callable[..., int], reports: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare.Progress, "__str__", lambda _: str(1 / 0))
    assert comparison(finish) == 0
    assert len(reports) == 1


def test_a_run_that_finishes_during_the_report_is_reported_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(Run(tmp_path / "a"))
    reported = []

    def write_report(*_: Any) -> None:
        reported.append([name for name in "ab" if Run(tmp_path / name).finished])
        finish(Run(tmp_path / "b"))

    monkeypatch.setattr(compare, "write_report", write_report)
    compare.report_all(tmp_path, None)
    assert reported == [["a"], ["a", "b"]]


@pytest.mark.parametrize("override", ["trainer.devices=2", "trainer.num_nodes=2"])
def test_a_taken_training_of_several_processes_ends_the_comparison(
    override: str, comparison: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        comparison(all_but("rnn-seed1"), override)
    assert ended.value.code == 2
    assert "error: rnn-seed1: study/rnn-seed1 is in use by another process\n" in capsys.readouterr().err
    assert not Run("study/bahdanau-seed1").finished


@pytest.mark.parametrize("baseline", ["rnn", "rnn-seed1"])
def test_a_report_waits_for_a_baseline_that_another_process_trains(
    baseline: str, comparison: Callable[..., int], reports: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert comparison(all_but("rnn-seed1"), f"baseline={baseline}") == 0
    said = capsys.readouterr().err
    assert "seq2seq report runs=study baseline=rnn-seed1 compares all runs; without rnn-seed1" in said
    assert Run("study/bahdanau-seed1").finished and not reports
    finish(Run("study/rnn-seed1"))
    assert comparison(all_but("rnn-seed1"), f"baseline={baseline}") == 0
    assert reports == ["rnn-seed1"]


def test_a_comparison_counts_the_runs_that_it_has_trained(
    comparison: Callable[..., int], reports: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert comparison(all_but("bahdanau-seed1")) == 0
    assert "\n1 run in 0." in capsys.readouterr().err
    assert comparison(finish) == 0
    assert "\n1 run in 0." in capsys.readouterr().err
    assert comparison(finish) == 0 and len(reports) == 3
    assert "\n0 runs in 0." in capsys.readouterr().err

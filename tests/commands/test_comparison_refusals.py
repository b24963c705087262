"""Comparisons that cannot work are refused before the first training; a worker that ends early ends them."""

import os
import signal
from pathlib import Path

import pytest

from seq2seq.cli import run
from seq2seq.commands import compare
from seq2seq.run import Run
from seq2seq.training.signals import TrainingInterrupted


@pytest.mark.slow
def test_sigterm_in_one_training_ends_the_comparison(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = []

    def stopped(job: object, run: Run) -> None:
        started.append(run.name)
        raise TrainingInterrupted(signal.SIGTERM, 3)

    monkeypatch.setattr("seq2seq.pipeline.train.train", stopped)
    with pytest.raises(SystemExit) as end:
        run(["compare", "models=[rnn,bahdanau]", f"run_dir={tmp_path}", f"data.cache_dir={tmp_path}"])
    assert end.value.code == 75 and started == ["rnn-seed1"]


@pytest.mark.fork
@pytest.mark.slow
def test_a_worker_that_dies_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "run_job", lambda config, progress: os.kill(os.getpid(), signal.SIGKILL))
    command = ["compare", "models=[rnn,bahdanau]", f"run_dir={tmp_path}", f"data.cache_dir={tmp_path}"]
    assert run([*command, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]) == 2
    printed = capsys.readouterr().err
    assert "error: a training process died" in printed and "The same command resumes" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    "override, word",
    [
        ("models=[rnn,rnn]", "twice"),
        ("seeds=3", "seeds"),
        ("seeds=[]", "seeds"),
        ("seed=5", "seeds=[...]"),
        ("systems=[a]", "systems"),
        ("systems={rnn: ['seed=5']}", "seeds=[...]"),
    ],
)
def test_an_impossible_comparison_is_refused(override: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "models=[rnn]", override]) == 2
    assert word in capsys.readouterr().err


def test_a_comparison_in_a_folder_that_cannot_be_written_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "study"
    assert run(["compare", "models=[rnn]", f"run_dir={folder}", f"data.cache_dir={tmp_path}"]) == 2
    assert capsys.readouterr().err.endswith(f"error: cannot write {folder}: Not a directory\nGive another run_dir=.\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "override, words",
    [
        ("baseline=banahdau", ["baseline='banahdau'", "did you mean 'bahdanau'", "The systems are rnn, bahdanau"]),
        ("systems={rnn: ['model.width=wide']}", ["rnn-seed1", "model.width", "int"]),
        ("systems={bahdanau: ['model.dropout=2']}", ["bahdanau-seed1", "dropout", "2"]),
    ],
)
def test_an_impossible_system_is_refused_before_the_first_training(
    override: str, words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    command = ["compare", "models=[rnn,bahdanau]", override, f"run_dir={folder}", f"data.cache_dir={tmp_path}"]
    assert run(command) == 2
    printed = capsys.readouterr().err
    assert len(printed.strip().splitlines()) <= 2
    assert all(word in printed for word in words), printed
    assert not folder.exists()


def test_baseline_can_be_an_external_system_but_not_the_references(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("test.ref", "online.hyp"):
        (tmp_path / f"{name}.txt").touch()
    command = ["compare", "models=[rnn]", f"run_dir={tmp_path}", f"data.cache_dir={tmp_path}", "seed=1"]
    assert run([*command, "baseline=test.ref"]) == 2
    assert "baseline='test.ref' is not one of the compared systems" in capsys.readouterr().err
    assert run([*command, "baseline=online"]) == 2
    assert "Give seeds=[...]" in capsys.readouterr().err  # what is looked at next


@pytest.mark.parametrize("name", ["../out", ".hidden", "a/b", ".."])
def test_a_system_name_that_is_a_path_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", f"systems={{{name}: []}}"]) == 2
    assert f"{name!r} cannot be a system's name" in capsys.readouterr().err

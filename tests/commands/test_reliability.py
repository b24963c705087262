"""Commands that are killed, stopped, starved of disk or started twice: all run by one program, children.py."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seq2seq.training.checkpoint import read_checkpoint

pytestmark = [pytest.mark.fork, pytest.mark.slow]

CLOCKS = ("seconds", "cpu_seconds", "target_tokens_per_second", "decoding", "created", "command", "name")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("children")


@pytest.fixture(scope="module")
def outcomes(place: Path) -> dict[str, Any]:
    """Outcome of every scenario of children.py."""
    process = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("children.py"))],
        capture_output=True,
        text=True,
        timeout=1800,
        cwd=place,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stderr
    assert "Traceback" not in process.stdout
    return json.loads(process.stdout)


def error(ended: dict[str, Any]) -> list[str]:
    """The lines of a refusal."""
    assert ended["status"] == 2, ended["said"]
    lines = ended["said"].splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith("error: ")) :]


def without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_clocks(item) for key, item in value.items() if key not in CLOCKS}
    return value


@pytest.mark.parametrize("where", ["corpus", "tokenizer", "ids", "scoring"])
def test_sigterm_outside_the_training_loop_ends_with_75(outcomes: dict[str, Any], where: str) -> None:
    ended = outcomes["one run"][f"stopped in {where}"]
    assert ended["status"] == 75
    assert ended["said"].splitlines()[-1].startswith("stopped by SIGTERM; what is done is kept")


def test_a_second_training_in_one_folder_is_refused(outcomes: dict[str, Any]) -> None:
    first, second = error(outcomes["one run"]["second start"])
    assert first.startswith("error: run is in use by process ") and "run_dir=" in second
    assert outcomes["one run"]["second start wrote"] == []
    assert outcomes["one run"]["killed"]["status"] == -9


def test_a_full_disk_is_reported_in_two_lines(outcomes: dict[str, Any]) -> None:
    first, second = error(outcomes["one run"]["full disk"])
    assert first.startswith("error: cannot write the checkpoint run/checkpoints/") and first.endswith("File too large")
    assert second.startswith("The last good checkpoint is intact")


def test_a_run_is_finished_once_after_signals_and_a_damaged_checkpoint(outcomes: dict[str, Any], place: Path) -> None:
    """The last checkpoint was damaged before training went on; the best took its place, and that was said."""
    found = outcomes["one run"]
    assert (
        "run/checkpoints/last.ckpt: File is not a zip file; resuming from best.ckpt"
        in (found["stopped in scoring"]["said"])
    )
    assert found["last start"]["status"] == 0 and not found["trained again"]
    assert found["once more"]["status"] == 0 and "run is finished" in found["once more"]["said"]
    assert not [path for path in (place / "run").rglob(".*") if path.name != ".lock"]
    assert (place / "run/metrics.json").is_file()


def test_a_comparison_killed_many_times_equals_an_uninterrupted_one(outcomes: dict[str, Any], place: Path) -> None:
    """Its folder's name holds a quote, blanks, an equals sign, a comma, braces and a dollar sign."""
    found = outcomes["comparison"]
    assert set(found["killed"]) <= {-9, 0} and found["killed"].count(-9) >= 5
    assert found["whole"]["status"] == found["last start"]["status"] == 0, found["last start"]["said"]
    (study,) = (path.parent for path in place.glob("*/report.html") if path.parent.name not in ("whole", "shared"))
    assert set("' =,${}\"") <= set(study.name)
    for run in ("rnn-seed1", "bahdanau-seed1"):
        one, other = (json.loads((folder / run / "metrics.json").read_text()) for folder in (place / "whole", study))
        assert (one.pop("study"), other.pop("study")) == ("whole", study.name)
        assert without_clocks(one) == without_clocks(other)
        assert (place / "whole" / run / "test.hyp.txt").read_bytes() == (study / run / "test.hyp.txt").read_bytes()
        for name in ("last.ckpt", "best.ckpt"):
            states = [read_checkpoint(folder / run / "checkpoints" / name) for folder in (place / "whole", study)]
            weights = [{key: value.numpy().tobytes() for key, value in each["state_dict"].items()} for each in states]
            assert weights[0] == weights[1]


def test_a_second_comparison_in_one_folder_trains_what_is_free(outcomes: dict[str, Any]) -> None:
    first, second = outcomes["shared"]["first"], outcomes["shared"]["second"]
    assert (first["status"], second["status"]) == (0, 0), first["said"] + second["said"]
    assert "rnn-seed1: being trained by another process" in second["said"] and "1 run in" in second["said"]
    assert "being trained" not in first["said"] and "bahdanau-seed1 is finished" in first["said"]
    third = outcomes["shared"]["third, against the first's"]
    assert third["status"] == 0 and "without rnn-seed1, the baseline, there is no report yet" in third["said"]
    assert not outcomes["shared"]["trained twice"]
    assert [sorted(systems) for systems in outcomes["shared"]["reports"]] == [["bahdanau"], ["bahdanau", "rnn"]]


def test_failed_systems_are_reported_after_the_others_have_finished(outcomes: dict[str, Any], place: Path) -> None:
    lines = error(outcomes["failing"])
    assert [line.split(": ")[1] for line in lines[:2]] == ["rnn-seed1", "bahdanau-seed1"]
    assert all("no training pair is left" in line for line in lines[:2])
    assert lines[2].startswith("error: not finished: rnn-seed1, bahdanau-seed1")
    assert (place / "failing/luong-seed1/metrics.json").is_file()
    assert not (place / "failing/report.html").exists()


@pytest.mark.parametrize("name, status", [("SIGTERM", 75), ("SIGINT", 130), ("SIGKILL", -9)])
def test_a_signal_to_a_comparison_saves_and_ends_its_workers(outcomes: dict[str, Any], name: str, status: int) -> None:
    ended = outcomes[name]
    assert ended["status"] == status
    for run in ("rnn", "bahdanau"):
        assert f"{run}-seed1: stopped by SIGTERM and saved at update" in ended["said"]


def test_a_sweep_with_two_devices_trains_each_run_with_two_processes(outcomes: dict[str, Any], place: Path) -> None:
    """A sweep of two trainings with two processes each: one speaks, one folder each, and the same result."""
    ended = outcomes["several processes"]
    assert ended["status"] == 0, ended["said"]
    metrics = [json.loads((place / name / "metrics.json").read_text()) for name in ("first", "second")]
    assert without_clocks(metrics[0]["training"]) == without_clocks(metrics[1]["training"])
    assert metrics[0]["training"]["updates"] == 12
    assert ended["said"].count("update 12") == 2

"""Several processes, and processes that are killed: all run by one program, forks.py."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import everything

from seq2seq.training.checkpoint import read_checkpoint

pytestmark = [pytest.mark.fork, pytest.mark.slow]


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path, str]:
    """Exit codes of every scenario, the folder of their runs, and what was written to stderr."""
    place = tmp_path_factory.mktemp("forks")
    process = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("forks.py")), str(place)],
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout), place, process.stderr


def test_killed_twenty_times_it_is_bit_identical(forks: tuple[dict[str, Any], Path, str]) -> None:
    """Accumulation across epochs, dropout, averaging, log windows that straddle checkpoints; SIGKILL anywhere."""
    codes, place, _ = forks
    assert codes["killed"].count(-9) >= 5, "too few children were killed before they were done"
    assert set(codes["killed"]) == {-9, 0} and codes["killed"][-1] == 0
    assert everything(place / "killed") == everything(place / "whole")


def test_killed_where_it_hurts_it_is_bit_identical(forks: tuple[dict[str, Any], Path, str]) -> None:
    """Within the writing of a checkpoint, between its steps, within validation, within a line of history."""
    codes, place, _ = forks
    assert codes["killed there"] == 3 * [*7 * [-9], 0]
    for number in (1, 2, 3):
        assert everything(place / "killed there" / str(number)) == everything(place / "whole")


def test_a_full_disk_is_reported_and_costs_nothing(forks: tuple[dict[str, Any], Path, str]) -> None:
    codes, place, errors = forks
    assert codes["filled"] == [2, 2, 0]
    for what in (r"the checkpoint .*\.ckpt", "the log in .*filled"):
        assert re.search(f"cannot write {what}: File too large\nThe last good checkpoint is intact. Make room", errors)
    assert "Traceback" not in errors
    assert everything(place / "filled") == everything(place / "whole")


def test_sigterm_saves_and_has_an_exit_code_of_its_own(forks: tuple[dict[str, Any], Path, str]) -> None:
    codes, place, _ = forks
    assert codes["terminated"] == 75
    assert read_checkpoint(place / "terminated/checkpoints/last.ckpt")["seq2seq"]["state"]["update"] > 10


def test_two_processes_learn_what_one_learns_from_both_their_batches(
    forks: tuple[dict[str, Any], Path, str],
) -> None:
    codes, place, _ = forks
    assert codes["together"] == [0, 0]
    one, two = everything(place / "alone"), everything(place / "together")
    assert len(one["history"]) == len(two["history"]) == 6
    for line, other in zip(one["history"], two["history"], strict=True):
        assert other == pytest.approx(line, rel=1e-4)
    states = [read_checkpoint(place / name / "checkpoints/last.ckpt")["state_dict"] for name in ("alone", "together")]
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-3, atol=1e-5, equal_nan=True)


def test_two_processes_that_accumulate_come_to_an_end(forks: tuple[dict[str, Any], Path, str]) -> None:
    codes, place, _ = forks
    assert codes["accumulating"] == [0, 0]
    assert everything(place / "accumulating")["history"][-1]["update"] == 9


def test_one_process_failing_ends_all(forks: tuple[dict[str, Any], Path, str]) -> None:
    codes, _, errors = forks
    assert all(code != 0 for code in codes["breaking"])
    assert "ZeroDivisionError" in errors


def test_a_process_that_is_killed_ends_all(forks: tuple[dict[str, Any], Path, str]) -> None:
    codes, place, errors = forks
    assert codes["dying"] == [2, -9]
    assert "another process of this training has ended" in errors
    assert read_checkpoint(place / "dying/checkpoints/last.ckpt")["seq2seq"]["state"]["update"] == 4

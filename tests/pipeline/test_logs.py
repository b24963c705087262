"""Destinations of a run's log lines, also when there is no room for them."""

import logging
import threading
from pathlib import Path

import pytest

from seq2seq.pipeline.logs import logging_to

logger = logging.getLogger("seq2seq.test")


def test_talk_goes_to_the_terminal_and_with_times_to_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2):
        with logging_to(tmp_path / "train.log", "run"):
            logger.info("line %d", number)
            logger.warning("careful")
    logger.info("after")
    told = capsys.readouterr().err.splitlines()
    assert told == ["run: line 1", "warning: run: careful", "run: line 2", "warning: run: careful"]
    lines = (tmp_path / "train.log").read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == [
        "INFO line 1", "WARNING careful", "INFO line 2", "WARNING careful",
    ]  # fmt: skip


def test_a_warning_is_given_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to(tmp_path / "train.log", "run"):
        for said in ("see tokenize=zh", "see tokenize=zh", "other"):
            logger.warning("%s", said)
            logger.info("line")
    assert capsys.readouterr().err.count("see tokenize=zh") == 1
    assert (tmp_path / "train.log").read_text().count("see tokenize=zh") == 1
    assert (tmp_path / "train.log").read_text().count("INFO line") == 3


def test_a_name_may_hold_percent_signs(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to(name="50% = %(x)s {y} %"):
        logger.info("line")
    assert capsys.readouterr().err == "50% = %(x)s {y} %: line\n"


def test_a_log_without_room_is_told_once_and_talk_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.log").symlink_to("/dev/full")
    with logging_to(tmp_path / "train.log", "run"):
        logger.info("one")
        logger.info("two")
    told = capsys.readouterr().err.splitlines()
    warning = told.pop(1)
    assert warning.startswith("warning: cannot write") and warning.endswith("No space left on device")
    assert told == ["run: one", "run: two"]


def test_a_thread_that_finds_no_room_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def end(error: Exception) -> None:
        raise error

    with logging_to():
        for error in (OSError(28, "No space left on device", "events"), ValueError("ours")):
            thread = threading.Thread(target=end, args=(error,))
            thread.start()
            thread.join()
    told = capsys.readouterr().err
    assert told.startswith("warning: [Errno 28] No space left on device: 'events'\n")
    assert told.count("Traceback") == 1 and "ValueError: ours" in told

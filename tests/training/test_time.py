"""Saving, validation and schedule by the clock, of a training whose every update takes 25 seconds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy import history, toy_fit

from seq2seq.training.checkpoint import read_checkpoint
from seq2seq.training.schedule import WallClock
from seq2seq.training.state import Stopwatch, TrainingState

UPDATE = 25.0


class Saves:
    """Lets time pass, and notes after which updates last.ckpt was written."""

    def __init__(self, folder: Path, pass_time: Callable[[], None]) -> None:
        self.path, self.pass_time = folder / "checkpoints/last.ckpt", pass_time
        self.updates: list[int] = []

    def on_update_end(self, state: TrainingState) -> None:
        self.look()
        self.pass_time()

    def look(self) -> None:
        if self.path.exists():
            update = read_checkpoint(self.path)["seq2seq"]["state"]["update"]
            if update not in self.updates:
                self.updates.append(update)


@pytest.fixture
def slow_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """`toy_fit` in which an update takes UPDATE seconds; the updates that were saved."""
    now = [UPDATE]
    monkeypatch.setattr(Stopwatch, "seconds", lambda self: now[0])

    def fit(**settings: Any) -> list[int]:
        saves = Saves(tmp_path, lambda: now.__setitem__(0, now[0] + UPDATE))
        toy_fit(tmp_path, callbacks=(saves,), **settings)
        saves.look()
        return saves.updates

    return fit


def test_it_is_saved_every_so_many_minutes_also_after_a_resume(slow_fit: Callable[..., list[int]]) -> None:
    settings = {"val_check_interval": 1000, "save_minutes": 1.0}
    assert slow_fit(trainer={"max_steps": 10, **settings}) == [3, 7, 10]
    assert slow_fit(trainer={"max_steps": 15, **settings}) == [10, 14, 15]


def test_an_interval_of_time_validates_each_time_it_has_passed(
    slow_fit: Callable[..., list[int]], tmp_path: Path
) -> None:
    slow_fit(trainer={"max_steps": 11, "val_check_interval": "00:00:01:30"})
    assert [line["update"] for line in history(tmp_path) if "valid_bleu" in line] == [4, 8, 11]


def test_the_wall_clock_schedule_falls_with_the_time_used(slow_fit: Callable[..., list[int]], tmp_path: Path) -> None:
    schedule = WallClock("00:00:05:00", floor=0.1)
    slow_fit(trainer={"max_steps": 16, "val_check_interval": 1000, "log_every_n_steps": 1}, schedule=schedule)
    rates = [line["learning_rate"] for line in history(tmp_path) if "learning_rate" in line]
    expected = [3e-3 * (0.1 + 0.9 * max(0.0, 1 - UPDATE * update / 300)) for update in range(1, 17)]
    assert rates == pytest.approx(expected)

"""Output of a run: history.jsonl, TensorBoard, the terminal."""

import errno
import io
import itertools
import json
import logging
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lightning.fabric.loggers.csv_logs import CSVLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toy import toy_fit, toy_model

from seq2seq.errors import UserError
from seq2seq.training import loggers
from seq2seq.training.loggers import (
    History,
    Terminal,
    clock,
    create_csv,
    create_mlflow,
    create_tensorboard,
    create_wandb,
    draw_attention,
)
from seq2seq.training.settings import Limits
from seq2seq.training.state import Stopwatch, TrainingState
from seq2seq.training.validation import Sample, Validation


def test_history_is_cut_back_to_where_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"update": 1}\n\0\0\0\n7\n{"update": 5}\n{"update": 6}\n{"upda')
    history = History(path, update=5)
    history.write({"update": 7, "valid_bleu": 0.1})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"update": 1},
        {"update": 5},
        {"update": 7, "valid_bleu": 0.1},
    ]
    assert "history.jsonl: 2 damaged lines are left out" in caplog.text


def test_tensorboard_holds_scalars_texts_and_the_picture(tmp_path: Path) -> None:
    toy_fit(tmp_path, model=toy_model("transformer"), loggers=(create_tensorboard,), trainer={"max_steps": 20})
    log = EventAccumulator(str(tmp_path / "tensorboard"))
    log.Reload()
    tags = log.Tags()
    assert {
        "train/loss",
        "train/nll",
        "train/perplexity",
        "train/learning_rate",
        "train/gradient_norm",
        "train/tokens_per_second",
        "valid/nll",
        "valid/perplexity",
        "valid/bleu",
    } == set(tags["scalars"])
    assert tags["images"] == ["attention"]
    assert tags["tensors"] == ["samples/text_summary"]
    assert [event.step for event in log.Scalars("valid/bleu")] == [10, 20]


def test_tensorboard_repeats_nothing_after_a_resume(tmp_path: Path) -> None:
    for steps in (10, 20):
        toy_fit(tmp_path, loggers=(create_tensorboard,), trainer={"max_steps": steps, "log_every_n_steps": 5})
    log = EventAccumulator(str(tmp_path / "tensorboard"))
    log.Reload()
    assert [event.step for event in log.Scalars("train/loss")] == [5, 10, 15, 20]


def test_tensorboard_drops_what_a_try_without_a_checkpoint_left(tmp_path: Path) -> None:
    for loss in (1.0, 2.0):
        log = create_tensorboard(tmp_path, 1)
        for update in (1, 2):
            log.log_metrics({"train/loss": loss}, update)
        log.finalize("success")
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1, 2.0), (2, 2.0)]


@pytest.mark.parametrize("pieces", [20, 300])
def test_the_attention_picture_is_bounded(pieces: int) -> None:
    sample = Sample(0, "", "", "", ["▁piece"] * pieces, ["▁piece"] * pieces, [[0.1] * pieces] * pieces)
    figure = draw_attention(sample)
    assert max(figure.get_size_inches()) <= 16
    shown = {label.get_text() for label in figure.axes[0].get_xticklabels()}
    assert ("▁piece" in shown) == (pieces == 20)


def test_without_a_terminal_there_is_one_line_a_validation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    toy_fit(tmp_path, trainer={"max_steps": 20})
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("seq2seq")]
    assert [line.split(",")[0] for line in lines] == ["update 10", "update 20"]
    assert all("perplexity" in line and "BLEU" in line and "target tokens/s" in line for line in lines)
    printed = capfd.readouterr()
    assert printed.out == "" and "\r" not in printed.err


def set_clock(monkeypatch: pytest.MonkeyPatch, clock: Callable[[], float]) -> None:
    """Replace the clock of this module alone: other threads, such as an event loop, keep the true one."""
    monkeypatch.setattr(loggers, "time", SimpleNamespace(monotonic=clock))


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal(Limits(max_steps=100))
    terminal.loss = "loss 2.500 · perplexity 7.25"
    state = TrainingState(update=50, seconds=60.0, aside_seconds=10.0, target_tokens=100000, best_score=12.5)
    set_clock(monkeypatch, lambda: time.monotonic() + 1)
    terminal.update(state)
    terminal.close()
    shown = screen.getvalue()
    for text in ("update 50", "loss 2.500", "perplexity 7.25", "2,000 tokens/s", "best BLEU 12.50", "0:01:00 left"):
        assert text in shown


def test_without_a_terminal_a_line_breaks_a_long_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="seq2seq")
    now = 1000.0
    set_clock(monkeypatch, lambda: now)
    terminal, quiet = Terminal(Limits(max_steps=2**14)), Terminal(Limits(max_steps=2**14), progress=False)
    said = []
    for second in range(1, 2**14 + 1):
        now = 1000.0 + second
        state = TrainingState(update=second, seconds=float(second), target_tokens=second * 1000)
        quiet.update(state)
        assert not caplog.records or second in said
        terminal.update(state)
        if caplog.records:
            said.append(second)
            assert caplog.messages == [f"update {second} · epoch 0.00 · 1,000 tokens/s · {clock(2**14 - second)} left"]
            caplog.clear()
        if second == 45:
            state.best_score = 1.0
            terminal.validated(state, Validation(math.log(2), 1.0, [], []))
            assert caplog.messages.pop().endswith("1,000 target tokens/s, 4:32:19 left")
            caplog.clear()
    gaps = [after - before for before, after in itertools.pairwise([0, *said])]
    assert said[:3] == [30, 75, 105]
    assert gaps[-1] == 600
    assert 30 <= len(said) < 70


def test_clock() -> None:
    assert [clock(seconds) for seconds in (0, 59.9, 61, 3600 * 30 + 1)] == ["0:00:00", "0:00:59", "0:01:01", "30:00:01"]


def test_a_stopwatch_goes_on_from_what_was_saved() -> None:
    state = TrainingState(seconds=100.0, aside_seconds=40.0, cpu_seconds=70.0)
    watch = Stopwatch(state)
    with watch.aside():
        pass
    watch.record_cpu()
    assert 70.0 <= state.cpu_seconds < 100.0
    assert 100.0 <= watch.seconds() < 130.0
    assert 40.0 < state.aside_seconds < 60.0


def test_csv_logger_writes_every_record(tmp_path: Path) -> None:
    toy_fit(tmp_path, loggers=(create_csv,), trainer={"max_steps": 20, "log_every_n_steps": 5})
    lines = (tmp_path / "csv/version_0/metrics.csv").read_text().splitlines()
    columns = lines[0].split(",")
    rows = [dict(zip(columns, line.split(","), strict=True)) for line in lines[1:]]
    assert [row["step"] for row in rows if row["train/loss"]] == ["5", "10", "15", "20"]
    assert [row["step"] for row in rows if row["valid/bleu"]] == ["10", "20"]


@pytest.mark.slow
def test_wandb_logger_writes_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    toy_fit(tmp_path, loggers=(partial(create_wandb, offline=True),), trainer={"max_steps": 10})
    assert list((tmp_path / "wandb").glob("offline-run-*"))


@pytest.mark.slow
def test_mlflow_logger_writes_to_the_run_s_folder(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    toy_fit(tmp_path, loggers=(create_mlflow,), trainer={"max_steps": 10})
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("seq2seq").experiment_id])
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "valid/bleu")] == [10]


@pytest.mark.parametrize("wrapped", [False, True])
def test_full_disk_for_a_logger_is_one_error_that_names_the_run(wrapped: bool, tmp_path: Path) -> None:
    class Full(CSVLogger):
        def log_metrics(self, *arguments: Any) -> None:
            try:
                raise OSError(errno.ENOSPC, "No space left on device")
            except OSError as error:
                raise (ValueError("not supported") if wrapped else error) from error

        def finalize(self, status: str) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match=f"cannot write the log in {tmp_path}: No space left on device"):
        toy_fit(tmp_path, loggers=(lambda folder, update: Full(folder),), trainer={"max_steps": 10})


def test_callback_of_a_user_sees_every_event(tmp_path: Path) -> None:
    events: list[tuple[str, int]] = []

    class Watch:
        def on_train_start(self, state: TrainingState) -> None:
            events.append(("start", state.update))

        def on_validation_end(self, state: TrainingState, validation: Validation) -> None:
            events.append(("validation", state.update))

        def on_train_end(self, state: TrainingState) -> None:
            events.append(("end", state.update))

    toy_fit(tmp_path, callbacks=(Watch(),), trainer={"max_steps": 20})
    assert events == [("start", 0), ("validation", 10), ("validation", 20), ("end", 20)]

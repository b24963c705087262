"""Reports of a run: the terminal, history.jsonl and Lightning's loggers. They never change what is learned."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.fabric.loggers.csv_logs import CSVLogger
from lightning.fabric.loggers.logger import Logger
from lightning.fabric.loggers.tensorboard import TensorBoardLogger

from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import PRIMARY, perplexity_text
from seq2seq.files import atomic_write, writing
from seq2seq.run import Run
from seq2seq.training.checkpoint import unwritable
from seq2seq.training.settings import Limits, TrainerSettings
from seq2seq.training.state import TrainingState, Window
from seq2seq.training.validation import Sample, Validation, perplexity

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

logger = logging.getLogger(__name__)

LABELED = 60
"""Pieces per side up to which the attention picture grows with them and labels them; a larger one has a fixed size."""

SILENCE = (30.0, 600.0)

GUESSING = 17.0
"""NLL per token above that of a uniform guess from any vocabulary; the largest has 2 ** 24 entries."""

Record = dict[str, Any]
LoggerFactory = Callable[[Path, int], Logger]
"""Creates one of Lightning's loggers for a run's folder and the first update that it will log."""


class Log:
    """Everything that a training reports. Only its first process (`main`) does; in the others nothing is written."""

    def __init__(
        self, run: Run, state: TrainingState, settings: TrainerSettings, loggers: Sequence[LoggerFactory], main: bool
    ) -> None:
        self.run = run
        self.state = state
        self.history = History(run.history, state.update) if main else None
        self.terminal = Terminal(settings.limits(), settings.progress) if main else None
        self.loggers = [create(run.folder, state.update + 1) for create in loggers] if main else []

    def update(self) -> None:
        """Report an update; cheap."""
        if self.terminal is not None:
            self.terminal.update(self.state)

    def training(self) -> None:
        """Report the window of updates since the last report, and begin a new one."""
        state = self.state
        record = training_record(state)
        nll, best = record["train_nll"], state.lowest_train_nll
        self._warn_of_divergence(nll)
        state.lowest_train_nll = nll if best is None else min(best, nll)
        state.window = Window(seconds=state.seconds - state.aside_seconds)
        if self.terminal is not None:
            self.terminal.loss = (
                f"loss {record['train_loss']:.3f} · perplexity {perplexity_text(record['train_perplexity'])}"
            )
        self._write(record)

    def validation(self, validation: Validation) -> None:
        """Report a validation."""
        if self.state.lowest_train_nll is None:
            self._warn_of_divergence(validation.nll)
        self._write(validation_record(self.state, validation), validation.samples)
        if self.terminal is not None:
            self.terminal.validated(self.state, validation)

    def _warn_of_divergence(self, nll: float) -> None:
        """Warn of an NLL per token far above the lowest of training so far, or above that of guessing."""
        best = self.state.lowest_train_nll
        if nll > GUESSING or (best is not None and nll > best + max(1.0, 0.5 * best)):
            logger.warning(
                "update %d: training diverges, NLL %.2f per token%s; lower optimizer.lr or lengthen schedule.warmup",
                self.state.update,
                nll,
                "" if best is None else f" after {best:.2f} at its best",
            )

    def close(self) -> None:
        if self.terminal is not None:
            self.terminal.close()
        with self._readable_errors():
            for each in self.loggers:
                each.finalize("success")

    def _write(self, record: Record, samples: Sequence[Sample] = ()) -> None:
        with self._readable_errors():
            if self.history is not None:
                self.history.write(record)
            for each in self.loggers:
                each.log_metrics(scalars(record), record["update"])
                if samples:
                    log_samples(each, record["update"], samples)
                each.save()

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            with writing(self.run.folder):
                yield
        except OSError as error:
            raise unwritable(f"the log in {self.run}", error) from error


class History:
    """history.jsonl, one JSON object per line; cut back to `update` when a run resumes there, so it reads as if the run
    had never stopped."""

    def __init__(self, path: Path, update: int) -> None:
        self.path = path
        kept = [line for line in _whole_lines(path) if json.loads(line)["update"] <= update]
        with atomic_write(path) as stream:
            stream.writelines(line + "\n" for line in kept)

    def write(self, record: Record) -> None:
        with open(self.path, "a", encoding="utf-8", newline="\n") as stream:
            stream.write(json.dumps(record) + "\n")


def _whole_lines(path: Path) -> list[str]:
    """Read the lines that neither a kill has cut short nor a power cut has damaged."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    whole = [line for line in lines if _is_record(line)]
    if len(whole) < len(lines):
        logger.warning("%s: %d damaged lines are left out", path, len(lines) - len(whole))
    return whole


def _is_record(line: str) -> bool:
    try:
        return isinstance(json.loads(line)["update"], int)
    except (ValueError, TypeError, KeyError):
        return False


class Terminal:
    """One log line per validation; where `progress` is wanted also a live bar or, where stderr is not a terminal, a
    line after a silence of a tenth of the time so far (at least SILENCE[0] seconds, at most SILENCE[1])."""

    def __init__(self, limits: Limits, progress: bool = True) -> None:
        self.wanted = progress
        self.limits = limits
        self.bar: Bar | None = None
        self.loss = ""
        self._task: Any = None
        self._begun = self._shown = time.monotonic()
        if not (self.wanted and sys.stderr.isatty()):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[status]}"))
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4)
        self._task = self.bar.add_task("training", total=1.0, status="")
        self.bar.start()

    def update(self, state: TrainingState) -> None:
        now = time.monotonic()
        shortest, longest = SILENCE
        silence = 0.25 if self.bar else min(longest, max(shortest, (now - self._begun) / 10))
        if not self.wanted or now - self._shown < silence:
            return
        self._shown = now
        parts = [f"update {state.update}", f"epoch {state.epochs:.2f}", self.loss]
        parts += [f"{state.tokens_per_second:,.0f} tokens/s"]
        if state.best_score is not None:
            parts.append(f"best {PRIMARY.name} {state.best_score:.2f}")
        parts.append(self._left(state))
        status = " · ".join(part for part in parts if part)
        if self.bar is None:
            logger.info(status)
        else:
            self.bar.update(self._task, completed=self.limits.fraction(state), status=status)

    def _left(self, state: TrainingState) -> str:
        fraction = self.limits.fraction(state)
        return f"{clock(state.seconds * (1 - fraction) / fraction)} left" if fraction > 0 else ""

    def validated(self, state: TrainingState, validation: Validation) -> None:
        self._shown = time.monotonic()
        best = "best so far" if state.best_update == state.update else f"best {state.best_score:.2f}"
        left = self._left(state)
        logger.info(
            "update %d, epoch %.2f, %s: perplexity %s, %s %.2f (%s); %s target tokens/s%s",
            state.update,
            state.epochs,
            clock(state.seconds),
            perplexity_text(validation.perplexity),
            PRIMARY.name,
            validation.score,
            best,
            f"{state.tokens_per_second:,.0f}",
            left and f", {left}",
        )

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def create_tensorboard(folder: Path, update: int) -> Logger:
    """Log to FOLDER/tensorboard. What an interrupted training logged from `update` on is dropped."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return TensorBoardLogger(folder, name="", version="tensorboard", purge_step=update)


def create_csv(folder: Path, update: int) -> Logger:
    """Log to FOLDER/csv/version_N/metrics.csv, a new version for each start."""
    return CSVLogger(folder, name="csv")


def create_wandb(folder: Path, update: int, project: str = "seq2seq", offline: bool = False) -> Logger:
    """Log to Weights & Biases, as a run named after the folder; a resumed training continues the same run.

    Raises:
        UserError: the package wandb is not installed.
    """
    try:
        from lightning.pytorch.loggers import WandbLogger

        return WandbLogger(name=folder.name, save_dir=folder, project=project, offline=offline)
    except ModuleNotFoundError as error:
        raise UserError("logger=wandb needs another package\npip install 'seq2seq[wandb]'") from error


def create_mlflow(folder: Path, update: int, experiment: str = "seq2seq", tracking_uri: str | None = None) -> Logger:
    """Log to MLflow at `tracking_uri`, by default a database in FOLDER/mlflow.db.

    Raises:
        UserError: the package mlflow is not installed.
    """
    try:
        from lightning.pytorch.loggers import MLFlowLogger

        uri = tracking_uri or f"sqlite:///{folder.resolve() / 'mlflow.db'}"
        return MLFlowLogger(experiment_name=experiment, run_name=folder.name, tracking_uri=uri)
    except ModuleNotFoundError as error:
        raise UserError("logger=mlflow needs another package\npip install 'seq2seq[mlflow]'") from error


def scalars(record: Record) -> dict[str, float]:
    """The values of a history line under the tags that loggers group by: train/loss, valid/perplexity."""
    return {
        name.replace("_", "/", 1) if name.startswith(("train_", "valid_")) else f"train/{name}": value
        for name, value in record.items()
        if name not in ("update", "epoch", "seconds", "target_tokens") and value is not None
    }


def log_samples(each: Logger, update: int, samples: Sequence[Sample]) -> None:
    """Log validation translations as text, and the attention of the first; only TensorBoard takes them."""
    if not isinstance(each, TensorBoardLogger):
        return
    text = "\n\n".join(
        f"**source** {_plain(sample.source)}\n\n**reference** {_plain(sample.reference)}\n\n"
        f"**translation** {_plain(sample.hypothesis)}\n\n---"
        for sample in samples
    )
    each.experiment.add_text("samples", text, update)
    if attending := [sample for sample in samples if sample.weights]:
        each.experiment.add_figure("attention", draw_attention(attending[0]), update)


def draw_attention(sample: Sample) -> Any:
    """Draw one sample's weights as a matplotlib figure, target down, source across; see LABELED."""
    from matplotlib.figure import Figure

    assert sample.weights is not None
    height, width = len(sample.target_pieces), len(sample.source_pieces)
    labeled = max(height, width) <= LABELED
    figure = Figure(figsize=(2 + 0.22 * width, 1.5 + 0.22 * height) if labeled else (10, 10), layout="tight")
    axes = figure.add_subplot()
    axes.imshow(sample.weights, cmap="Greys", vmin=0, aspect="auto")
    if labeled:
        axes.set_xticks(range(width), sample.source_pieces, rotation=90, fontsize=7, parse_math=False)
        axes.set_yticks(range(height), sample.target_pieces, fontsize=7, parse_math=False)
    return figure


def _plain(text: str) -> str:
    """Escape text for Markdown, and bound its length."""
    text = text if len(text) <= 1000 else text[:1000] + " ..."
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|~" else letter for letter in text)


def clock(seconds: float) -> str:
    """Format seconds as H:MM:SS."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def training_record(state: TrainingState) -> Record:
    """Summarize the window since the last record as a line of history."""
    window = state.window
    busy = state.seconds - state.aside_seconds - window.seconds
    tokens = max(1, window.tokens)
    return {
        **position(state),
        "train_loss": window.loss / tokens,
        "train_nll": window.nll / tokens,
        "train_perplexity": perplexity(window.nll / tokens),
        "learning_rate": state.learning_rate,
        "gradient_norm": window.norm / max(1, window.updates),
        "tokens_per_second": window.tokens / busy if busy > 0 else 0.0,
    }


def validation_record(state: TrainingState, validation: Validation) -> Record:
    """Summarize a validation as a line of history."""
    return {
        **position(state),
        "valid_nll": validation.nll,
        "valid_perplexity": validation.perplexity,
        f"valid_{PRIMARY.key}": validation.score,
    }


def position(state: TrainingState) -> Record:
    return {
        "update": state.update,
        "epoch": round(state.epochs, 6),
        "seconds": round(state.seconds, 3),
        "target_tokens": state.target_tokens,
    }

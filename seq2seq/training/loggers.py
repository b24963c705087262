"""What watches a run: the terminal, history.jsonl, TensorBoard. None of them changes what is learnt."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.files import atomic_write
from seq2seq.training.limits import Limits
from seq2seq.training.progress import Progress
from seq2seq.training.validation import Sample, Validation, perplexity

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from torch.utils.tensorboard import SummaryWriter

logger = logging.getLogger(__name__)

LABELLED = 60
"""Pieces a side up to which the attention picture grows with them and shows them; a larger one has a fixed size."""

SILENCE = (30.0, 600.0)

Record = dict[str, Any]


class Observer:
    """Watches and says nothing. Called in the first process only."""

    def start(self, run_dir: Path, progress: Progress, limits: Limits) -> None:
        """Training begins, or goes on where `progress` stands."""

    def update(self, progress: Progress) -> None:
        """An update is done: must be cheap."""

    def record(self, record: Record) -> None:
        """A line of history."""

    def validated(self, progress: Progress, validation: Validation) -> None:
        """A validation is done, its line of history written."""

    def close(self) -> None:
        """Training is over, or has failed."""


class History(Observer):
    """history.jsonl, one JSON object a line; on resume cut back to the checkpoint, so that it reads as if nothing had
    happened."""

    path: Path

    def start(self, run_dir: Path, progress: Progress, limits: Limits) -> None:
        self.path = run_dir / "history.jsonl"
        kept = [line for line in _whole_lines(self.path) if json.loads(line)["update"] <= progress.update]
        with atomic_write(self.path) as stream:
            stream.writelines(line + "\n" for line in kept)

    def record(self, record: Record) -> None:
        with open(self.path, "a", encoding="utf-8", newline="\n") as stream:
            stream.write(json.dumps(record) + "\n")


def _whole_lines(path: Path) -> list[str]:
    """Lines of history that neither a kill has cut short nor a power cut has damaged."""
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


class Terminal(Observer):
    """One log line a validation; where `progress` is wanted also a live bar, or, where stderr is no terminal, a line
    whenever there was none for a tenth of the time so far (at least SILENCE[0] seconds, at most SILENCE[1])."""

    def __init__(self, progress: bool = True) -> None:
        self.wanted = progress
        self.limits = Limits()
        self.bar: Bar | None = None
        self.loss = ""
        self._task: Any = None
        self._begun = self._shown = 0.0

    def start(self, run_dir: Path, progress: Progress, limits: Limits) -> None:
        self.limits = limits
        self._begun = self._shown = time.monotonic()
        if not (self.wanted and sys.stderr.isatty()):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[status]}"))
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4)
        self._task = self.bar.add_task("training", total=1.0, status="")
        self.bar.start()

    def update(self, progress: Progress) -> None:
        now = time.monotonic()
        shortest, longest = SILENCE
        silence = 0.25 if self.bar else min(longest, max(shortest, (now - self._begun) / 10))
        if not self.wanted or now - self._shown < silence:
            return
        self._shown = now
        parts = [f"update {progress.update}", f"epoch {progress.epochs:.2f}", self.loss]
        parts += [f"{progress.tokens_per_second:,.0f} tokens/s"]
        if progress.best_bleu is not None:
            parts.append(f"best BLEU {progress.best_bleu:.2f}")
        parts.append(self._left(progress))
        status = " · ".join(part for part in parts if part)
        if self.bar is None:
            logger.info(status)
        else:
            self.bar.update(self._task, completed=self.limits.fraction(progress), status=status)

    def _left(self, progress: Progress) -> str:
        fraction = self.limits.fraction(progress)
        return f"{clock(progress.seconds * (1 - fraction) / fraction)} left" if fraction > 0 else ""

    def record(self, record: Record) -> None:
        if "train_loss" in record:
            self.loss = f"loss {record['train_loss']:.3f} · perplexity {record['train_perplexity']:.2f}"

    def validated(self, progress: Progress, validation: Validation) -> None:
        self._shown = time.monotonic()
        best = "best so far" if progress.best_update == progress.update else f"best {progress.best_bleu:.2f}"
        left = self._left(progress)
        logger.info(
            "update %d, epoch %.2f, %s: perplexity %.2f, BLEU %.2f (%s); %s target tokens/s%s",
            progress.update,
            progress.epochs,
            clock(progress.seconds),
            validation.perplexity,
            validation.bleu,
            best,
            f"{progress.tokens_per_second:,.0f}",
            left and f", {left}",
        )

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


class TensorBoardLog(Observer):
    """tensorboard/ of the run: scalars, sample translations as text, an attention picture a validation."""

    def __init__(self, attention_picture: bool = True) -> None:
        self.attention_picture = attention_picture
        self._writer: SummaryWriter | None = None
        self._folder = Path()
        self._purge = 0

    @property
    def writer(self) -> SummaryWriter:
        if self._writer is None:
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=self._purge)
        return self._writer

    def start(self, run_dir: Path, progress: Progress, limits: Limits) -> None:
        self._folder = run_dir / "tensorboard"
        self._purge = progress.update + 1

    def record(self, record: Record) -> None:
        for name, value in record.items():
            if name not in ("update", "epoch", "seconds", "target_tokens") and value is not None:
                tag = name.replace("_", "/", 1) if name.startswith(("train_", "valid_")) else f"train/{name}"
                self.writer.add_scalar(tag, value, record["update"])

    def validated(self, progress: Progress, validation: Validation) -> None:
        text = "\n\n".join(
            f"**source** {_plain(sample.source)}\n\n**reference** {_plain(sample.reference)}\n\n"
            f"**translation** {_plain(sample.hypothesis)}\n\n---"
            for sample in validation.samples
        )
        self.writer.add_text("samples", text, progress.update)
        attending = [sample for sample in validation.samples if sample.weights]
        if self.attention_picture and attending:
            self.writer.add_figure("attention", draw_attention(attending[0]), progress.update)
        self.writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def draw_attention(sample: Sample) -> Any:
    """A matplotlib figure of one sample's weights, target down, source across; see LABELLED."""
    from matplotlib.figure import Figure

    assert sample.weights is not None
    height, width = len(sample.target_pieces), len(sample.source_pieces)
    labelled = max(height, width) <= LABELLED
    figure = Figure(figsize=(2 + 0.22 * width, 1.5 + 0.22 * height) if labelled else (10, 10), layout="tight")
    axes = figure.add_subplot()
    axes.imshow(sample.weights, cmap="Greys", vmin=0, aspect="auto")
    if labelled:
        axes.set_xticks(range(width), sample.source_pieces, rotation=90, fontsize=7, parse_math=False)
        axes.set_yticks(range(height), sample.target_pieces, fontsize=7, parse_math=False)
    return figure


def _plain(text: str) -> str:
    """Text that Markdown leaves alone, bounded in length."""
    text = text if len(text) <= 1000 else text[:1000] + " ..."
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|~" else letter for letter in text)


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def training_record(progress: Progress) -> Record:
    """The window since the last record as a line of history."""
    window = progress.window
    busy = progress.seconds - progress.aside_seconds - window.seconds
    tokens = max(1, window.tokens)
    return {
        **position(progress),
        "train_loss": window.loss / tokens,
        "train_nll": window.nll / tokens,
        "train_perplexity": perplexity(window.nll / tokens),
        "learning_rate": progress.learning_rate,
        "gradient_norm": window.norm / max(1, window.updates),
        "tokens_per_second": window.tokens / busy if busy > 0 else 0.0,
    }


def validation_record(progress: Progress, validation: Validation) -> Record:
    return {
        **position(progress),
        "valid_nll": validation.nll,
        "valid_perplexity": validation.perplexity,
        "valid_bleu": validation.bleu,
    }


def position(progress: Progress) -> Record:
    return {
        "update": progress.update,
        "epoch": round(progress.epochs, 6),
        "seconds": round(progress.seconds, 3),
        "target_tokens": progress.target_tokens,
    }

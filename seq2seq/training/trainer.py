"""`fit`: one call from parts to a trained run folder."""

from __future__ import annotations

import logging
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import MPSAccelerator
from torch import nn
from torch.optim import Optimizer

from seq2seq.errors import UserError
from seq2seq.interfaces import Batch
from seq2seq.search import Search
from seq2seq.training.callbacks import AVERAGED, BEST, LAST, CallbackSettings, Supervisor
from seq2seq.training.checkpoint import AtomicCheckpointIO, first_readable
from seq2seq.training.criterion import Criterion
from seq2seq.training.limits import Interval, Limits, ValidationInterval
from seq2seq.training.loggers import History, Observer, Terminal
from seq2seq.training.module import TranslationModule
from seq2seq.training.progress import seed_everything
from seq2seq.training.schedule import Schedule, duration
from seq2seq.training.signals import TrainingInterrupted, handlers_restored
from seq2seq.training.stream import BatchStream, Loader
from seq2seq.training.validation import Score, Validator

logger = logging.getLogger(__name__)

MATMUL_PRECISIONS = ("highest", "high", "medium")
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")


@dataclass(frozen=True)
class TrainerSettings:
    """The `trainer` group: keys and formats are Lightning's own where Lightning has them.

    max_steps, max_epochs, max_time ("DD:HH:MM:SS", counted over all resumes, validation included): training ends at
    whichever comes first; at least one is needed (None: no such limit). accumulate_grad_batches: micro-batches an
    update. gradient_clip_val: largest norm of the gradient of the mean loss per token. val_check_interval: see
    `ValidationInterval`. log_every_n_steps: updates a history line. threads: CPU threads of torch (None: its own
    choice). matmul_precision: as torch's. max_skipped: non-finite updates in a row that end training.
    validation_tokens: most that an evaluation batch has of sentences x its longest side. compile: torch.compile encoder
    and decoder.
    """

    accelerator: str = "cpu"
    devices: int | str = 1
    num_nodes: int = 1
    strategy: str = "auto"
    precision: str = "32-true"
    max_steps: int | None = None
    max_epochs: int | None = None
    max_time: str | dict[str, float] | None = None
    accumulate_grad_batches: int = 1
    gradient_clip_val: float | None = 1.0
    val_check_interval: Interval = 1.0
    log_every_n_steps: int = 50
    threads: int | None = None
    matmul_precision: str = "highest"
    max_skipped: int = 10
    validation_tokens: int = 4000
    compile: bool = False

    def __post_init__(self) -> None:
        for name in ("accumulate_grad_batches", "log_every_n_steps", "max_skipped", "validation_tokens", "num_nodes"):
            if getattr(self, name) < 1:
                raise UserError(f"trainer.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("max_steps", "max_epochs", "threads", "gradient_clip_val"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UserError(f"trainer.{name} must be positive or null, got {value}")
        for name, choices in (("precision", PRECISIONS), ("matmul_precision", MATMUL_PRECISIONS)):
            if getattr(self, name) not in choices:
                raise UserError(f"trainer.{name}={getattr(self, name)} is unknown\nChoose one of {', '.join(choices)}.")
        if self.max_steps is None and self.max_epochs is None and self.max_time is None:
            raise UserError("training would never end: set trainer.max_steps, trainer.max_epochs or trainer.max_time")
        if "spawn" in self.strategy or "fork" in self.strategy or "notebook" in self.strategy:
            raise UserError(f"trainer.strategy={self.strategy} is not supported\nUse ddp, which starts its processes.")
        self.limits()
        ValidationInterval(self.val_check_interval)

    def apply_to_torch(self) -> None:
        """Set torch's threads and the precision of its products for this process."""
        torch.set_float32_matmul_precision(self.matmul_precision)
        if self.threads is not None:
            torch.set_num_threads(self.threads)

    def limits(self) -> Limits:
        seconds = None if self.max_time is None else duration(self.max_time, "trainer.max_time")
        return Limits(self.max_steps, self.max_epochs, seconds)

    def build(self, run_dir: Path, supervisor: Supervisor | None = None) -> Trainer:
        """Lightning's Trainer with everything off that `Supervisor` does. Raises UserError if it cannot run here."""
        quieten_lightning()
        try:
            trainer = Trainer(
                accelerator=self.accelerator,
                devices=self.devices,
                num_nodes=self.num_nodes,
                strategy=self.strategy,
                precision=self.precision,  # type: ignore[arg-type]
                accumulate_grad_batches=self.accumulate_grad_batches,
                callbacks=supervisor,
                plugins=[AtomicCheckpointIO()],
                default_root_dir=run_dir,
                max_epochs=-1,
                limit_val_batches=0,
                num_sanity_val_steps=0,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                use_distributed_sampler=False,
            )
            if isinstance(trainer.accelerator, MPSAccelerator):
                raise ValueError("mps has no float64, in which losses and scores are summed up")
            return trainer
        except Exception as error:
            raise UserError(
                f"this machine cannot train with trainer.accelerator={self.accelerator} devices={self.devices} "
                f"strategy={self.strategy} precision={self.precision}: {str(error).splitlines()[0]}\n"
                "trainer=cpu works everywhere."
            ) from error


class Data(Protocol):
    """What training needs of `data.datamodule.TranslationData`, already prepared."""

    tokenizers: Any

    @property
    def fingerprint(self) -> str:
        """Of the corpus."""
        ...

    def train_loader(self, rank: int, world_size: int) -> Loader: ...

    def evaluation_batches(self, split: str, max_tokens: int) -> Iterable[Batch]: ...

    def pairs(self, split: str) -> tuple[list[str], list[str]]: ...


@dataclass(frozen=True)
class TrainingResult:
    """checkpoint: what to export, the best one on validation BLEU or the averaged one. device: of this process' model.
    main: whether this is the process that writes results. The rest is the "training" section of metrics.json."""

    checkpoint: Path
    device: torch.device
    main: bool
    averaged: bool
    updates: int
    epochs: float
    seconds: float
    cpu_seconds: float
    target_tokens: int
    target_tokens_per_second: float
    best_update: int
    best_valid_bleu: float | None
    skipped_updates: int
    stopped: str
    threads: int

    def summary(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("checkpoint", "device", "main")}


def fit(
    model: nn.Module,
    data: Data,
    *,
    criterion: Criterion,
    optimizer: Callable[[Iterable[Any]], Optimizer],
    schedule: Schedule,
    search: Search,
    trainer: TrainerSettings,
    callbacks: CallbackSettings,
    run_dir: str | Path,
    config: dict[str, Any],
    observers: Sequence[Observer] = (),
    seed: int = 1,
    score: Score | None = None,
) -> TrainingResult:
    """Train `model` in run_dir, going on from its last checkpoint if there is one.

    Writes checkpoints/{last,best}.ckpt (and averaged.ckpt) and history.jsonl. Validation is on the split "valid" by
    `search`, its BLEU by `score` (None: sacreBLEU's, default signature). config is what the checkpoint says about
    itself (plain values). observers come on top of the history and the terminal. On a CPU a resumed run is
    bit-identical to one never stopped, unless a limit, an interval or the schedule is given as wall time.

    Raises:
        UserError: settings that cannot work here, a damaged checkpoint, a full disk, a loss that is not finite.
        TrainingInterrupted: SIGTERM or Ctrl-C; the state has been saved.
    """
    run_dir = Path(run_dir)
    folder = run_dir / "checkpoints"
    trainer.apply_to_torch()
    module = TranslationModule(
        model,  # type: ignore[arg-type]
        criterion,
        optimizer,
        schedule,
        inference={"config": config, "tokenizers": data.tokenizers.state()},
        corpus=data.fingerprint,
        gradient_clip_val=trainer.gradient_clip_val,
        max_skipped=trainer.max_skipped,
        compile=trainer.compile,
    )
    supervisor = Supervisor(
        folder,
        callbacks,
        trainer.limits(),
        ValidationInterval(trainer.val_check_interval),
        trainer.log_every_n_steps,
        make_validator(data, search, trainer.validation_tokens, callbacks.samples, score),
        [History(), Terminal(callbacks.progress), *observers],
    )
    lightning = trainer.build(run_dir, supervisor)
    seed_everything(seed, lightning.global_rank)
    with handlers_restored(), others_watched():
        lightning.fit(
            module,
            train_dataloaders=BatchStream(
                lambda: data.train_loader(lightning.global_rank, lightning.world_size), module.progress
            ),
            ckpt_path=first_readable(folder / LAST, folder / BEST),
        )
    torch.set_float32_matmul_precision("highest")  # as whoever loads the model will translate
    progress = module.progress
    if supervisor.interrupted:
        # Without one of its own, this process stops because another one was told to.
        raise TrainingInterrupted(supervisor.signals.received or signal.SIGTERM, progress.update)
    return TrainingResult(
        checkpoint=folder / (AVERAGED if supervisor.averaged else BEST),
        device=lightning.strategy.root_device,
        main=lightning.is_global_zero,
        averaged=supervisor.averaged,
        updates=progress.update,
        epochs=round(progress.epochs, 4),
        seconds=round(progress.seconds, 3),
        cpu_seconds=round(progress.cpu_seconds, 3),
        target_tokens=progress.target_tokens,
        target_tokens_per_second=round(progress.tokens_per_second, 1),
        best_update=progress.best_update,
        best_valid_bleu=progress.best_bleu,
        skipped_updates=progress.skipped,
        stopped=progress.stopped or "",
        threads=torch.get_num_threads(),
    )


def make_validator(data: Data, search: Search, max_tokens: int, samples: int, score: Score | None = None) -> Validator:
    tokenizers = data.tokenizers
    return Validator(
        list(data.evaluation_batches("valid", max_tokens)),
        *data.pairs("valid"),
        search,
        tokenizers.target.decode,
        tokenizers.source.pieces,
        tokenizers.target.pieces,
        samples,
        score,
    )


@contextmanager
def others_watched() -> Iterator[None]:
    """Say in plain words that another process has gone, which this one learns by a broken connection."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.distributed.DistError) and "gloo" not in str(error):
            raise
        raise UserError(
            "another process of this training has ended: it has said why, or was killed, perhaps for want of memory\n"
            "The last good checkpoint stands; the same command goes on from there."
        ) from error


def quieten_lightning() -> None:
    """Silence what tells a user of this package nothing: banners, tips, and advice about loops that it replaces."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*You defined a `validation_step` but have no `val_dataloader`.*",
        ".*`srun` command is available.*",
        ".*Starting from v1.9.0, `tensorboardX` has been removed.*",
        ".*GPU available but not used.*",
        ".*isinstance.treespec, LeafSpec.*",
    ):
        warnings.filterwarnings("ignore", message=message)

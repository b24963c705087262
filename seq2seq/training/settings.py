"""Settings of a training: devices, limits, intervals. Keys and formats are Lightning's where Lightning has them."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lightning.fabric import Fabric
from lightning.fabric.accelerators.mps import MPSAccelerator
from lightning.fabric.strategies.fsdp import FSDPStrategy
from torch import nn

from seq2seq.errors import UserError
from seq2seq.kernels.product import Product, available, measure, products_of
from seq2seq.training.checkpoint import AtomicCheckpointIO
from seq2seq.training.schedule import duration
from seq2seq.training.state import TrainingState

Interval = int | float | str | dict[str, float]

MATMULS = ("auto", "mkl", "onednn")
MATMUL_PRECISIONS = ("highest", "high", "medium")
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
CHOICES = (("precision", PRECISIONS), ("matmul_precision", MATMUL_PRECISIONS), ("matmul", MATMULS))


@dataclass(frozen=True)
class Limits:
    """The end of training, whichever comes first: updates, epochs, seconds of wall time. None: unlimited."""

    max_steps: int | None = None
    max_epochs: int | None = None
    max_seconds: float | None = None

    def reached(self, updates: int, epochs: float, seconds: float) -> str | None:
        """Return the name of the limit that is reached, as configurations spell it, or None."""
        if self.max_steps is not None and updates >= self.max_steps:
            return "max_steps"
        if self.max_epochs is not None and epochs >= self.max_epochs:
            return "max_epochs"
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return "max_time"
        return None

    def fraction(self, state: TrainingState) -> float:
        """Return the used share of the tightest limit, 0 to 1."""
        used = [
            done / limit
            for done, limit in (
                (state.update, self.max_steps),
                (state.epochs, self.max_epochs),
                (state.seconds, self.max_seconds),
            )
            if limit is not None
        ]
        return min(1.0, max(used, default=0.0))


class ValidationInterval:
    """`val_check_interval` in Lightning's forms: a number of updates; a fraction or multiple of an epoch such as 0.25
    or 1.0; or wall time, "DD:HH:MM:SS". With a time, validations and so the choice of the best checkpoint depend on the
    machine's speed.
    """

    def __init__(self, value: Interval) -> None:
        self.updates = self.epochs = self.seconds = None
        if isinstance(value, bool) or (isinstance(value, (int, float)) and not 0 < value < math.inf):
            raise UserError(f"trainer.val_check_interval must be positive, got {value!r}")
        if isinstance(value, int):
            self.updates = value
        elif isinstance(value, float):
            self.epochs = value
        else:
            self.seconds = duration(value, "trainer.val_check_interval")

    def due(self, state: TrainingState) -> bool:
        if self.updates is not None:
            return state.update % self.updates == 0
        if self.epochs is not None:
            return _count(state.epochs, self.epochs) > _count(state.validated_epochs, self.epochs)
        assert self.seconds is not None
        return state.seconds - state.validated_seconds >= self.seconds


def _count(value: float, interval: float) -> int:
    return math.floor(value / interval + 1e-9)


@dataclass(frozen=True)
class TrainerSettings:
    """The `trainer` group.

    max_steps, max_epochs, max_time ("DD:HH:MM:SS", over all resumes, validation included): training ends at whichever
    comes first; at least one is needed (None: no such limit). patience: also stop after that many validations in a row
    without a new best score. accumulate_grad_batches: micro-batches per update. gradient_clip_val: largest norm of the
    gradient of the mean loss per token. val_check_interval: see `ValidationInterval`. validation_tokens: sentences x
    longest side of an evaluation batch. average_last: at the end also try the mean of the weights of that many last
    validations (0: don't), and keep it if its validation score is better. save_every_n_steps, save_minutes: write
    last.ckpt at least this often, besides after every validation (None: no such rule). log_every_n_steps: updates per
    history line. samples: validation translations to log. progress: show a live bar, or log lines where stderr is not a
    terminal. threads: CPU threads of torch (None: torch's choice). matmul_precision: as torch's. matmul: the library
    of float32 products on a CPU, see `products`. max_skipped: non-finite updates in a row that end training. compile:
    torch.compile encoder and decoder.
    """

    accelerator: str = "cpu"
    devices: int | str = 1
    num_nodes: int = 1
    strategy: str = "auto"
    precision: str = "32-true"
    max_steps: int | None = None
    max_epochs: int | None = None
    max_time: str | dict[str, float] | None = None
    patience: int | None = 10
    accumulate_grad_batches: int = 1
    gradient_clip_val: float | None = 1.0
    val_check_interval: Interval = 1.0
    validation_tokens: int = 4000
    average_last: int = 0
    save_every_n_steps: int | None = None
    save_minutes: float | None = 5.0
    log_every_n_steps: int = 50
    samples: int = 4
    progress: bool = True
    threads: int | None = None
    matmul_precision: str = "highest"
    matmul: str = "mkl"
    max_skipped: int = 10
    compile: bool = False

    def __post_init__(self) -> None:
        for name in ("accumulate_grad_batches", "log_every_n_steps", "max_skipped", "validation_tokens", "num_nodes"):
            if getattr(self, name) < 1:
                raise UserError(f"trainer.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("max_steps", "max_epochs", "threads", "gradient_clip_val", "patience", "save_every_n_steps",
                     "save_minutes"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UserError(f"trainer.{name} must be positive or null, got {value}")
        for name in ("average_last", "samples"):
            if getattr(self, name) < 0:
                raise UserError(f"trainer.{name} must not be negative, got {getattr(self, name)}")
        if self.average_last == 1:
            raise UserError("trainer.average_last=1 is not a mean; give 2 or more, or 0 for none")
        for name, choices in CHOICES:
            if getattr(self, name) not in choices:
                raise UserError(f"trainer.{name}={getattr(self, name)} is unknown\nChoose one of {', '.join(choices)}.")
        if self.compile and self.matmul != "mkl":
            raise UserError(
                f"trainer.matmul={self.matmul} has no effect on a compiled model\n"
                "Leave it out, or set trainer.compile=false."
            )
        if self.max_steps is None and self.max_epochs is None and self.max_time is None:
            raise UserError("training would never end: set trainer.max_steps, trainer.max_epochs or trainer.max_time")
        if "spawn" in self.strategy or "fork" in self.strategy or "notebook" in self.strategy:
            raise UserError(f"trainer.strategy={self.strategy} is not supported\nUse ddp, which starts its processes.")
        self.limits()
        ValidationInterval(self.val_check_interval)

    def limits(self) -> Limits:
        seconds = None if self.max_time is None else duration(self.max_time, "trainer.max_time")
        return Limits(self.max_steps, self.max_epochs, seconds)

    def end(self, state: TrainingState) -> str | None:
        """Return the name of the setting that ends training at this state, or None."""
        if self.patience is not None and state.stale >= self.patience:
            return "patience"
        return self.limits().reached(state.update, state.epochs, state.seconds)

    def validation_due(self, state: TrainingState) -> bool:
        return ValidationInterval(self.val_check_interval).due(state)

    def saving_due(self, state: TrainingState, saved_seconds: float) -> bool:
        """Return True if last.ckpt, last written at `saved_seconds`, is to be written between validations."""
        steps, minutes = self.save_every_n_steps, self.save_minutes
        return (steps is not None and state.update % steps == 0) or (
            minutes is not None and state.seconds - saved_seconds >= 60 * minutes
        )

    def apply_to_torch(self) -> None:
        """Set torch's threads and the precision of its matrix products for this process."""
        torch.set_float32_matmul_precision(self.matmul_precision)
        if self.threads is not None:
            torch.set_num_threads(self.threads)

    def products(self, model: nn.Module, device: torch.device) -> list[Product]:
        """Choose the model's products that oneDNN computes: none ("mkl"), all ("onednn"), or those that it computes
        faster in a measurement of a fraction of a second ("auto")."""
        exact = self.precision == "32-true" and self.matmul_precision == "highest"
        if self.matmul == "mkl" or device.type != "cpu" or not exact or not available():
            return []
        return products_of(model) if self.matmul == "onednn" else measure(products_of(model))

    def create_fabric(self, callbacks: Sequence[Any] = ()) -> Fabric:
        """Create Lightning's Fabric for these devices. Raises UserError if this machine cannot train like that."""
        quiet_lightning()
        try:
            fabric = Fabric(
                accelerator=self.accelerator,
                devices=self.devices,
                num_nodes=self.num_nodes,
                strategy=FSDPStrategy(state_dict_type="full") if self.strategy == "fsdp" else self.strategy,
                precision=self.precision,  # type: ignore[arg-type]
                plugins=[AtomicCheckpointIO()],
                callbacks=list(callbacks),
            )
            if isinstance(fabric.accelerator, MPSAccelerator):
                raise ValueError("mps has no float64, in which losses and scores are summed up")
            return fabric
        except Exception as error:
            raise UserError(
                f"this machine cannot train with trainer.accelerator={self.accelerator} devices={self.devices} "
                f"strategy={self.strategy} precision={self.precision}: {str(error).splitlines()[0]}\n"
                "trainer=cpu works everywhere."
            ) from error


def quiet_lightning() -> None:
    """Silence Lightning's banners and tips, which do not concern users of this package."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*`srun` command is available.*",
        ".*Starting from v1.9.0, `tensorboardX` has been removed.*",
        ".*GPU available but not used.*",
        ".*isinstance.treespec, LeafSpec.*",
    ):
        warnings.filterwarnings("ignore", message=message)

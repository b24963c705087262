"""When training ends, when it validates: pure questions to a run's progress."""

from __future__ import annotations

import math
from dataclasses import dataclass

from seq2seq.errors import UserError
from seq2seq.training.progress import Progress
from seq2seq.training.schedule import duration

Interval = int | float | str | dict[str, float]


@dataclass(frozen=True)
class Limits:
    """The end of training, whichever comes first: updates, epochs, seconds of wall time. None: unlimited."""

    max_steps: int | None = None
    max_epochs: int | None = None
    max_seconds: float | None = None

    def reached(self, progress: Progress) -> str | None:
        """See `exceeded`."""
        return self.exceeded(progress.update, progress.epochs, progress.seconds)

    def exceeded(self, updates: int, epochs: float, seconds: float) -> str | None:
        """The name of the limit that so much has reached, as it is written in a configuration."""
        if self.max_steps is not None and updates >= self.max_steps:
            return "max_steps"
        if self.max_epochs is not None and epochs >= self.max_epochs:
            return "max_epochs"
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return "max_time"
        return None

    def fraction(self, progress: Progress) -> float:
        """How much of the tightest limit is used, 0 to 1."""
        used = [
            done / limit
            for done, limit in (
                (progress.update, self.max_steps),
                (progress.epochs, self.max_epochs),
                (progress.seconds, self.max_seconds),
            )
            if limit is not None
        ]
        return min(1.0, max(used, default=0.0))


class ValidationInterval:
    """`trainer.val_check_interval`, in Lightning's forms: a whole number of updates; a fraction (or multiple) of an
    epoch such as 0.25 or 1.0; or wall time, "DD:HH:MM:SS". A time makes validations, and so the choice of the best
    checkpoint, depend on the machine's speed.
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

    def due(self, progress: Progress) -> bool:
        if progress.update == progress.validated_update:
            return False
        if self.updates is not None:
            return progress.update % self.updates == 0
        if self.epochs is not None:
            return _count(progress.epochs, self.epochs) > _count(progress.validated_epochs, self.epochs)
        assert self.seconds is not None
        return progress.seconds - progress.validated_seconds >= self.seconds


def _count(value: float, interval: float) -> int:
    return math.floor(value / interval + 1e-9)

"""Learning-rate schedules: the factor by which an update multiplies the optimizer's `lr`.

A schedule is called with the number of the update (from 1) and the seconds of training so far. All but `Plateau` are
pure functions of the two; `Plateau` also listens to validations and keeps a state.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from seq2seq.errors import UserError


class Schedule(Protocol):
    def __call__(self, update: int, seconds: float) -> float: ...

    def observe(self, update: int, better: bool) -> None:
        """A validation after that update is done; `better`: it is the best so far."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Stateless:
    """Last three methods of `Schedule`, for schedules without state."""

    def observe(self, update: int, better: bool) -> None:
        return

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        return


class Constant(Stateless):
    """Linear warm-up over `warmup` updates, then 1."""

    def __init__(self, warmup: int = 0) -> None:
        self.warmup = _warmup(warmup)

    def __call__(self, update: int, seconds: float) -> float:
        return warmed_up(update, self.warmup)


class InverseSqrt(Stateless):
    """Vaswani et al. 2017, equation 3, scaled so that its peak, at update `warmup`, is 1:
    min(update / warmup, sqrt(warmup / update)). `optimizer.lr` is therefore the peak rate; the paper's is
    (width * warmup) ** -0.5.
    """

    def __init__(self, warmup: int = 4000) -> None:
        if warmup < 1:
            raise UserError(f"schedule.warmup must be at least 1 for inverse_sqrt, got {warmup}")
        self.warmup = warmup

    def __call__(self, update: int, seconds: float) -> float:
        return min(update / self.warmup, math.sqrt(self.warmup / update))


class Decay(Stateless):
    """Warm-up over `warmup` updates, then decay to `floor`, which update `total` would be followed by.

    shape "cosine": floor + (1 - floor) (1 + cos(pi x)) / 2 (Loshchilov and Hutter 2017, equation 5), "linear":
    floor + (1 - floor) (1 - x), with x the fraction of the updates after warm-up that are done. No update has the rate
    of x = 1, so that with floor 0 the last one still learns.
    """

    def __init__(self, total: int, warmup: int = 0, shape: str = "cosine", floor: float = 0.0) -> None:
        if total < 1:
            raise UserError(
                f"schedule.total must be the number of updates in all, got {total}\n"
                "Set trainer.max_steps (or schedule.total), or use schedule=wall_clock with trainer.max_time."
            )
        self.total = total
        self.warmup = _warmup(warmup)
        self.shape = _shape(shape)
        self.floor = _floor(floor)

    def __call__(self, update: int, seconds: float) -> float:
        if update < self.warmup:
            return update / self.warmup
        return decayed((update - self.warmup) / max(1, self.total + 1 - self.warmup), self.shape, self.floor)


class WallClock(Stateless):
    """As `Decay`, but x is the fraction used of `max_time` ("DD:HH:MM:SS"), so that a run on a time budget ends on a
    low rate however fast the machine is. Two runs never see exactly the same rates: not reproducible bit for bit.
    """

    def __init__(
        self, max_time: str | dict[str, float] | None, warmup: int = 0, shape: str = "linear", floor: float = 0.0
    ) -> None:
        if max_time is None:
            raise UserError("schedule=wall_clock needs a time budget\nSet trainer.max_time, such as 00:00:10:00.")
        self.budget = duration(max_time, "schedule.max_time")
        self.warmup = _warmup(warmup)
        self.shape = _shape(shape)
        self.floor = _floor(floor)

    def __call__(self, update: int, seconds: float) -> float:
        rate = decayed(seconds / self.budget, self.shape, self.floor)
        return warmed_up(update, self.warmup) * rate


class Plateau:
    """Warm-up, then multiplied by `factor` whenever `patience` validations in a row were not the best so far, down to
    `floor`. Validations during warm-up don't count."""

    def __init__(self, warmup: int = 0, factor: float = 0.5, patience: int = 2, floor: float = 0.01) -> None:
        if not 0 < factor < 1:
            raise UserError(f"schedule.factor must lie between 0 and 1, got {factor}")
        if patience < 1:
            raise UserError(f"schedule.patience must be at least 1, got {patience}")
        self.warmup = _warmup(warmup)
        self.factor = factor
        self.patience = patience
        self.floor = _floor(floor)
        self.rate = 1.0
        self.stale = 0

    def __call__(self, update: int, seconds: float) -> float:
        return warmed_up(update, self.warmup) * self.rate

    def observe(self, update: int, better: bool) -> None:
        self.stale = 0 if better or update < self.warmup else self.stale + 1
        if self.stale >= self.patience:
            self.rate, self.stale = max(self.floor, self.rate * self.factor), 0

    def state_dict(self) -> dict[str, Any]:
        return {"rate": self.rate, "stale": self.stale}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rate, self.stale = state["rate"], state["stale"]


def warmed_up(update: int, warmup: int) -> float:
    return min(1.0, update / warmup) if warmup else 1.0


def decayed(fraction: float, shape: str, floor: float) -> float:
    fraction = min(max(fraction, 0.0), 1.0)
    height = (1 + math.cos(math.pi * fraction)) / 2 if shape == "cosine" else 1 - fraction
    return floor + (1 - floor) * height


def duration(value: str | dict[str, float], key: str) -> float:
    """Seconds in Lightning's formats: "DD:HH:MM:SS", or a mapping of days, hours, minutes and seconds."""
    units = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
    help_text = f"Write {key}=DD:HH:MM:SS, such as 00:01:30:00, or {{minutes: 90}}."
    try:
        if isinstance(value, str):
            parts = value.split(":")
            if len(parts) != 4:
                raise ValueError
            seconds = sum(int(part) * unit for part, unit in zip(parts, units.values(), strict=True))
        else:
            seconds = sum(number * units[unit] for unit, number in value.items())
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{key}={value!r} is no duration\n{help_text}") from None
    if not 0 < seconds < math.inf:
        raise UserError(f"{key}={value!r} must be longer than nothing\n{help_text}")
    return seconds


def _warmup(value: int) -> int:
    if value < 0:
        raise UserError(f"schedule.warmup must not be negative, got {value}")
    return value


def _shape(value: str) -> str:
    if value not in ("cosine", "linear"):
        raise UserError(f"schedule.shape must be cosine or linear, got {value!r}")
    return value


def _floor(value: float) -> float:
    if not 0 <= value < 1:
        raise UserError(f"schedule.floor must be at least 0 and below 1, got {value}")
    return value

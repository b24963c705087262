"""The state of a run: updates, epochs, time and scores, saved whole in every checkpoint; and random numbers."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import torch


@dataclass
class Window:
    """Sums since the last line of the training log; seconds is the training time at its start."""

    loss: float = 0.0
    nll: float = 0.0
    tokens: int = 0
    norm: float = 0.0
    updates: int = 0
    seconds: float = 0.0


@dataclass
class TrainingState:
    """Counters of a run, plain numbers only. Every decision of the training loop is a function of them, so it is the
    same in all processes and after a resume.

    update: optimizer steps taken. loader: the training loader's state after the last batch trained on. seconds: wall
    time of training over all resumes; aside_seconds: the part spent on validation and saving. cpu_seconds: processor
    time of the first process. skipped: updates dropped because a loss or gradient was not finite. stale: validations
    since the best one. onednn: fields of each `kernels.product.Product` given to oneDNN, None before the choice.
    stopped: the limit that ended training, or None.
    """

    update: int = 0
    loader: dict[str, int] = field(default_factory=dict)
    target_tokens: int = 0
    seconds: float = 0.0
    aside_seconds: float = 0.0
    cpu_seconds: float = 0.0
    skipped: int = 0
    skipped_in_row: int = 0
    learning_rate: float = 0.0
    validations: int = 0
    validated_update: int = 0
    validated_epochs: float = 0.0
    validated_seconds: float = 0.0
    best_update: int = 0
    best_score: float | None = None
    best_nll: float | None = None
    lowest_train_nll: float | None = None
    stale: int = 0
    onednn: list[list[Any]] | None = None
    stopped: str | None = None
    window: Window = field(default_factory=Window)

    @property
    def epochs(self) -> float:
        """Epochs done, with the fraction of the current one."""
        if not self.loader:
            return 0.0
        return self.loader["epoch"] + self.loader["consumed"] / max(1, self.loader["batches"])

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second of training proper."""
        busy = self.seconds - self.aside_seconds
        return self.target_tokens / busy if busy > 0 else 0.0

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        known = {field.name for field in fields(self)}
        for name, value in state.items():
            if name in known:
                setattr(self, name, Window(**value) if name == "window" else value)

    def improves(self, score: float, nll: float) -> bool:
        """Return True if a validation beats the best: a higher score, or the same with a lower NLL."""
        if self.best_score is None or self.best_nll is None or math.isnan(self.best_nll):
            return True
        return score > self.best_score or (score == self.best_score and nll < self.best_nll)

    def record_validation(self, score: float, nll: float) -> bool:
        """Count a validation at this update; return True if it is the best so far."""
        self.validations += 1
        self.validated_update = self.update
        self.validated_epochs = self.epochs
        self.validated_seconds = self.seconds
        better = self.improves(score, nll)
        if better:
            self.best_score, self.best_nll, self.best_update = score, nll, self.update
        self.stale = 0 if better else self.stale + 1
        return better


class Stopwatch:
    """Wall time and processor time of a run over all resumes; continues from what its state has on record."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self._before, self._cpu_before = state.seconds, state.cpu_seconds
        self._since, self._cpu_since = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        return self._before + time.perf_counter() - self._since

    def record_cpu(self) -> None:
        """Write the processor time to the state. (Wall time is the first process's, which each update shares.)"""
        self._state.cpu_seconds = self._cpu_before + time.process_time() - self._cpu_since

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Count the time spent inside as time aside from training."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._state.aside_seconds += time.perf_counter() - begin


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed torch, numpy and python for one process."""
    torch.manual_seed(seed + rank)
    np.random.seed((seed + rank) % 2**32)
    random.seed(seed + rank)


def random_state() -> dict[str, Any]:
    """States of all global generators of this process, as plain values and tensors."""
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, internal, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [str(kind), [int(key) for key in keys], int(position), int(has_gauss), float(cached)],
        "python": [version, list(internal), gauss],
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Undo what has been drawn since `random_state`."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Leave the random numbers of training as if nothing had been drawn inside."""
    state = random_state()
    try:
        yield
    finally:
        restore_random_state(state)

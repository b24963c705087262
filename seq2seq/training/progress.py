"""How far a run has come: the one truth about updates, epochs, time and scores, saved in every checkpoint."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
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
class Progress:
    """Counters of a run, plain numbers only.

    update: optimizer steps taken. loader: the state of the training loader after the last batch trained on. seconds:
    wall time of training, all told and over all resumes; aside_seconds: the part of it that validation and saving
    took. cpu_seconds: processor time of training in the first process. skipped: updates dropped because something in
    them was not finite. stale: validations since the best. pending: a validation was due at this update but has not
    been done. stopped: why training is over, if it is.
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
    best_bleu: float | None = None
    best_nll: float | None = None
    lowest_train_nll: float | None = None
    stale: int = 0
    pending: bool = False
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
        for name, value in state.items():
            setattr(self, name, Window(**value) if name == "window" else value)

    def improves(self, bleu: float, nll: float) -> bool:
        """Whether a validation beats the best: higher BLEU, and lower NLL where BLEU ties."""
        if self.best_bleu is None or self.best_nll is None or math.isnan(self.best_nll):
            return True
        return bleu > self.best_bleu or (bleu == self.best_bleu and nll < self.best_nll)


class Stopwatch:
    """Wall time and processor time over all resumes, and the wall time spent aside from training."""

    def __init__(self) -> None:
        self._before = self._cpu_before = self.aside_seconds = 0.0
        self._since, self._cpu_since = time.perf_counter(), time.process_time()

    def start(self, progress: Progress) -> None:
        """Go on from what progress has on record."""
        self._before, self._cpu_before = progress.seconds, progress.cpu_seconds
        self.aside_seconds = progress.aside_seconds
        self._since, self._cpu_since = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        return self._before + time.perf_counter() - self._since

    def record(self, progress: Progress) -> None:
        """Note the times that progress keeps; its seconds follow the update, on all processes alike."""
        progress.aside_seconds = self.aside_seconds
        progress.cpu_seconds = self._cpu_before + time.process_time() - self._cpu_since

    @contextmanager
    def aside(self) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.aside_seconds += time.perf_counter() - begin


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
def undisturbed() -> Iterator[None]:
    """Whatever is drawn inside, training's random numbers go on as if it had not been."""
    state = random_state()
    try:
        yield
    finally:
        restore_random_state(state)

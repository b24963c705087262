"""Requests to stop: SIGTERM (a scheduler's preemption) and the first Ctrl-C save the run and end it."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

EXIT_CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}
"""75 is EX_TEMPFAIL of sysexits.h: try again later."""


class TrainingInterrupted(Exception):
    """Training was asked to stop; the same command resumes it.

    update: where its state has been saved (None: it was not training, and there was nothing to save).
    """

    def __init__(self, number: int, update: int | None = None) -> None:
        super().__init__(number, update)
        self.number = signal.Signals(number)
        self.update = update

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.number]

    def __str__(self) -> str:
        if self.update is None:
            return f"stopped by {self.number.name}; what is done is kept, and the same command resumes from there"
        return f"stopped by {self.number.name} and saved at update {self.update}; the same command resumes from there"


class StopSignals:
    """Remembers the first SIGTERM or SIGINT inside its context: `received` is its number, or None. A second SIGINT
    raises KeyboardInterrupt as usual. Only the main thread of a process can listen."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in EXIT_CODES}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number

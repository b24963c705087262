"""Being told to stop: SIGTERM (a scheduler's preemption) and the first Ctrl-C save the run and end it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}
"""75 is EX_TEMPFAIL of sysexits.h: try again later."""


class TrainingInterrupted(Exception):
    """Training was told to stop and can be taken up again by the same command.

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
            return f"stopped by {self.number.name}; what is done is kept, and the same command goes on from there"
        return f"stopped by {self.number.name} and saved at update {self.update}; the same command goes on from there"


class StopSignals:
    """Remembers the first SIGTERM or SIGINT; `received` is its number, or None. A second SIGINT ends as usual."""

    def __init__(self) -> None:
        self.received: int | None = None

    def listen(self) -> None:
        """From now on; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            for number in EXIT_CODES:
                signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number


@contextmanager
def handlers_restored() -> Iterator[None]:
    """Put back at the end what handled the signals before."""
    before = {number: signal.getsignal(number) for number in EXIT_CODES}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)

"""The processes of Hydra's launchers, and signals that stop them together."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from seq2seq.commands.console import prepare_streams
from seq2seq.training.signals import EXIT_CODES, TrainingInterrupted

POLL = 0.5


def in_worker() -> bool:
    """Return True in a process of a launcher: hydra/launcher=joblib or submitit_*."""
    return by_joblib() or "SUBMITIT_EXECUTOR" in os.environ


def by_joblib() -> bool:
    """Return True in a process of hydra/launcher=joblib."""
    return multiprocessing.parent_process() is not None


def launcher_workers() -> list[multiprocessing.process.BaseProcess]:
    """List the processes that this one has started for hydra/launcher=joblib."""
    return [child for child in multiprocessing.active_children() if type(child).__name__ == "LokyProcess"]


def enter_worker() -> None:
    """Prepare a launcher's process for its jobs; a process of joblib then ends with the process that started it."""
    if in_worker():
        prepare_streams()
    if by_joblib():
        end_with_parent()


class _Stopped(BaseException):
    """Raised by a signal handler; not an Exception, so that no `except Exception` catches it."""


@contextmanager
def preemptible() -> Iterator[None]:
    """Give SIGTERM its exit status before and after training, too, when there is nothing to save. (The training loop
    has handlers of its own, which save.)

    SIGTERM and Ctrl-C are passed on to workers, which save their trainings; this process waits for them.

    Raises:
        SystemExit: a signal arrived. In a worker TrainingInterrupted, which the launcher returns to its caller.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if received:
            os._exit(EXIT_CODES[signal.Signals(number)])
        workers = launcher_workers()
        for worker in workers:
            worker.terminate()
        if not workers and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)
        if not workers:
            raise _Stopped

    before = {number: signal.signal(number, stop) for number in EXIT_CODES}
    try:
        yield
    except _Stopped:
        interrupted = TrainingInterrupted(received[0])
        print(interrupted, file=sys.stderr)
        if in_worker():
            raise interrupted from None
        raise SystemExit(interrupted.exit_code) from None
    except Exception as error:
        ended = (
            error if isinstance(error, TrainingInterrupted) else TrainingInterrupted(received[0]) if received else None
        )
        if ended is None or in_worker():
            raise
        raise SystemExit(ended.exit_code) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def worker_training() -> Iterator[None]:
    """Make a training `preemptible` in a launcher's worker, where after a stop no other begins; else do nothing."""
    if not in_worker():
        yield
        return
    if _stops:
        raise _stops[0]
    try:
        with _training, preemptible():
            yield
    except TrainingInterrupted as stop:
        _stops.append(stop)
        raise


_stops: list[TrainingInterrupted] = []
_training = threading.Lock()
"""Held by a worker while it trains."""


def end_with_parent(name: str = "end with parent") -> None:
    """Start a thread of this name that ends this process when the process that started it has gone: by SIGTERM, which
    stops and saves a training, and then for good."""
    if any(thread.name == name for thread in threading.enumerate()):
        return
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL)
        os.kill(os.getpid(), signal.SIGTERM)
        with _training:
            os._exit(EXIT_CODES[signal.SIGTERM])

    threading.Thread(target=watch, name=name, daemon=True).start()

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
    """Whether a launcher runs this in a process of its own: hydra/launcher=joblib or submitit_*."""
    return by_joblib() or "SUBMITIT_EXECUTOR" in os.environ


def by_joblib() -> bool:
    return multiprocessing.parent_process() is not None


def launcher_workers() -> list[multiprocessing.process.BaseProcess]:
    """The processes in which the joblib launcher runs trainings."""
    return [child for child in multiprocessing.active_children() if type(child).__name__ == "LokyProcess"]


def enter_worker() -> None:
    """Prepare a launcher's process for its jobs. One of joblib's ends with the process that started it."""
    if in_worker():
        prepare_streams()
    if by_joblib():
        end_with_parent()


class _Stopped(BaseException):
    """Raised out of a signal's handler; no `except Exception` may take it for an error and go on."""


@contextmanager
def preemptible() -> Iterator[None]:
    """Within it SIGTERM ends the program with its own exit status before and after training too, where nothing needs
    saving: what has been written is whole. (While it trains, training listens itself, and saves.)

    To workers that train, SIGTERM and Ctrl-C are passed on, and they are waited for.

    Raises:
        SystemExit: stopped. In a worker TrainingInterrupted, which its launcher carries home.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if told:
            os._exit(EXIT_CODES[signal.Signals(number)])
        workers = launcher_workers()
        for worker in workers:
            worker.terminate()
        if not workers and number == signal.SIGINT:
            raise KeyboardInterrupt
        told.append(number)
        if not workers:
            raise _Stopped

    before = {number: signal.signal(number, stop) for number in EXIT_CODES}
    try:
        yield
    except _Stopped:
        interrupted = TrainingInterrupted(told[0])
        print(interrupted, file=sys.stderr)
        if in_worker():
            raise interrupted from None
        raise SystemExit(interrupted.exit_code) from None
    except Exception as error:
        ended = error if isinstance(error, TrainingInterrupted) else TrainingInterrupted(told[0]) if told else None
        if ended is None or in_worker():
            raise
        raise SystemExit(ended.exit_code) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def launched() -> Iterator[None]:
    """Around a training. In a launcher's worker: `preemptible`; after a stop no other training begins. Elsewhere
    nothing."""
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
    """From now on, end this process once the one that started it has gone: by SIGTERM, and after a training that this
    has stopped. A thread of this name waits for it."""
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

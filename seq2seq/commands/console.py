"""The standard streams, and log lines on standard error and in a run's own file."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seq2seq.errors import UserError


def prepare_streams() -> None:
    """Write UTF-8 to standard output and error whatever the locale. Closed streams take no file's number from now on,
    and what goes to a closed standard error is dropped."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open to the end)
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def need_output(way_out: str) -> None:
    """Raises UserError if standard output is closed."""
    if sys.stdout is None:
        raise UserError(f"standard output is closed\n{way_out}")


@contextmanager
def talk_to(path: Path | None = None, name: str = "") -> Iterator[None]:
    """Within it, what the package logs goes to standard error after `name`, and with times to `path` (appended)."""
    logger = logging.getLogger("seq2seq")
    before = logger.level
    handlers: list[logging.Handler] = [_Stderr()]
    handlers[0].setFormatter(logging.Formatter(f"{name}: %(message)s" if name else "%(message)s"))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(_File(path, encoding="utf-8"))
        handlers[1].setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.setLevel(logging.INFO)
    for handler in handlers:
        logger.addHandler(handler)
    hook, threading.excepthook = threading.excepthook, _thread_ended
    try:
        yield
    finally:
        threading.excepthook = hook
        logger.setLevel(before)
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()


def hush() -> None:
    """Of several processes of one training the first does the talking."""
    logging.getLogger("seq2seq").addHandler(logging.NullHandler())


def _thread_ended(ended: threading.ExceptHookArgs) -> None:
    """TensorBoard's events are written by a thread, to a disk that may be full."""
    if isinstance(ended.exc_value, OSError):
        print(f"warning: {ended.exc_value}", file=sys.stderr, flush=True)
    else:
        threading.__excepthook__(ended)


class _File(logging.FileHandler):
    """A file that may come to lie on a full disk: said once, and training goes on."""

    told = False

    def handleError(self, record: logging.LogRecord) -> None:
        if not self.told:
            self.told = True
            print(f"warning: cannot write {self.baseFilename}: {sys.exc_info()[1]}", file=sys.stderr, flush=True)

    def close(self) -> None:
        with suppress(OSError):
            super().close()


class _Stderr(logging.Handler):
    """Whatever `sys.stderr` is at the moment: a live progress bar replaces it to print above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        print(f"{prefix}{self.format(record)}", file=sys.stderr, flush=True)

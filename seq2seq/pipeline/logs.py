"""Log lines on standard error and in a run's own file."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def logging_to(path: Path | None = None, name: str = "") -> Iterator[None]:
    """Print the package's log on standard error, each line after `name`, and append it with times to `path`. A
    repeated warning is logged only once."""
    logger = logging.getLogger("seq2seq")
    before = logger.level
    handlers: list[logging.Handler] = [_Stderr()]
    before_line = f"{name}: ".replace("%", "%%") if name else ""
    handlers[0].setFormatter(logging.Formatter(f"{before_line}%(message)s"))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(_File(path, encoding="utf-8"))
        handlers[1].setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.setLevel(logging.INFO)
    for handler in handlers:
        handler.addFilter(_Once())
        logger.addHandler(handler)
    hook, threading.excepthook = threading.excepthook, _thread_failed
    try:
        yield
    finally:
        threading.excepthook = hook
        logger.setLevel(before)
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()


def silence() -> None:
    """Drop the log of this process: of several processes of one training, rank zero logs for all."""
    logging.getLogger("seq2seq").addHandler(logging.NullHandler())


def _thread_failed(ended: threading.ExceptHookArgs) -> None:
    """Warn where a thread that writes TensorBoard's events meets a full disk."""
    if isinstance(ended.exc_value, OSError):
        print(f"warning: {ended.exc_value}", file=sys.stderr, flush=True)
    else:
        threading.__excepthook__(ended)


class _Once(logging.Filter):
    """Drop repeated warnings, such as the same advice before training and again for each test set."""

    def __init__(self) -> None:
        super().__init__()
        self._given: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        text = record.getMessage()
        new = text not in self._given
        self._given.add(text)
        return new


class _File(logging.FileHandler):
    """A file whose disk may fill up: warns once, and training continues."""

    warned = False

    def handleError(self, record: logging.LogRecord) -> None:
        if not self.warned:
            self.warned = True
            print(f"warning: cannot write {self.baseFilename}: {sys.exc_info()[1]}", file=sys.stderr, flush=True)

    def close(self) -> None:
        with suppress(OSError):
            super().close()


class _Stderr(logging.Handler):
    """Writes to the `sys.stderr` of the moment: a live progress bar replaces it to print above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        print(f"{prefix}{self.format(record)}", file=sys.stderr, flush=True)

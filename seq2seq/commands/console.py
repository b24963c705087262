"""Talk: log lines on standard error, and in a run's own file."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def talk_to(path: Path | None = None, name: str = "") -> Iterator[None]:
    """Within it, what the package logs goes to standard error after `name`, and with times to `path` (appended)."""
    logger = logging.getLogger("seq2seq")
    before = logger.level
    handlers: list[logging.Handler] = [_Stderr()]
    handlers[0].setFormatter(logging.Formatter(f"{name}: %(message)s" if name else "%(message)s"))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(path, encoding="utf-8"))
        handlers[1].setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.setLevel(logging.INFO)
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(before)
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()


class _Stderr(logging.Handler):
    """Whatever `sys.stderr` is at the moment: a live progress bar replaces it to print above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        print(f"{prefix}{self.format(record)}", file=sys.stderr, flush=True)

"""Standard input, output and error: UTF-8 everywhere, and safe where one is closed or cannot be written."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from seq2seq.errors import UserError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Output(io.FileIO):
    """Standard output that is named in errors of writing to it."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = "standard output"
            raise


class _Messages(io.FileIO):
    """Standard error that drops what cannot be written, as on a full disk or a closed terminal: that is no reason to
    stop a training."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare_streams() -> None:
    """Write UTF-8 to standard output and error in any locale.

    Closed streams are replaced by the null device, so that no file gets their number. Streams that a caller has
    replaced stay as they are.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open to the end)
    if sys.stdout is not None and sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout, "surrogateescape")
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Messages(2, "w", closefd=False), sys.stderr, "backslashreplace")


def _text(raw: io.FileIO, before: Any, errors: str) -> io.TextIOWrapper:
    """Return a UTF-8 stream that writes to `raw`, buffered like the stream `before`."""
    with suppress(OSError):
        before.flush()
    unbuffered = getattr(before, "write_through", False)  # python -u, PYTHONUNBUFFERED
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        "utf-8",
        errors,
        newline="\n",
        line_buffering=getattr(before, "line_buffering", True),
        write_through=unbuffered,
    )


def need_output(way_out: str) -> None:
    """Refuse to continue if standard output is closed.

    Raises:
        UserError: it is closed.
    """
    if sys.stdout is None:
        raise UserError(f"standard output is closed\n{way_out}")

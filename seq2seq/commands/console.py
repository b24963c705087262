"""Standard input, output and error: UTF-8 everywhere, and closed ones."""

from __future__ import annotations

import io
import os
import sys

from seq2seq.errors import UserError


def prepare_streams() -> None:
    """Write UTF-8 to standard output and error in any locale.

    Closed streams are replaced by the null device, so that no file gets their number.
    """
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
    """Refuse to continue if standard output is closed.

    Raises:
        UserError: it is closed.
    """
    if sys.stdout is None:
        raise UserError(f"standard output is closed\n{way_out}")

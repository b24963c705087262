"""Reading lines to translate from files, pipes and terminals."""

from __future__ import annotations

import io
import os
import select
import stat
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from seq2seq.data.readers import BOM, read_lines, refuse_other_formats
from seq2seq.inference.text_windows import FIRST_WINDOW, growing_windows

PATIENCE = 0.02
"""Seconds that a pipe or terminal may be silent before the lines that have arrived are translated."""
CHUNK = 1 << 16


def line_windows(source: BinaryIO, size: int) -> Iterator[list[str]]:
    """Lines without their ends in lists of at most `size`: small lists first, and whatever has arrived when a pipe or
    terminal pauses.

    A file may be compressed (see `read_lines`). Invalid bytes become lone surrogates, see `repaired`.

    Raises:
        UserError: a file that is damaged or in UTF-16, a pipe that is compressed or in UTF-16.
    """
    descriptor = live_descriptor(source)
    if descriptor is None:
        yield from growing_windows(read_lines(source, errors="surrogateescape"), size)
        return
    rest = bytearray()
    lines: list[str] = []
    now, first = min(FIRST_WINDOW, size), True
    while True:
        ready = select.select([descriptor], [], [], PATIENCE if lines else None)[0]
        chunk = os.read(descriptor, CHUNK) if ready else b""
        if ready and not chunk:
            break
        *whole, tail = chunk.split(b"\n")
        if whole:
            for line in (bytes(rest) + whole[0], *whole[1:]):
                lines.append(_decoded(line, first))
                first = False
            rest = bytearray(tail)
        else:
            rest += tail
        while len(lines) >= now or (lines and not ready):
            yield lines[:now]
            lines, now = lines[now:], min(2 * now, size)
    if rest and not (first and rest == BOM):
        lines.append(_decoded(bytes(rest), first))
    remaining = iter(lines)
    while window := list(islice(remaining, size)):
        yield window


def _decoded(line: bytes, first: bool) -> str:
    """The text of a line; without a byte order mark if it is the first of its pipe."""
    if first:
        refuse_other_formats(line, "standard input")
        line = line.removeprefix(BOM)
    return line.removesuffix(b"\r").decode("utf-8", "surrogateescape")


def repaired(line: str) -> tuple[str, bool]:
    """The line with U+FFFD in place of bytes that are not UTF-8, and whether it had any."""
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), True
    return line, False


def live_descriptor(source: BinaryIO) -> int | None:
    """The file descriptor of a pipe, socket or terminal; None for files, and where such things cannot be waited for."""
    try:
        descriptor = source.fileno()
    except (io.UnsupportedOperation, AttributeError, OSError):
        return None
    mode = os.fstat(descriptor).st_mode
    if os.name == "nt" or not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)):
        return None
    return descriptor

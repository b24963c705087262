"""Writing translations as lines of text or JSON, and resuming an output that was begun."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from seq2seq.errors import UserError

if TYPE_CHECKING:
    from seq2seq.inference.translation import Translation

FORMATS = {"text": "text", "jsonl": "JSON lines"}


def encode(translation: Translation, number: int | None) -> bytes:
    """One line of output; with a line number it is a JSON object."""
    if number is not None:
        return json.dumps({"line": number, **translation.record()}, ensure_ascii=False).encode("utf-8") + b"\n"
    return translation.text.encode("utf-8", "replace") + b"\n"


def format_of(line: bytes) -> str:
    """The format of a line that `encode` wrote."""
    return "text" if _record(line) is None else "jsonl"


def _record(line: bytes) -> dict[str, object] | None:
    """The JSON object in a line of output; None for text."""
    if not line.startswith(b'{"line": '):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and {"line", "text", "score"} <= record.keys() else None


def resume_after(file: BinaryIO, name: str, output_format: str, first: int, step: int) -> int:
    """Cut a half line at the end of `file` and move there; the number of whole lines.

    first, step: the line numbers of this output are first, first + step, ...

    Raises:
        UserError: it was written in another format, or by another shard.
    """
    lines, end, place, last = 0, 0, 0, b""
    for line in file:
        if lines == 0 and line.endswith(b"\n"):
            _check_format(line, name, output_format)
        place += len(line)
        if line.endswith(b"\n"):
            lines, end, last = lines + 1, place, line
    record = _record(last) if output_format == "jsonl" else None
    if record is not None and record["line"] != first + (lines - 1) * step:
        raise UserError(
            f"output={name}: line {lines} is the translation of line {record['line']} of an input, not of "
            f"{first + (lines - 1) * step}: another shard's output?\nGive another output, or leave out resume=true."
        )
    file.seek(end)
    file.truncate()
    return lines


def _check_format(line: bytes, name: str, output_format: str) -> None:
    """Raises UserError if the first line of an output is in another format."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(
            f"output={name} is not UTF-8 text: it cannot be resumed\nGive another output, or leave out resume=true."
        ) from None
    if (found := format_of(line)) != output_format:
        raise UserError(
            f"output={name} contains {FORMATS[found]}, not {FORMATS[output_format]}: it cannot be resumed with "
            f"format={output_format}\nGive format={found} or another output, or leave out resume=true."
        )


def same_file(one: str | Path | None, other: str | Path | None) -> bool:
    """True if two paths lead to one existing file; False for standard input and output."""
    if one is None or other is None or not (os.path.exists(one) and os.path.exists(other)):
        return False
    return os.path.samefile(one, other) and not stat.S_ISCHR(os.stat(one).st_mode)

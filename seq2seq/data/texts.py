"""Texts to score: one segment per line, plain or as the JSON lines that `seq2seq translate format=jsonl` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seq2seq.data.readers import COMPRESSIONS, clean, read_lines
from seq2seq.errors import UserError

JSON_LINES = (".jsonl", ".ndjson", ".json")


def read_texts(path: str | Path) -> list[str]:
    """Read the segments of a file; of JSON lines the "text" of each.

    Lines are JSON where the file's name says so, or where every line is a JSON object.

    Raises:
        UserError: naming the line that is not valid UTF-8, or that lacks "text".
    """
    path = Path(path)
    lines = list(read_lines(path))
    named = any(path.name.endswith(ending + packed) for ending in JSON_LINES for packed in COMPRESSIONS)
    if not named and not (lines and all(isinstance(_parsed(line), dict) for line in lines)):
        return lines
    texts = []
    for number, line in enumerate(lines, start=1):
        record = _parsed(line)
        if not isinstance(record, dict) or not isinstance(record.get("text"), str):
            raise UserError(
                f'{path}, line {number}: not a JSON object with a "text"\n'
                "Give plain text, one segment per line, or what seq2seq translate format=jsonl writes."
            )
        texts.append(clean(record["text"]))
    return texts


def _parsed(line: str) -> Any:
    """The line's JSON value; None where it is not JSON."""
    try:
        return json.loads(line) if line.lstrip().startswith("{") else None
    except ValueError:
        return None

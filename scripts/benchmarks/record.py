"""The circumstances recorded beside a result's figures, and the printed form of both."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any


@dataclass
class Record:
    """Circumstances of a measurement. load: the machine's load average when it began."""

    command: str
    arguments: list[str]
    load: list[float] = field(default_factory=lambda: [round(value, 2) for value in os.getloadavg()])

    def head(self) -> dict[str, Any]:
        from seq2seq.data.preparation import cores
        from seq2seq.pipeline.provenance import processor, provenance

        found = provenance()
        found.pop("machine")
        return {
            "benchmark": self.command,
            "command": shlex.join(["python", "scripts/benchmark.py", *map(without_folders, self.arguments)]),
            "machine": {
                "processor": processor(),
                "cores": cores(),
                "threads": os.environ.get("OMP_NUM_THREADS") or str(cores()),
                "system": f"{platform.machine()}, {platform.system()}",
                "load_average_at_start": self.load,
            },
            **found,
        }


def write(record: Record, result: dict[str, Any], output: Path) -> int:
    """Print the result's "table" and write everything else as JSON; the exit status.

    output: a file, or a folder for results that come with pictures.
    """
    from seq2seq.files import atomic_write

    table = result.pop("table")
    path = output if output.suffix == ".json" else output / f"{record.command}.json"
    with atomic_write(path) as stream:
        json.dump({**record.head(), **result}, stream, indent=1, ensure_ascii=False)
        stream.write("\n")
    print(table)
    print(f"wrote {path}", file=sys.stderr)
    return 0


def markdown(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table whose columns line up in a terminal as well; floats get three significant digits or none."""
    cells = [[*head], *([shown(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Minimum, median and maximum of repeated measurements."""
    return {"minimum": min(values), "median": median(values), "maximum": max(values)}


def without_folders(argument: str) -> str:
    """An argument without the folders of this machine: data.root=/a/b/multi30k -> data.root=.../multi30k."""
    return re.sub(r"(?<![\w.])/(?:[^/,\]\s]+/)+", ".../", argument)

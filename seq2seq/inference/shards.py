"""Shards of a file, translated apart: every count-th line."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.files import atomic_write
from seq2seq.inference.line_output import format_of


@dataclass(frozen=True)
class Shard:
    """Every count-th line, beginning with line `index` (from 0)."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise UserError(f"shard {self.index} of {self.count} does not exist; shards are 0 to {self.count - 1}")


def join_shards(paths: Iterable[str | Path], output: str | Path) -> int:
    """Interleave the outputs of shards 0, 1, ... into one file in the input's order; returns the number of lines.

    Raises:
        UserError: shards whose numbers of lines or formats do not belong together.
    """
    lines = 0
    with ExitStack() as stack:
        shards = [stack.enter_context(open(path, "rb")) for path in paths]
        writer = stack.enter_context(atomic_write(output, "wb"))
        while shards:
            row = [shard.readline() for shard in shards]
            if not lines and len({format_of(line) for line in row if line}) > 1:
                raise UserError("the shards do not fit together: some contain text, others JSON lines")
            whole = [line.endswith(b"\n") for line in row]
            if any(line and not end for line, end in zip(row, whole, strict=True)) or whole != sorted(
                whole, reverse=True
            ):
                raise UserError(
                    f"the shards do not fit together at line {lines + 1} of the output: one is not finished"
                )
            writer.write(b"".join(row))
            lines += sum(whole)
            if not all(whole):
                if any(shard.readline() for shard in shards):
                    raise UserError(f"the shards do not fit together at line {lines + 1}: one is not finished")
                break
    return lines

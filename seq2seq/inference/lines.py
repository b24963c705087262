"""Lines in, lines out: as many as came in, whatever they hold."""

from __future__ import annotations

import io
import json
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from seq2seq.errors import UserError
from seq2seq.files import atomic_write, writing
from seq2seq.inference.text_windows import FIRST_WINDOW, growing_windows
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.search import SearchChoice

PATIENCE = 0.02
"""Seconds that a pipe or terminal may be silent before the lines that have come are translated."""
CHUNK = 1 << 16


@dataclass
class StreamReport:
    """Counts of input lines: all translated now, those skipped because the output had them, blank ones, with invalid
    UTF-8 (replaced), split, truncated, and translations cut at the maximum length. seconds: time taken."""

    lines: int = 0
    skipped: int = 0
    blank: int = 0
    invalid: int = 0
    split: int = 0
    truncated: int = 0
    cut: int = 0
    seconds: float = 0.0

    def notes(self) -> list[str]:
        """What a user should know of, one sentence each."""
        texts = {
            "skipped": "{} lines were already in the output",
            "invalid": "{} lines had invalid UTF-8, replaced by U+FFFD",
            "split": "{} lines were too long for one pass and were split (max_source_length)",
            "truncated": "{} lines were truncated (max_source_length)",
            "cut": "{} translations were cut at the maximum length (search.max_length_a, max_length_b)",
        }
        return [text.format(getattr(self, name)) for name, text in texts.items() if getattr(self, name)]


@dataclass(frozen=True)
class Shard:
    """Every count-th line, beginning with line `index` (from 0)."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise UserError(f"shard {self.index} of {self.count} does not exist; shards are 0 to {self.count - 1}")


def translate_stream(
    translator: Translator,
    source: BinaryIO,
    output: BinaryIO,
    *,
    search: SearchChoice = None,
    n_best: int | None = None,
    output_format: str = "text",
    skip: int = 0,
    shard: Shard | None = None,
    progress: Callable[[StreamReport], None] | None = None,
) -> StreamReport:
    """Translate the lines of `source` (bytes, ended by \\n or \\r\\n; a last line may lack its end) into `output`.

    output_format: "text" is one translation a line; "jsonl" one object a line with text, score, tokens, n_best and
    alignment (`Translation.record`) and the input's line number from 0. skip: lines of this shard whose output is there
    already. Output is flushed after each window; pipes and terminals are answered as soon as they pause.
    progress is called after each window. Errors of `output` (a closed pipe) are the caller's.
    """
    check_output(translator, search, n_best, output_format)
    shard = shard or Shard()
    report, began = StreamReport(), time.monotonic()
    as_json = output_format == "jsonl"
    first = 0
    for lines in windows(source, translator.batching.window):
        numbers = [n for n in range(first, first + len(lines)) if n % shard.count == shard.index]
        texts = [decode(lines[n - first], n == 0, report) for n in numbers if n // shard.count >= skip]
        report.skipped += len(numbers) - len(texts)
        numbers = numbers[len(numbers) - len(texts) :]
        first += len(lines)
        if not texts:
            continue
        found = translator.translate_window(texts, search=search, n_best=n_best, alignment=as_json, numbers=numbers)
        for number, translation in zip(numbers, found, strict=True):
            count(translation, report)
            output.write(encode(translation, number if as_json else None))
        output.flush()
        report.seconds = time.monotonic() - began
        if progress is not None:
            progress(report)
    report.seconds = time.monotonic() - began
    if skip > report.skipped:
        raise UserError(f"the output already holds {skip} lines, but the input has {report.skipped}: another input?")
    return report


def translate_file(
    translator: Translator,
    source: str | Path | None,
    output: str | Path | None,
    *,
    search: SearchChoice = None,
    n_best: int | None = None,
    output_format: str = "text",
    resume: bool = False,
    shard: Shard | None = None,
    progress: Callable[[StreamReport], None] | None = None,
) -> StreamReport:
    """`translate_stream` between files; None is standard input or output. resume: go on after the whole lines that
    `output` holds (a half line at its end is dropped). Raises UserError for files that cannot be opened."""
    if resume and output is None:
        raise UserError("resume=true needs output=FILE")
    if same_file(source, output):
        raise UserError(f"output={output} is the input itself; give another file")
    check_output(translator, search, n_best, output_format)  # before an older output is emptied
    with writing(output or "standard output"), opened(source, output, resume) as (reader, writer, skip):
        return translate_stream(
            translator,
            reader,
            writer,
            search=search,
            n_best=n_best,
            output_format=output_format,
            skip=skip,
            shard=shard,
            progress=progress,
        )


@contextmanager
def opened(
    source: str | Path | None, output: str | Path | None, resume: bool
) -> Iterator[tuple[BinaryIO, BinaryIO, int]]:
    """Input, output, which is emptied unless a job is resumed, and how many whole lines that holds already."""
    with ExitStack() as stack:
        skip = 0
        try:
            reader = sys.stdin.buffer if source is None else stack.enter_context(open(source, "rb"))
            if output is None:
                writer: BinaryIO = sys.stdout.buffer
            elif resume and Path(output).exists():
                writer = stack.enter_context(open(output, "r+b"))
                skip = whole_lines(writer)
            else:
                Path(output).parent.mkdir(parents=True, exist_ok=True)
                writer = stack.enter_context(open(output, "wb"))
        except OSError as error:
            raise UserError(f"{error.filename}: {error.strerror}") from error
        yield reader, writer, skip


def check_output(translator: Translator, search: SearchChoice, n_best: int | None, output_format: str) -> None:
    """Raises UserError for a format that does not exist, a search that the translator's engine cannot do, or more
    translations than it can give."""
    if output_format not in ("text", "jsonl"):
        raise UserError(f"format={output_format!r} is unknown; choose text or jsonl")
    if output_format == "text" and n_best not in (None, 1):
        raise UserError(f"n_best={n_best} needs format=jsonl: a line of text holds one translation")
    translator.engine.check(translator.resolve(search, n_best))


def same_file(one: str | Path | None, other: str | Path | None) -> bool:
    """Whether two paths lead to one file that exists; never for standard input and output."""
    if one is None or other is None or not (os.path.exists(one) and os.path.exists(other)):
        return False
    return os.path.samefile(one, other) and not stat.S_ISCHR(os.stat(one).st_mode)


def join_shards(paths: Iterable[str | Path], output: str | Path) -> int:
    """Interleave the outputs of shards 0, 1, ... into one file in the input's order; returns the number of lines.

    Raises:
        UserError: shards whose line counts do not belong together.
    """
    lines = 0
    with ExitStack() as stack:
        shards = [stack.enter_context(open(path, "rb")) for path in paths]
        writer = stack.enter_context(atomic_write(output, "wb"))
        while shards:
            row = [shard.readline() for shard in shards]
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


def windows(source: BinaryIO, size: int) -> Iterator[list[bytes]]:
    """Lines without their "\\n", in lists of at most `size`: small ones first, and what has come so far when a pipe or
    terminal pauses."""
    descriptor = live_descriptor(source)
    if descriptor is None:
        yield from growing_windows((line.removesuffix(b"\n") for line in source), size)
        return
    rest = bytearray()
    lines: list[bytes] = []
    now = min(FIRST_WINDOW, size)
    while True:
        ready = select.select([descriptor], [], [], PATIENCE if lines else None)[0]
        chunk = os.read(descriptor, CHUNK) if ready else b""
        if ready and not chunk:
            break
        *whole, tail = chunk.split(b"\n")
        if whole:
            lines.append(bytes(rest) + whole[0])
            lines += whole[1:]
            rest = bytearray(tail)
        else:
            rest += tail
        while len(lines) >= now or (lines and not ready):
            yield lines[:now]
            lines, now = lines[now:], min(2 * now, size)
    if rest:
        lines.append(bytes(rest))
    remaining = iter(lines)
    while window := list(islice(remaining, size)):
        yield window


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


def decode(line: bytes, first: bool, report: StreamReport) -> str:
    """Text of one line: without "\\r" at its end, and without a byte order mark if it is the first."""
    line = line.removesuffix(b"\r")
    if first:
        line = line.removeprefix(b"\xef\xbb\xbf")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        report.invalid += 1
        return line.decode("utf-8", "replace")


def encode(translation: Translation, number: int | None) -> bytes:
    """One line of output; with a line number it is a JSON object."""
    if number is not None:
        return json.dumps({"line": number, **translation.record()}, ensure_ascii=False).encode("utf-8") + b"\n"
    return translation.text.encode("utf-8", "replace") + b"\n"


def count(translation: Translation, report: StreamReport) -> None:
    report.lines += 1
    report.blank += translation.parts == 0
    report.split += translation.parts > 1
    report.truncated += translation.truncated
    report.cut += not translation.finished


def whole_lines(file: BinaryIO) -> int:
    """Number of whole lines; the file is cut after the last one and stands at its end."""
    lines, end, place = 0, 0, 0
    while chunk := file.read(1 << 20):
        lines += chunk.count(b"\n")
        if b"\n" in chunk:
            end = place + chunk.rindex(b"\n") + 1
        place += len(chunk)
    file.seek(end)
    file.truncate()
    return lines

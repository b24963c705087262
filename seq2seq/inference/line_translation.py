"""Translating lines: as many lines out as in, whatever they contain."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from seq2seq.data.readers import read_lines
from seq2seq.errors import UserError
from seq2seq.files import writing
from seq2seq.inference.line_input import line_windows, repaired
from seq2seq.inference.line_output import FORMATS, encode, resume_after, same_file
from seq2seq.inference.shards import Shard
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.interfaces import WORD_START
from seq2seq.search import SearchChoice

UNREADABLE = re.compile(rf"<unk>|<0x[0-9A-F]{{2}}>|{WORD_START}|</s>")
"""Source tokens that stand for no text of the vocabulary: unknown, a byte of an unknown character, a space, the end."""


@dataclass
class LineCounts:
    """Counts of input lines.

    lines: translated now. skipped: already in the output. blank, and invalid: not UTF-8 (bytes were replaced).
    unknown: without a character of the vocabulary. split, truncated: too long for one pass. cut: translations of the
    maximum length that had not ended. seconds: time taken.
    """

    lines: int = 0
    skipped: int = 0
    blank: int = 0
    invalid: int = 0
    unknown: int = 0
    split: int = 0
    truncated: int = 0
    cut: int = 0
    seconds: float = 0.0

    def notes(self) -> list[str]:
        """A phrase for each count that a user should know."""
        texts = {
            "skipped": "{line} {were} already in the output",
            "invalid": "{line} had invalid UTF-8, replaced by U+FFFD",
            "unknown": "{line} had no character that the tokenizer knows, so the translation means nothing",
            "split": "{line} {were} too long for one pass and {were} split (max_source_length)",
            "truncated": "{line} {were} truncated (max_source_length)",
            "cut": "{translation} {were} cut at the maximum length (search.max_length_a, max_length_b)",
        }
        return [_counted(text, number) for name, text in texts.items() if (number := getattr(self, name))]


def _counted(text: str, number: int) -> str:
    """The phrase with the right forms of its words for a number of lines."""
    nouns = {noun: f"{number} {noun}{'' if number == 1 else 's'}" for noun in ("line", "translation")}
    return text.format(**nouns, were="was" if number == 1 else "were")


def translate_lines(
    translator: Translator,
    source: BinaryIO,
    output: BinaryIO,
    *,
    search: SearchChoice = None,
    n_best: int | None = None,
    output_format: str = "text",
    skip: int = 0,
    shard: Shard | None = None,
    progress: Callable[[LineCounts], None] | None = None,
) -> LineCounts:
    """Translate the lines of `source` (ended by \\n or \\r\\n; the last may lack its end) into `output`.

    output_format: "text" is one translation per line; "jsonl" one object per line with text, score, tokens, n_best and
    alignment (`Translation.record`) and the input's line number from 0. skip: lines of this shard that the output has
    already. Output is flushed after each window; pipes and terminals are answered as soon as they pause.
    progress is called after each window.

    Raises:
        UserError: input that is damaged or in another format, see `line_windows`.
        OSError: `output` cannot be written.
    """
    check_output(translator, search, n_best, output_format)
    shard = shard or Shard()
    report, began = LineCounts(), time.monotonic()
    as_json = output_format == "jsonl"
    first = 0
    for lines in line_windows(source, translator.batching.window):
        numbers = [n for n in range(first, first + len(lines)) if n % shard.count == shard.index]
        new = [n for n in numbers if n // shard.count >= skip]
        report.skipped += len(numbers) - len(new)
        texts, invalid = zip(*(repaired(lines[n - first]) for n in new), strict=True) if new else ((), ())
        report.invalid += sum(invalid)
        first += len(lines)
        if not texts:
            continue
        found = translator.translate_window(texts, search=search, n_best=n_best, alignment=as_json, numbers=new)
        for number, translation, replaced in zip(new, found, invalid, strict=True):
            count(translation, report)
            report.unknown += not replaced and _unreadable(translation)
            output.write(encode(translation, number if as_json else None))
        output.flush()
        report.seconds = time.monotonic() - began
        if progress is not None:
            progress(report)
    report.seconds = time.monotonic() - began
    if skip > report.skipped:
        raise UserError(f"the output already has {skip} lines, but the input has {report.skipped}: another input?")
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
    progress: Callable[[LineCounts], None] | None = None,
) -> LineCounts:
    """Call `translate_lines` on files; None is standard input or output.

    The input may be compressed with gzip, xz or zstd. resume: continue after the whole lines of `output` (a half line
    at its end is dropped).

    Raises:
        UserError: files that cannot be opened, or an output of another format or shard to resume.
        OSError: the output cannot be written.
    """
    if resume and output is None:
        raise UserError("resume=true needs output=FILE")
    if same_file(source, output):
        raise UserError(f"output={output} is the input itself; give another file")
    # Before an older output is emptied:
    check_output(translator, search, n_best, output_format)
    if source is not None and Path(source).is_file():
        next(read_lines(Path(source), errors="surrogateescape"), None)
    with (
        writing(output or "standard output"),
        opened(source, output, output_format if resume else None, shard or Shard()) as (reader, writer, skip),
    ):
        return translate_lines(
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
    source: str | Path | None, output: str | Path | None, resumed: str | None, shard: Shard
) -> Iterator[tuple[BinaryIO, BinaryIO, int]]:
    """Input, output, and the number of whole lines that the output has already. It is emptied unless `resumed` names
    the format in which it is resumed."""
    with ExitStack() as stack:
        skip = 0
        try:
            reader = sys.stdin.buffer if source is None else stack.enter_context(open(source, "rb"))
            if output is None:
                writer: BinaryIO = sys.stdout.buffer
            elif resumed is not None and Path(output).exists():
                writer = stack.enter_context(open(output, "r+b"))
                skip = resume_after(writer, str(output), resumed, shard.index, shard.count)
            else:
                Path(output).parent.mkdir(parents=True, exist_ok=True)
                writer = stack.enter_context(open(output, "wb"))
        except OSError as error:
            raise UserError(f"{error.filename}: {error.strerror}") from error
        yield reader, writer, skip


def check_output(translator: Translator, search: SearchChoice, n_best: int | None, output_format: str) -> None:
    """Raises UserError for a format that does not exist, a search that the translator's engine cannot do, or more
    translations than it can give."""
    if output_format not in FORMATS:
        raise UserError(f"format={output_format!r} is unknown; choose text or jsonl")
    if output_format == "text" and n_best not in (None, 1):
        raise UserError(f"n_best={n_best} needs format=jsonl: a line of text has one translation")
    translator.engine.check(translator.resolve(search, n_best))


def _unreadable(translation: Translation) -> bool:
    """True if no token of a source that is not blank stands for text."""
    return translation.parts > 0 and all(map(UNREADABLE.fullmatch, translation.source_tokens))


def count(translation: Translation, report: LineCounts) -> None:
    report.lines += 1
    report.blank += translation.parts == 0
    report.split += translation.parts > 1
    report.truncated += translation.truncated
    report.cut += not translation.finished

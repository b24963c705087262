"""`seq2seq translate`: lines in, lines out, whole or in numbered shards."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from seq2seq.commands.configuration import checkpoints, chosen_search, need_files
from seq2seq.commands.console import need_output
from seq2seq.data.readers import COMPRESSIONS
from seq2seq.errors import UserError
from seq2seq.files import InUse, hold

if TYPE_CHECKING:
    from seq2seq.inference.line_translation import LineCounts
    from seq2seq.inference.translator import Translator


def main(config: DictConfig) -> int:
    check_files(config)
    count = config.shard.count
    if config.join:
        joined = join(shard_paths(config.output, count), config.output)
        print(f"{joined} lines of {count} shards", file=sys.stderr)
        return 0
    from seq2seq.inference.line_translation import translate_file
    from seq2seq.inference.shards import Shard

    output = config.output if count == 1 else shard_paths(config.output, count)[config.shard.index]
    translator = load_translator(config)
    with held(output), Progress(sys.stderr.isatty()) as progress:
        if count > 1:
            finished(output).unlink(missing_ok=True)
        report = translate_file(
            translator,
            config.input,
            output,
            n_best=config.n_best,
            output_format=config.format,
            resume=config.resume,
            shard=Shard(config.shard.index, count),
            progress=progress,
        )
        if count > 1:
            finished(output).write_text(f"{report.skipped + report.lines}\n", encoding="ascii")
    rate = report.lines / report.seconds if report.seconds else 0.0
    lines = "1 line" if report.lines == 1 else f"{report.lines} lines"
    for note in (*report.notes(), f"{lines} in {report.seconds:.1f} s, {rate:.1f} per second"):
        print(note, file=sys.stderr)
    return 0


@contextmanager
def held(output: str | None) -> Iterator[None]:
    """Lock an output file for this process: with resume=true, two processes would mix their lines.

    Raises:
        UserError: another process is writing it.
    """
    if output is None or (Path(output).exists() and not Path(output).is_file()):
        yield
        return
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = hold(output)
    except InUse:
        raise UserError(f"another process is writing {output}\nWait until it ends, or give another output=.") from None
    with lock:
        yield


def check_files(config: DictConfig) -> None:
    """Refuse files and combinations that cannot work, before anything is loaded."""
    for key, value in (("shard.index", config.shard.index), ("shard.count", config.shard.count)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise UserError(f"{key}={value!r} must be a whole number")
    if not 0 <= config.shard.index < config.shard.count:
        raise UserError(f"shard.index={config.shard.index} must be at least 0 and less than count={config.shard.count}")
    if config.join and (config.shard.count == 1 or config.output is None):
        raise UserError("join=true needs shard.count=N and output=FILE, as for the shards")
    split = config.shard.count > 1 and not config.join
    if split and (config.input is None or config.output is None):
        raise UserError("shards need input=FILE and output=FILE")
    if split and Path(config.input).exists() and not Path(config.input).is_file():
        raise UserError(f"input={config.input} can be read only once, but each shard reads it\nGive a file.")
    if not config.join and config.input is None and sys.stdin is None:
        raise UserError("standard input is closed\nGive input=FILE.")
    if not config.join and config.output is None:
        need_output("Give output=FILE.")
    if config.resume and config.output is None:
        raise UserError("resume=true needs output=FILE")
    if config.format == "text" and config.n_best not in (None, 1):
        raise UserError(f"n_best={config.n_best} needs format=jsonl: in text, a line holds one translation")
    if config.output is not None and config.output.endswith(COMPRESSIONS[1:]):
        raise UserError(f"output={config.output}: translations are not compressed\nGive a name without that ending.")
    need_files(config, "input")
    if not config.join:
        checkpoints(config.checkpoint)
    if config.join and config.input is not None:
        raise UserError("join=true joins the outputs of shards; leave out input=")


def shard_paths(output: str, count: int) -> list[str]:
    """out.txt -> out.txt.0-of-3, out.txt.1-of-3, out.txt.2-of-3."""
    return [f"{output}.{index}-of-{count}" for index in range(count)]


def finished(shard: str) -> Path:
    """Name the file beside a shard's output with the number of its lines, written when the shard is complete."""
    return Path(f"{shard}.done")


def join(shards: list[str], output: str) -> int:
    """Interleave finished shards into `output`; the shards stay. Returns the number of lines.

    Raises:
        UserError: one is missing, unfinished, or has changed since it was finished.
    """
    from seq2seq.inference.shards import join_shards

    for path in shards:
        if not Path(path).is_file():
            raise UserError(f"{path} does not exist: not all shards have been translated")
        if not finished(path).is_file():
            raise UserError(f"{path} is not finished\nRepeat its command with resume=true.")
        with open(path, "rb") as stream:
            lines = sum(1 for _ in stream)
        if f"{lines}" != (expected := finished(path).read_text(encoding="ascii").strip()):
            raise UserError(f"{path} is not finished: it has {lines} lines of {expected}\nTranslate it again.")
    return join_shards(shards, output)


def load_translator(config: DictConfig) -> Translator:
    """Load the translator of `checkpoint` (one or several) with the configured search."""
    from seq2seq.inference.loading import use_threads
    from seq2seq.inference.text_windows import Batching
    from seq2seq.inference.translator import Translator

    use_threads(config.threads)
    batching = Batching(config.max_tokens, config.window, config.max_source_length, config.long_lines)
    return Translator.load(
        checkpoints(config.checkpoint), config.device, chosen_search(config.search), batching, config.engine
    )


class Progress:
    """Line on a terminal with lines and rate, rewritten at most four times per second and erased at the end."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._last = 0.0

    def __call__(self, report: LineCounts) -> None:
        now = time.monotonic()
        if self._shown and now - self._last > 0.25:
            self._last = now
            rate = report.lines / report.seconds if report.seconds else 0.0
            print(f"\r\x1b[K{report.lines:,} lines, {rate:,.1f} per second", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

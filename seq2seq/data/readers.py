"""Lines of text, compressed or not, read in bounded memory; errors name file and line."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import zip_longest
from pathlib import Path
from typing import IO

import zstandard

from seq2seq.errors import UserError

Pair = tuple[str, str]

COMPRESSIONS = ("", ".gz", ".xz", ".zst")
BATCH_ROWS = 10_000
BATCH_CHARACTERS = 1 << 24
CHUNK = 1 << 22
BOM = b"\xef\xbb\xbf"
GZIP, XZ, ZSTD = b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
COMPRESSED = {"gzip": GZIP, "xz": XZ, "zstd": ZSTD, "bzip2": b"BZh91AY&SY", "zip": b"PK\x03\x04"}
"""First bytes of compressed data."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks."""


def read_lines(source: Path | IO[bytes], errors: str = "strict") -> Iterator[str]:
    """Lines of UTF-8 text in a file (plain, gzip, xz or zstd, recognized by its first bytes).

    A line ends at ``\\n``: U+2028, form feeds and the like stay inside it. One ``\\r`` before the line end and a
    byte order mark at the file's start are dropped; NUL is kept. errors: as of `bytes.decode`.

    Raises:
        UserError: naming file and line for anything unreadable.
    """
    name, count = _name(source), 0
    for block in _line_blocks(source):
        if not count:
            refuse_other_formats(block, name)
        try:
            text = block.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            number = count + 1 + block.count(b"\n", 0, error.start)
            raise UserError(
                f"{name}, line {number}: not valid UTF-8.\nConvert the file, for example with iconv -t UTF-8."
            ) from error
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        for line in lines:
            yield line[:-1] if line.endswith("\r") else line
        count += len(lines)


def refuse_other_formats(head: bytes, name: str) -> None:
    """Raises UserError if text that begins with these bytes is in UTF-16, or compressed data."""
    even, odd = set(head[0:64:2]), set(head[1:64:2])
    if head.startswith(UTF_16) or (len(head) >= 8 and sorted([even == {0}, odd == {0}]) == [False, True]):
        raise UserError(
            f"{name}, line 1: not valid UTF-8: it looks like UTF-16.\nConvert it: iconv -f UTF-16 -t UTF-8 <OLD >NEW"
        )
    for kind, magic in COMPRESSED.items():
        if head.startswith(magic):
            raise UserError(f"{name} is compressed with {kind}.\nDecompress it, or give a file in gzip, xz or zstd.")


def _name(source: Path | IO[bytes]) -> str:
    """The name of a file or stream for messages."""
    if isinstance(source, str | Path):
        return str(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) and name != "<stdin>" else "standard input"


def _line_blocks(source: Path | IO[bytes]) -> Iterator[bytes]:
    """The bytes of a file or stream in blocks that end where a line ends."""
    parts: list[bytes] = []
    lines = 0
    first = True
    try:
        with open(source, "rb") if isinstance(source, str | Path) else nullcontext(source) as raw:
            for chunk in _decompressed(raw):
                if first:
                    chunk, first = chunk.removeprefix(BOM), False
                cut = chunk.rfind(b"\n") + 1
                if cut:
                    block = b"".join([*parts, chunk[:cut]])
                    yield block
                    lines += block.count(b"\n")
                    parts = []
                parts.append(chunk[cut:])
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError) as error:
        raise UserError(
            f"{_name(source)} is damaged or cut short after line {lines}: {error}.\nFetch the file again."
        ) from error
    except OSError as error:
        raise UserError(f"cannot read {_name(source)}: {error.strerror or error}") from error
    if rest := b"".join(parts):
        yield rest


def _decompressed(raw: IO[bytes]) -> Iterator[bytes]:
    start = raw.tell()
    magic = raw.read(6)
    raw.seek(start)
    stream: IO[bytes] | gzip.GzipFile | lzma.LZMAFile = raw
    if magic.startswith(GZIP):
        stream = gzip.GzipFile(fileobj=raw)
    elif magic.startswith(XZ):
        stream = lzma.LZMAFile(raw)  # noqa: SIM115 (the caller closes raw)
    elif magic.startswith(ZSTD):
        yield from _zstd(raw)
        return
    head = b""
    while chunk := stream.read(CHUNK):
        if len(head + chunk) < len(BOM):  # never let a tiny first read split the byte order mark
            head += chunk
            continue
        yield head + chunk
        head = b""
    if head:
        yield head


def _zstd(raw: IO[bytes]) -> Iterator[bytes]:
    """Frame by frame: zstandard's own stream reader takes a file cut short for a complete one."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    started = False
    while chunk := raw.read(1 << 18):
        while chunk:
            started = True
            if data := frame.decompress(chunk):
                yield data
            chunk = b""
            if frame.eof:
                chunk = frame.unused_data
                frame, started = zstandard.ZstdDecompressor().decompressobj(), False
    if started:
        raise EOFError("compressed file ended before the end-of-stream marker")


def read_parallel(source: Path, target: Path) -> Iterator[Pair]:
    """Pairs of two line-aligned files. Raises UserError if one has more lines than the other."""
    left, right = read_lines(source), read_lines(target)
    count, a, b = -1, "", ""
    for count, (a, b) in enumerate(zip_longest(left, right)):
        if a is None or b is None:
            longer = 1 + sum(1 for _ in (right if a is None else left))
            numbers = (count, count + longer) if a is None else (count + longer, count)
            raise UserError(
                f"{source} has {numbers[0]} lines but {target} has {numbers[1]}: line {count + 1} has no partner.\n"
                "The two files of a split must be line-aligned."
            )
        yield a, b
    if count == 0:
        check_line_ends(source, a)
        check_line_ends(target, b)


def check_line_ends(path: Path, line: str) -> None:
    """Raises UserError if a file's only line holds carriage returns: then they end its lines."""
    if "\r" in line.rstrip("\r"):
        raise UserError(f"{path}: lines end in CR (\\r), not LF.\nConvert the file with tr '\\r' '\\n' <OLD >NEW.")


def clean(text: str | None) -> str:
    """Text of a table's cell as one line: line ends become spaces, null is empty, lone surrogates become U+FFFD."""
    if text is None:
        return ""
    if "\n" in text or "\r" in text:
        text = text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def batches(pairs: Iterable[Pair]) -> Iterator[dict[str, list[str]]]:
    """Pairs as tables of at most BATCH_ROWS rows and about BATCH_CHARACTERS characters."""
    source: list[str] = []
    target: list[str] = []
    size = 0
    for a, b in pairs:
        source.append(a)
        target.append(b)
        size += len(a) + len(b)
        if len(source) >= BATCH_ROWS or size >= BATCH_CHARACTERS:
            yield {"source": source, "target": target}
            source, target, size = [], [], 0
    if source:
        yield {"source": source, "target": target}

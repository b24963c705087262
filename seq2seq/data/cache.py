"""Finished artifacts on disk, keyed by content: each is built whole or not at all."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seq2seq.errors import UserError
from seq2seq.files import writing

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
BLOCK = 1 << 22
BLOCKS = 256


def content_key(*parts: Any) -> str:
    """A short name for values that JSON can write; equal values give equal names on every machine."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def file_digest(path: str | Path) -> str:
    """Hash of a file's bytes. Raises UserError if it cannot be read."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with open(path, "rb") as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    return digest.hexdigest()


def cached_folder(cache_dir: str | Path, name: str, key: str, build: Callable[[Path], None]) -> Path:
    """The folder `<cache_dir>/<name>-<key>`, built by `build(folder)` if it is not there, whole and undamaged.

    Building happens in a temporary neighbor that is renamed when complete, under a lock, so that processes may ask for
    the same artifact at once. A damaged folder is reported and built again. Raises UserError if it cannot be written.
    """
    final = Path(cache_dir) / f"{name}-{key}"
    if _intact(final):
        return final
    with _readable_errors(final.parent):
        final.parent.mkdir(parents=True, exist_ok=True)
        with _lock(final.parent / f".{final.name}.lock"):
            if _intact(final):
                return final
            if final.exists():
                logger.warning("%s is damaged and is built again", final)
                shutil.rmtree(final)
            for left_over in final.parent.glob(f".{final.name}.*.tmp"):
                shutil.rmtree(left_over, ignore_errors=True)
            temporary = final.parent / f".{final.name}.{os.getpid()}.tmp"
            temporary.mkdir()
            try:
                build(temporary)
                _seal(temporary)
                os.replace(temporary, final)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    return final


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    import filelock

    with filelock.FileLock(path):
        yield


@contextmanager
def _readable_errors(folder: Path) -> Iterator[None]:
    try:
        with writing(folder):
            yield
    except OSError as error:
        raise UserError(
            f"cannot write the cache folder {folder}: {error.strerror or error}.\n"
            "Nothing half-written is kept: make room or choose another folder with data.cache_dir=DIR."
        ) from error


def _seal(folder: Path) -> None:
    """Flush every file and record sizes and checksums, so that later damage is noticed."""
    entries = {}
    for path in sorted(folder.iterdir()):
        with open(path, "rb") as stream:
            os.fsync(stream.fileno())
        entries[path.name] = [path.stat().st_size, _sampled_digest(path)]
    with open(folder / MANIFEST, "w", encoding="utf-8") as stream:
        json.dump(entries, stream)
        stream.flush()
        os.fsync(stream.fileno())


def _intact(folder: Path) -> bool:
    try:
        entries = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return all(
            (folder / name).stat().st_size == size and _sampled_digest(folder / name) == digest
            for name, (size, digest) in entries.items()
        )
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def _sampled_digest(path: Path) -> str:
    """Hash of the whole file up to 1 GiB, of evenly spaced blocks beyond that."""
    size = path.stat().st_size
    step = max(BLOCK, size // BLOCKS)
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as stream:
        for start in range(0, size, step):
            stream.seek(start)
            digest.update(stream.read(BLOCK))
    return digest.hexdigest()

"""Atomic writes, so that a reader never sees half a file, and locks, so that two processes never write the same one."""

import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from seq2seq.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers for no room: on the disk, in the quota, in a file."""


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Raise whatever keeps `path` from being written, such as a full disk, as an OSError that names it.

    Libraries raise exceptions of their own types, and the operating system names a temporary file or none.
    """
    path = Path(path)
    try:
        yield
    except OSError as error:
        temporary = str(path.parent / f".{path.name}.")
        if error.filename is None or str(error.filename).startswith(temporary):
            error.filename, error.filename2 = str(path), None
        if error.errno is not None:
            error.strerror = os.strerror(error.errno)
        raise
    except Exception as error:
        number = _system_error(error)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def _system_error(error: BaseException) -> int | None:
    """Return the operating system's error number behind another library's exception, or None."""
    if isinstance(error, UserError):
        return None
    if found := re.search(r"\(os error (\d+)\)", str(error)):  # as libraries in Rust write it
        return int(found[1])
    below = error.__cause__ or error.__context__
    while below is not None:
        if isinstance(below, OSError) and below.errno in FULL:
            return below.errno
        below = below.__cause__ or below.__context__
    return next((number for number in FULL if os.strerror(number) in str(error)), None)


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary neighbor of `path`; on success flush it to disk and rename it over `path`.

    After an exception or a kill the old file stays untouched. Text is UTF-8 with ``\\n`` line ends. For errors see
    `writing`.
    """
    path = Path(path)
    text = "b" not in mode
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, mode, encoding="utf-8" if text else None, newline="\n" if text else None) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, 0o666 & ~umask())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """Yield a temporary neighbor of `folder` to fill; once it is complete, it replaces `folder`.

    After an exception it is removed, and an older folder stays untouched. For errors see `writing`.
    """
    folder = Path(folder)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            yield temporary
            temporary.chmod(0o777 & ~umask())
            _replace(temporary, folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _replace(new: Path, folder: Path) -> None:
    """Rename `new` to `folder`, moving an older folder of that name out of the way first."""
    if not folder.exists():
        new.rename(folder)
        return
    old = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.old."))
    folder.rename(old / folder.name)
    new.rename(folder)
    shutil.rmtree(old)


def umask() -> int:
    """Return the permissions that new files and folders of this process lack."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


class InUse(Exception):
    """Another process holds the lock of the file."""


def hold(path: str | Path) -> IO[bytes]:
    """Open `path`, created if it is missing, and lock it until the returned file is closed.

    The kernel releases the lock with the process, so a killed process leaves none behind. Only processes that call this
    function respect the lock, and file systems without locks grant it to all.

    Raises:
        InUse: another process holds the lock.
        OSError: the file cannot be opened.
    """
    stream = open(path, "a+b", buffering=0)  # noqa: SIM115 (the open file holds the lock)
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            stream.close()
            raise InUse(path) from None
    return stream

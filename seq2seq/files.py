"""Writing files so that a reader never meets half of one, and holding them so that no other process writes them too."""

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

    Libraries have exceptions of their own for it, and the operating system names no file or a temporary one.
    """
    path = Path(path)
    try:
        yield
    except OSError as error:
        temporary = str(path.parent / f".{path.name}.")
        if error.filename is None or str(error.filename).startswith(temporary):
            error.filename, error.filename2 = str(path), None
        raise
    except Exception as error:
        number = _system_error(error)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def _system_error(error: BaseException) -> int | None:
    """The error number of the operating system that an exception of another library stands for, or None."""
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

    After an exception or a kill the old file stands untouched. Text is UTF-8 with ``\\n`` line ends. For errors see
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
    """A temporary neighbor of `folder` to fill; it takes the name, in place of an older folder, once it is whole.

    After an exception nothing is left of it and the older folder stands untouched. For errors see `writing`.
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
    """The permissions that new files and folders of this process do without."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


class InUse(Exception):
    """Another process holds the file."""


def hold(path: str | Path) -> IO[bytes]:
    """Open `path`, made if it is not there, for this process alone until the returned file is closed.

    The kernel keeps this lock and drops it with the process, so that one that is killed leaves none behind. It binds
    only those who ask for it here, and nobody where the file system has no locks.

    Raises:
        InUse: another process holds it.
        OSError: it cannot be opened.
    """
    stream = open(path, "a+b")  # noqa: SIM115 (open as long as the lock)
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            stream.close()
            raise InUse(path) from None
    return stream

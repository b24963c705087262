"""Writing files so that a reader never meets half of one, and holding them so that no other process writes them too."""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary neighbour of `path`; on success flush it to disk and rename it over `path`.

    After an exception or a kill the old file stands untouched. Text is UTF-8 with ``\\n`` line ends. OSErrors name
    `path`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "b" not in mode
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, mode, encoding="utf-8" if text else None, newline="\n" if text else None) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A temporary neighbor of `folder` to fill; it takes the name, in place of an older folder, once it is whole.

    After an exception nothing is left of it and the older folder stands untouched.
    """
    folder = Path(folder)
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

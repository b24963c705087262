"""Writing files so that a reader never meets half of one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary neighbour of `path`; on success flush it to disk and rename it over `path`.

    After an exception or a kill the old file stands untouched. Text is UTF-8 with ``\\n`` line ends.
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
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

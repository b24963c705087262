"""The folders of inference: what lies in one and what people call it, and writing one so that no reader meets half of
it."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seq2seq.files import umask

CTRANSLATE2, ONNX = "ctranslate2", "onnx"
EXPORTS = {CTRANSLATE2: "model.bin", ONNX: "onnx.json"}
"""By which file an export of each format is known."""


def export_format(path: str | Path) -> str | None:
    """The format of the export that lies there; None if none does."""
    return next((format for format, file in EXPORTS.items() if (Path(path) / file).is_file()), None)


def checkpoint_name(path: Path) -> str:
    """What people call it: the run's folder, or the bundle's own if it lies elsewhere."""
    path = path.resolve()
    if path.suffix == ".ckpt":
        path = path.parent if path.parent.name == "checkpoints" else path.with_suffix("")
    return path.parent.name if path.name in ("bundle", "checkpoints") and path.parent.name else path.name


def run_folders(checkpoint: str | Path) -> list[Path]:
    """Where the files of a checkpoint's run can be: in a run's folder, if that is given; else in the bundle, export or
    .ckpt that is, or in the two folders around it."""
    path = Path(checkpoint).resolve()
    whole = any((path / part).is_dir() for part in ("bundle", "checkpoints"))
    return [path] if whole else [path, *path.parents[:2]]


def scored_folder(checkpoint: str | Path) -> Path | None:
    """The one of `run_folders` with the run's scores, its metrics.json."""
    return next((folder for folder in run_folders(checkpoint) if (folder / "metrics.json").is_file()), None)


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A temporary neighbour of `folder` to fill; it takes the name, in place of an older folder, once it is whole.

    After an exception nothing is left of it and the older folder stands untouched.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        yield temporary
        temporary.chmod(0o777 & ~umask())
        replace_folder(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def replace_folder(new: Path, folder: Path) -> None:
    """Rename `new` to `folder`, moving an older folder of that name out of the way first."""
    if not folder.exists():
        new.rename(folder)
        return
    old = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.old."))
    folder.rename(old / folder.name)
    new.rename(folder)
    shutil.rmtree(old)

"""Files that are written whole or not at all, and one error for a full disk whatever library met it."""

from __future__ import annotations

import errno
import io
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tiny
import torch
from safetensors.torch import save_file

from seq2seq.errors import UserError
from seq2seq.export import export_ctranslate2, export_onnx
from seq2seq.files import atomic_write, new_folder, writing
from seq2seq.inference.line_translation import translate_file
from seq2seq.inference.translator import Translator
from seq2seq.run import Run

ROOM = 3000


@contextmanager
def little_room(size: int = ROOM) -> Iterator[None]:
    """Let no file of this process grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def text(path: Path) -> None:
    with atomic_write(path) as stream:
        stream.write("x" * 2 * ROOM)


def weights(path: Path) -> None:
    with atomic_write(path, "wb") as stream:
        torch.save({"weights": torch.ones(ROOM)}, stream)


def folder(path: Path) -> None:
    with new_folder(path) as temporary:
        save_file({"weights": torch.ones(ROOM)}, temporary / "model.safetensors")


WRITERS: dict[str, Callable[[Path], object]] = {
    "text": text,
    "torch": weights,
    "safetensors": folder,
    "bundle": lambda path: tiny.bundle().save(path),
    "ctranslate2": lambda path: export_ctranslate2(tiny.bundle(), path),
    "onnx": lambda path: export_onnx(tiny.bundle(tiny.RNN), path),
}


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
def test_full_disk_is_one_error_that_names_the_target_and_leaves_nothing(writer: str, tmp_path: Path) -> None:
    with little_room(), pytest.raises(OSError) as caught:
        WRITERS[writer](tmp_path / "out")
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_full_disk_during_a_translation_names_the_output(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat\n" * 400)
    translator = Translator([tiny.bundle()], "greedy")
    with little_room(200), pytest.raises(OSError) as caught:
        translate_file(translator, tmp_path / "in.txt", tmp_path / "out.txt")
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(tmp_path / "out.txt"))


def test_full_disk_for_the_owner_of_a_lock_is_no_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="mine"), little_room(0), Run(tmp_path).held():
        raise UserError("mine")


@pytest.mark.parametrize(
    ("raised", "number"),
    [
        (RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"), errno.ENOSPC),
        (RuntimeError("write failed: Disk quota exceeded"), errno.EDQUOT),
        (OSError(errno.ENOSPC, "Error writing bytes to file. Detail: No space left on device"), errno.ENOSPC),
        (OSError(errno.ENOSPC, "No space left on device", "a/.b.abcdefgh.tmp"), errno.ENOSPC),
    ],
)
def test_writing_names_the_target(raised: Exception, number: int) -> None:
    with pytest.raises(OSError) as caught, writing("a/b"):
        raise raised
    assert (caught.value.errno, caught.value.strerror) == (number, os.strerror(number))
    assert caught.value.filename == "a/b"


def test_writing_leaves_other_errors_alone() -> None:
    for raised in (ValueError("x"), UserError("no space"), io.UnsupportedOperation("read")):
        with pytest.raises(type(raised)) as caught, writing("a/b"):
            raise raised
        assert caught.value is raised
    with pytest.raises(FileNotFoundError) as missing, writing("a/b"):
        Path("no/such/file").read_text()
    assert missing.value.filename == "no/such/file"

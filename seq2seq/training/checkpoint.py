"""Checkpoint files: written so that the last good one is never lost, read without running anything in them.

A checkpoint holds plain values and tensors only:
    "state_dict"           weights, the model's under "model.", the criterion's under "criterion."
    "optimizer_states"     and what else Lightning needs to go on
    "seq2seq"              {"config": mapping, "tokenizers": {name: bytes}, "progress", "schedule", "random"}
An averaged one holds "state_dict" and "seq2seq" with "config" and "tokenizers": enough to translate.
"""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io import CheckpointIO
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.files import atomic_write

logger = logging.getLogger(__name__)

MODEL_PREFIX = "model."


def write_checkpoint(checkpoint: dict[str, Any], path: str | Path) -> None:
    """Raises UserError if it cannot be written; an older file of that name then stands untouched."""
    try:
        with atomic_write(path, "wb") as stream:
            torch.save(checkpoint, stream)
    except (OSError, RuntimeError) as error:
        raise unwritable(f"the checkpoint {path}", error) from error


def unwritable(what: str, error: OSError | RuntimeError) -> UserError:
    """What a user is told whose disk is full, or whose folder cannot be written, in the middle of a training."""
    if isinstance(error.__context__, OSError):
        error = error.__context__  # torch's own error, about its file, came on top of it.
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return UserError(
        f"cannot write {what}: {reason}\nThe last good checkpoint stands; make room and give the same command to go on."
    )


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """A checkpoint on the CPU. Raises UserError for a file that is missing, damaged, or none of ours."""
    way_out = "Give another checkpoint, or remove the file to start without it."
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise UserError(f"checkpoint {path} is damaged (in {damaged})\n{way_out}")
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"there is no checkpoint {path}\n{way_out}") from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, zipfile.BadZipFile, pickle.UnpicklingError) as error:
        raise UserError(f"cannot read the checkpoint {path}: {str(error).splitlines()[0]}\n{way_out}") from error
    if not isinstance(checkpoint, dict) or not {"state_dict", "seq2seq"} <= checkpoint.keys():
        raise UserError(f"{path} is no seq2seq checkpoint\n{way_out}")
    return checkpoint


def first_readable(*paths: Path) -> Path | None:
    """The first of the checkpoints that is there and whole; None if none is there. One that is damaged is warned of.

    Raises:
        UserError: all that are there are damaged.
    """
    damage = []
    for path in filter(Path.is_file, paths):
        try:
            read_checkpoint(path)
        except UserError as error:
            damage.append(str(error).splitlines()[0])
            continue
        if damage:
            logger.warning("%s; going on from %s instead", damage[0], path.name)
        return path
    if damage:
        folder = paths[0].parent
        raise UserError(f"{'; '.join(damage)}\nRemove {folder} to train from the beginning, or give another run_dir=.")
    return None


def model_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The model's own state dict out of a checkpoint's."""
    return {name.removeprefix(MODEL_PREFIX): value for name, value in state.items() if name.startswith(MODEL_PREFIX)}


def duplicate(path: Path, copy: Path) -> None:
    """Make `copy` the same file as `path`, atomically; a hard link where the file system has them."""
    temporary = copy.with_name(f".{copy.name}.link")
    temporary.unlink(missing_ok=True)
    try:
        os.link(path, temporary)
    except OSError:
        shutil.copyfile(path, temporary)
    os.replace(temporary, copy)
    temporary.unlink(missing_ok=True)  # POSIX leaves it where both names already were the same file.


class AtomicCheckpointIO(CheckpointIO):
    """Lightning's reading and writing of checkpoints, by the functions above."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        write_checkpoint(checkpoint, path)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return read_checkpoint(path)

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)

"""Checkpoint files: written so that the last good one is never lost, read without running anything in them.

A checkpoint holds plain values and tensors only:
    "state_dict"   weights, the model's under "model.", the criterion's under "criterion."
    "optimizer"    and "precision": states of the optimizer and of the scaler of float16
    "seq2seq"      {"config": mapping, "tokenizers": {name: bytes}, "corpus", "state", "schedule", "random"}
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
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.fabric.plugins.io import CheckpointIO
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.files import atomic_write
from seq2seq.run import Run
from seq2seq.training.schedule import Schedule
from seq2seq.training.state import TrainingState, random_state, restore_random_state

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
    """The error of a training whose disk is full or whose folder cannot be written."""
    if isinstance(error.__context__, OSError):
        error = error.__context__  # torch's own error, about its file, came on top of it.
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return UserError(
        f"cannot write {what}: {reason}\nThe last good checkpoint is intact. Make room; the same command resumes."
    )


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint on the CPU. Raises UserError for a file that is missing, damaged, or not from this package."""
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
    """Find the first of the checkpoints that exists and is whole; None if there is none. Damaged ones are warned of.

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
            logger.warning("%s; resuming from %s instead", damage[0], path.name)
        return path
    if damage:
        folder = paths[0].parent
        raise UserError(f"{'; '.join(damage)}\nRemove {folder} to train from the beginning, or give another run_dir=.")
    return None


def model_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Extract the model's own state dict from a checkpoint's."""
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


class Checkpoints:
    """Saves and restores one training in its run's folder.

    module, optimizer: as Fabric has set them up. inference: what translating needs besides the weights,
    {"config": plain mapping, "tokenizers": {name: bytes}}. corpus: the fingerprint of the training data.
    """

    def __init__(
        self,
        fabric: Fabric,
        run: Run,
        module: Any,
        optimizer: Any,
        schedule: Schedule,
        state: TrainingState,
        inference: dict[str, Any],
        corpus: str,
    ) -> None:
        self.fabric = fabric
        self.run = run
        self.module = module
        self.optimizer = optimizer
        self.schedule = schedule
        self.state = state
        self.inference = inference
        self.corpus = corpus

    def save(self, best: bool = False) -> None:
        """Write last.ckpt, and best.ckpt first if this is the best: a process killed between the two resumes from the
        older last.ckpt and writes the best again."""
        random: list[Any] = [random_state()]
        if self.fabric.world_size > 1:
            random = [None] * self.fabric.world_size
            dist.all_gather_object(random, random_state())
        content = {
            "state_dict": self.module,
            "optimizer": self.optimizer,
            "precision": self.fabric.strategy.precision.state_dict(),
            "seq2seq": {
                **self.inference,
                "corpus": self.corpus,
                "state": self.state.state_dict(),
                "schedule": self.schedule.state_dict(),
                "random": random,
            },
        }
        self.fabric.save(self.run.best if best else self.run.last, content)
        if best and self.fabric.is_global_zero:
            duplicate(self.run.best, self.run.last)

    def restore(self) -> None:
        """Resume from the last checkpoint, if there is one, or from the best where the last is damaged.

        Raises:
            UserError: it belongs to other data or another tokenizer, holds weights alone, or none is readable.
        """
        path = first_readable(self.run.last, self.run.best)
        if path is None:
            return
        checkpoint = read_checkpoint(path)
        saved = checkpoint["seq2seq"]
        if "optimizer" not in checkpoint:
            raise UserError(
                f"cannot resume: {path} holds weights alone, without the state of a training\n"
                f"Give another run_dir=, with checkpoint={path} model=checkpoint to start from them."
            )
        if saved["tokenizers"] != self.inference["tokenizers"]:
            raise UserError(
                "cannot resume: the checkpoint's tokenizers are not those of this corpus and these settings\n"
                "Give the same data and tokenizer to resume, or another run_dir= to start over."
            )
        if saved["corpus"] != self.corpus:
            raise UserError(
                "cannot resume: the corpus (some text of training, validation or test) is not what it was\n"
                "Give the same data to resume, or another run_dir= to start over."
            )
        self.fabric.load(path, {"state_dict": self.module, "optimizer": self.optimizer})
        self.fabric.strategy.precision.load_state_dict(checkpoint["precision"])
        self.state.load_state_dict(saved["state"])
        self.schedule.load_state_dict(saved["schedule"])
        if len(saved["random"]) == self.fabric.world_size:
            restore_random_state(saved["random"][self.fabric.global_rank])

    def save_averaged(self, weights: dict[str, Tensor]) -> None:
        """Write averaged.ckpt from the model's weights."""
        state = {MODEL_PREFIX + name: value for name, value in weights.items()}
        write_checkpoint({"state_dict": state, "seq2seq": self.inference}, self.run.averaged)

"""The mean of several checkpoints' weights: a free gain when the learning rate has not been brought to zero."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from safetensors.torch import load_file, save
from torch import Tensor
from torch.distributed.fsdp import FullyShardedDataParallel

from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import PRIMARY, perplexity_text
from seq2seq.files import atomic_write
from seq2seq.training.checkpoint import MODEL_PREFIX, Checkpoints, unwritable
from seq2seq.training.signals import StopSignals
from seq2seq.training.state import Stopwatch
from seq2seq.training.validation import Validator, validate

logger = logging.getLogger(__name__)

Weights = dict[str, Tensor]


def average(names: Sequence[str], load: Callable[[str], Weights]) -> Weights:
    """Mean of the weights that `load` gives for each name, one in memory at a time, summed in float64.

    Tensors that are not floating point are taken from the last.
    """
    if not names:
        raise UserError("there is no checkpoint to average")
    total: Weights = {}
    kinds: dict[str, torch.dtype] = {}
    for name in names:
        weights = load(name)
        if total and {key: value.shape for key, value in weights.items()} != {
            key: value.shape for key, value in total.items()
        }:
            raise UserError(f"{name} holds another model than {names[0]}\nAverage checkpoints of one run only.")
        for key, value in weights.items():
            kinds[key] = value.dtype
            if value.is_floating_point():
                total[key] = value.double() + total[key] if key in total else value.double()
            else:
                total[key] = value
    return {
        key: (value / len(names)).to(kinds[key]) if value.is_floating_point() else value for key, value in total.items()
    }


class RecentWeights:
    """The weights of the last `count` validations, as one safetensors file each in `folder`, named by update."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.count = count

    def add(self, update: int, weights: Weights) -> None:
        """Write them, and remove the oldest. Raises UserError if they cannot be written."""
        content = save({name: value.contiguous() for name, value in weights.items()})
        try:
            with atomic_write(self.folder / f"{update:09d}.safetensors", "wb") as stream:
                stream.write(content)
        except OSError as error:
            raise unwritable(f"weights in {self.folder}", error) from error
        for path in self.paths()[: -self.count]:
            path.unlink()

    def forget_after(self, update: int) -> None:
        """Remove the weights that a run resumed at `update` will write again."""
        for path in self.paths():
            if int(path.stem) > update:
                path.unlink()

    def paths(self) -> list[Path]:
        return sorted(self.folder.glob("*.safetensors"))

    def average(self) -> Weights:
        return average([str(path) for path in self.paths()], load_file)


def try_average(
    fabric: Fabric,
    module: Any,
    validator: Validator,
    checkpoints: Checkpoints,
    recent: RecentWeights,
    watch: Stopwatch,
    signals: StopSignals,
) -> tuple[bool, bool]:
    """Validate the mean of the recent weights, and keep it if it beats the best checkpoint.

    Return (averaged, interrupted): the mean was better; a signal asked to stop meanwhile.
    """
    state = checkpoints.state
    fabric.barrier()
    if not recent.count or len(recent.paths()) < 2:
        return False, False
    weights = recent.average()
    prefixed = {MODEL_PREFIX + name: value for name, value in weights.items()}
    with FullyShardedDataParallel.summon_full_params(module):
        module.load_state_dict({**module.state_dict(), **prefixed})
    with watch.aside():
        validation = validate(fabric, module, validator, signals)
    if validation is None:
        return False, True
    better = state.improves(validation.score, validation.nll)
    logger.info(
        "mean of the last %d: perplexity %s, %s %.2f (%s the best checkpoint)",
        len(recent.paths()),
        perplexity_text(validation.perplexity),
        PRIMARY.name,
        validation.score,
        "better than" if better else "no better than",
    )
    if better:
        state.best_score, state.best_nll = validation.score, validation.nll
        if fabric.is_global_zero:
            checkpoints.save_averaged(weights)
    return better, False

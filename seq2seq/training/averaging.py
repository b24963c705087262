"""The mean of several checkpoints' weights: a free gain when the learning rate has not been brought to zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.files import atomic_write

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
        with atomic_write(self.folder / f"{update:09d}.safetensors", "wb") as stream:
            stream.write(save({name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}))
        for path in self.paths()[: -self.count]:
            path.unlink()

    def forget_after(self, update: int) -> None:
        """Remove what a run taken up again at `update` will write anew."""
        for path in self.paths():
            if int(path.stem) > update:
                path.unlink()

    def paths(self) -> list[Path]:
        return sorted(self.folder.glob("*.safetensors"))

    def average(self) -> Weights:
        return average([str(path) for path in self.paths()], load_file)

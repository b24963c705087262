"""`seq2seq average`: the mean of the weights of several checkpoints, as a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from seq2seq.commands.configuration import checkpoints
from seq2seq.errors import UserError

if TYPE_CHECKING:
    from seq2seq.training.averaging import Weights

ALIKE = "Only models of one kind can be averaged, such as checkpoints of one run and of trainings that start from it."


def main(config: DictConfig) -> int:
    names = checkpoints(config.checkpoints, "checkpoints")
    output = Path(config.output)
    if output.exists():
        raise UserError(f"output={output} exists already\nGive another folder, or remove it first.")
    from seq2seq.inference.bundle import fill, load_bundle
    from seq2seq.pipeline.resume import model_differences
    from seq2seq.training.averaging import average

    first = load_bundle(names[0])

    def load(name: str) -> Weights:
        other = first if name == names[0] else load_bundle(name)
        if found := model_differences(first.config["model"], other.config["model"]):
            raise UserError(f"{name} has another model than {names[0]}: {'; '.join(found[:4])}\n{ALIKE}")
        if other.tokenizers.state() != first.tokenizers.state():
            raise UserError(f"{name} has another tokenizer than {names[0]}\n{ALIKE}")
        return dict(other.model.state_dict())

    fill(first.model, average(names, load), "the average")
    first.save(output)
    print(output)
    return 0

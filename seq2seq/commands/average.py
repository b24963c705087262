"""`seq2seq average`: the mean of several checkpoints' weights, as a bundle."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from seq2seq.errors import UserError


def main(config: DictConfig) -> int:
    from seq2seq.inference.bundle import fill, load_bundle
    from seq2seq.training.averaging import average

    names = list(config.checkpoints) if OmegaConf.is_list(config.checkpoints) else [config.checkpoints]
    if not names:
        raise UserError("checkpoints=[] names no checkpoint")
    output = Path(config.output)
    if output.exists():
        raise UserError(f"output={output} exists already\nGive another folder, or remove it first.")
    first, *others = bundles = [load_bundle(name) for name in names]
    for name, other in zip(names[1:], others, strict=True):
        if other.config["model"] != first.config["model"] or other.tokenizers.state() != first.tokenizers.state():
            raise UserError(f"{name} has another model or tokenizer than {names[0]}: only alike ones can be averaged")
    states = {name: dict(bundle.model.state_dict()) for name, bundle in zip(names, bundles, strict=True)}
    mean = average(names, states.__getitem__)
    fill(first.model, mean, "the average")
    dataclasses.replace(first).save(output)
    print(output)
    return 0

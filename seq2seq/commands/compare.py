"""`seq2seq compare`: several trainings under the same settings, then the report."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from seq2seq.commands import configuration
from seq2seq.commands.report import write_report
from seq2seq.commands.train import train
from seq2seq.commands.validation import check
from seq2seq.errors import UserError

OWN = ("models", "experiments", "seeds", "systems", "baseline", "run_dir")
"""Keys of the comparison itself; every other override goes to each training."""


def main(config: DictConfig) -> int:
    hydra = HydraConfig.get()
    choices = dict(hydra.runtime.choices)
    folder = Path(config.run_dir or f"runs/{choices.get('experiment') or 'compare-' + choices['data']}")
    shared = [text for text in hydra.overrides.task if text.lstrip("+~").split("=")[0].split(".")[0] not in OWN]
    trainings = [
        (f"{name}-seed{seed}", configuration.compose("compare", [*shared, *own, f"seed={seed}"]))
        for name, own in systems(config)
        for seed in config.seeds
    ]
    for _, training in trainings:
        check(training, "compare", ignore=("hydra",))
    for number, (name, training) in enumerate(trainings, start=1):
        print(f"[{number}/{len(trainings)}] {name}", file=sys.stderr)
        began = time.monotonic()
        chosen = dict(training.hydra.runtime.choices)
        for key in (*(key for key in OWN if key != "run_dir"), "hydra"):
            OmegaConf.set_struct(training, False)
            training.pop(key)
        status = train(training, folder / name, chosen)
        if status:
            return status
        print(f"[{number}/{len(trainings)}] {name}: {(time.monotonic() - began) / 60:.1f} min", file=sys.stderr)
    write_report([str(folder)], folder, config.baseline)
    return 0


def systems(config: DictConfig) -> list[tuple[str, list[str]]]:
    """Name and overrides of each system, from `models`, `experiments` and `systems`.

    Raises:
        UserError: nothing to compare.
    """
    details: dict[str, Any] = dict(config.systems or {})
    found = [(str(name), [f"model={name}"]) for name in config.models]
    found += [(str(name), [f"experiment={name}"]) for name in config.experiments]
    named = {name for name, _ in found}
    found += [(name, []) for name in details if name not in named and not config.models]
    if not found:
        raise UserError("nothing to compare\nGive models=[rnn,bahdanau], experiments=[...] or experiment=quickstart.")
    return [(name, [*own, *details.get(name, [])]) for name, own in found]

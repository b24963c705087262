"""`seq2seq train`: from a configuration to a trained, scored run folder."""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from seq2seq.commands.choices import search_path
from seq2seq.commands.config_check import without_hydra
from seq2seq.commands.configuration import Outcome
from seq2seq.commands.workers import by_joblib, in_worker, worker_training
from seq2seq.errors import UserError
from seq2seq.pipeline.ranks import takes_part
from seq2seq.run import Run, checkpoint_name

LONGEST_NAME = 160
"""Characters of a folder's name that come from a sweep; a longer name ends in a digest of the whole."""


def main(config: DictConfig) -> Outcome:
    """Train once. The objective, for sweepers, is the best validation score."""
    hydra = HydraConfig.get()
    sweep = hydra.mode == RunMode.MULTIRUN
    choices = dict(hydra.runtime.choices)
    run = Run(run_dir(config, choices, list(hydra.overrides.task), sweep))
    names = {key: choices.get(key) for key in ("data", "experiment")}
    names["system"] = choices.get("experiment") or choices.get("recipe") or choices["model"]
    if not sweep:
        names["command"] = shlex.join(["seq2seq", "train", *search_path(), *hydra.overrides.task])
    train(config, run, names)
    from seq2seq.evaluation.metrics import PRIMARY

    if config.dry_run or not run.finished:  # another process writes the metrics
        return Outcome()
    return Outcome(objective=run.read_metrics()["training"][f"best_valid_{PRIMARY.key}"])


def train(config: DictConfig, run: Run, names: dict[str, Any]) -> None:
    """Train in `run`, or with dry_run=true only look. names: what reports call it, see `pipeline.job.Job`.

    Raises:
        UserError: settings, data or a machine that cannot work.
        SystemExit: a signal stopped the training; it also stops whatever would have come after.
    """
    if not config.dry_run and not takes_part(run.folder):
        return
    check_processes(config)
    from seq2seq.pipeline.dry_run import dry_run
    from seq2seq.pipeline.job import assemble
    from seq2seq.pipeline.logs import logging_to
    from seq2seq.pipeline.train import train as train_job
    from seq2seq.training.signals import TrainingInterrupted

    settings: Any = OmegaConf.to_container(without_hydra(config), resolve=True)
    job = assemble(settings, run, names)
    if config.dry_run:
        with logging_to():
            for line in dry_run(job):
                print(line, flush=True)
        return
    try:
        with worker_training():
            try:
                train_job(job, run)
            except TrainingInterrupted as stop:
                # Printed inside, since a worker may end as soon as it has left `worker_training`.
                print(f"{run.name}: {stop}", file=sys.stderr, flush=True)
                raise
    except TrainingInterrupted as stop:
        if in_worker():
            raise
        raise SystemExit(stop.exit_code) from None


def check_processes(config: DictConfig) -> None:
    """Refuse a training in several processes that a launcher or sweeper cannot have.

    The other processes repeat the command line; a sweeper that chooses trials by earlier outcomes would not reach the
    same trial in them.

    Raises:
        UserError: with hydra/launcher=joblib, or a sweeper other than basic.
    """
    trainer, hydra = config.trainer, HydraConfig.get()
    if not several_processes(config):
        return
    asked = f"trainer.devices={trainer.devices} trainer.num_nodes={trainer.num_nodes}"
    if by_joblib():
        raise UserError(
            f"{asked}: a worker of hydra/launcher=joblib cannot start more processes\n"
            "Leave it out, and the trainings run one after the other."
        )
    sweeper = str(hydra.sweeper._target_).rpartition(".")[2]
    if hydra.mode == RunMode.MULTIRUN and sweeper != "BasicSweeper" and not in_worker():
        raise UserError(
            f"{asked}: the other processes of a training cannot follow {sweeper} from trial to trial\n"
            "Train on one device, give hydra/launcher=submitit_slurm, or list the values with hydra/sweeper=basic."
        )


def several_processes(config: DictConfig) -> bool:
    """Return True for a training in more than one process, or in as many as there are devices."""
    return (str(config.trainer.devices), config.trainer.num_nodes) != ("1", 1)


def run_dir(config: DictConfig, choices: dict[str, Any], overrides: list[str], sweep: bool) -> Path:
    """Name a run's folder: `run_dir=` if given, else runs/<experiment>-seed<n> or runs/<recipe or
    model>-<data>-seed<n>; from a checkpoint runs/<experiment or data>-seed<n>-from-<checkpoint>. Under -m the swept
    overrides follow."""
    if config.run_dir is not None:
        return named(config.run_dir)
    start = "" if config.checkpoint is None else f"-from-{checkpoint_name(Path(config.checkpoint))}"
    group = "recipe" if choices.get("recipe") else "model"
    name = choices.get("experiment") or (choices["data"] if start else f"{choices[group]}-{choices['data']}")
    name = f"{name}-seed{config.seed}{start}"
    if sweep:
        own = {"experiment", "seed", "data.root", "checkpoint"}
        own |= set() if choices.get("experiment") else {"data"} if start else {"data", group}
        name += "".join(f"-{text.replace('/', '.')}" for text in overrides if text.split("=")[0] not in own)
        if len(name) > LONGEST_NAME:
            name = f"{name[: LONGEST_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return Path("runs") / name


def named(run_dir: str) -> Path:
    """Check the name of a run's folder.

    Raises:
        UserError: it is empty, or contains an interpolation.
    """
    if not run_dir:
        raise UserError("run_dir= is empty\nGive a folder, or leave it out.")
    if "${" in run_dir:
        raise UserError(f"run_dir={run_dir}: a folder's name must not contain ${{\nGive another run_dir=.")
    return Path(run_dir)

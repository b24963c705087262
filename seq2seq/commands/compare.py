"""`seq2seq compare`: several trainings under the same settings, then the report."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from seq2seq.commands import configuration
from seq2seq.commands.report import write_report
from seq2seq.commands.runs import finished
from seq2seq.commands.train import train
from seq2seq.commands.validation import check
from seq2seq.errors import UserError

OWN = ("models", "experiments", "seeds", "systems", "baseline")
"""Keys of the comparison itself; every other override goes to each training."""


def main(config: DictConfig) -> int:
    hydra = HydraConfig.get()
    choices = dict(hydra.runtime.choices)
    folder = Path(config.run_dir or f"runs/{choices.get('experiment') or 'compare-' + choices['data']}")
    shared = [text for text in hydra.overrides.task if _key(text) not in (*OWN, "run_dir")]
    planned = [(folder / f"{name}-seed{seed}", own, seed) for name, own in systems(config) for seed in config.seeds]
    jobs = [[*shared, *own, f"seed={seed}", f"run_dir='{run}'"] for run, own, seed in planned]
    for job in jobs:
        check(configuration.compose("compare", job), "compare", ignore=("hydra",))
    progress = Progress([run for run, _, _ in planned], time.time())
    statuses = launch(config, jobs, folder, progress)
    if any(statuses):
        return max(statuses)
    print(f"{len(jobs)} runs in {(time.time() - progress.began) / 60:.1f} minutes", file=sys.stderr)
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
    if not found:
        found = [(str(name), []) for name in details]
    if not config.seeds:
        raise UserError("seeds=[] asks for no run; give seeds=[1]")
    if not found:
        raise UserError("nothing to compare\nGive models=[rnn,bahdanau], experiments=[...] or experiment=quickstart.")
    names = [name for name, _ in found]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{', '.join(repeated)} is there twice; give each system once, with seeds= for several runs")
    for name in details:
        if name not in names:
            print(f"note: systems.{name} is passed over; compared are {', '.join(names)}", file=sys.stderr)
    return [(name, [*own, *details.get(name, [])]) for name, own in found]


class Progress:
    """How far a study is, whichever of its processes asks. began: the clock's time."""

    def __init__(self, folders: Sequence[Path], began: float) -> None:
        self.folders = folders
        self.began = began
        self.before = self.finished()

    def finished(self) -> int:
        return sum(finished(folder) for folder in self.folders)

    def __str__(self) -> str:
        """'3 of 9 runs finished; 24 min, about 48 min to go'."""
        done, total, seconds = self.finished(), len(self.folders), time.time() - self.began
        text = f"{done} of {total} runs finished; {seconds / 60:.0f} min"
        if self.before < done < total:
            text += f", about {seconds / 60 / (done - self.before) * (total - done):.0f} min to go"
        return text


def launch(config: DictConfig, jobs: Sequence[Sequence[str]], folder: Path, progress: Progress) -> list[int]:
    """Run the trainings through Hydra's launcher: one after the other, or hydra/launcher=joblib, submitit_slurm, ...;
    their exit statuses. What the launcher itself writes goes to `folder`.

    Raises:
        UserError: what a training refused.
    """
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    full = config.copy()
    with open_dict(full):
        full.hydra = HydraConfig.get()
    with read_write(full.hydra):
        full.hydra.sweep.dir = str(folder)
    context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(full))
    task = partial(run_job, progress=progress)
    launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=full)
    return [_status(job) for job in launcher.launch(jobs, initial_job_idx=0)]


def run_job(config: DictConfig, progress: Progress) -> int:
    """One training of a comparison; the task that a launcher runs, perhaps in another process."""
    choices = dict(HydraConfig.get().runtime.choices)
    OmegaConf.set_struct(config, False)
    for key in OWN:
        config.pop(key, None)
    try:
        status = train(config, Path(config.run_dir), choices)
        print(progress, file=sys.stderr)
        return status
    except UserError as error:
        raise UserError(f"{Path(config.run_dir).name}: {error}") from error


def _status(job: JobReturn) -> int:
    if job.status == JobStatus.FAILED:
        raise job._return_value
    return int(job.return_value)


def _key(override: str) -> str:
    return override.lstrip("+~").split("=")[0].split(".")[0]

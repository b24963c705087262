"""`seq2seq compare`: several trainings under the same settings, then the report."""

from __future__ import annotations

import shlex
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
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

from seq2seq.commands import configuration, runs
from seq2seq.commands.choices import key_of, quoted, search_path
from seq2seq.commands.config_check import check
from seq2seq.commands.preflight import check_values
from seq2seq.commands.report import write_report
from seq2seq.commands.starting import load_start
from seq2seq.commands.suggestions import nearest
from seq2seq.commands.train import train
from seq2seq.commands.workers import leading
from seq2seq.errors import OUT_OF_MEMORY, UserError, out_of_memory
from seq2seq.training.signals import TrainingInterrupted

OWN = ("models", "experiments", "seeds", "systems", "baseline")
"""Keys of the comparison itself; every other override goes to each training."""


def main(config: DictConfig) -> int:
    hydra = HydraConfig.get()
    choices = dict(hydra.runtime.choices)
    folder = runs.named(config.run_dir or f"runs/{choices.get('experiment') or 'compare-' + choices['data']}")
    compared = systems(config)
    baseline = known_baseline(config, folder, [name for name, _ in compared])
    shared = [text for text in hydra.overrides.task if _key(text) not in (*OWN, "run_dir")]
    if any(_key(text) == "seed" for text in (*shared, *(text for _, own in compared for text in own))):
        raise UserError("seed= is one training's; give seeds=[...], for all systems alike")
    jobs = {
        f"{name}-seed{seed}": [
            *shared,
            *own,
            f"seed={seed}",
            f"run_dir={quoted(str(folder / f'{name}-seed{seed}'))}",
        ]
        for name, own in compared
        for seed in config.seeds
    }
    for name, job in jobs.items():
        check_job(name, job)
    progress = Progress([folder / name for name in jobs], time.time())
    with nullcontext() if config.dry_run else runs.held(folder):
        statuses = launch(config, list(jobs.values()), folder, progress)
        if config.dry_run or not leading():
            return max(statuses)
        if any(statuses):
            failed = [name for name, status in zip(jobs, statuses, strict=True) if status]
            print(
                f"not finished: {', '.join(failed)}; the same command goes on, and\n"
                f"seq2seq report runs={shlex.quote(str(folder))} compares those that are",
                file=sys.stderr,
            )
            return max(statuses)
        print(f"{len(jobs)} runs in {(time.time() - progress.began) / 60:.1f} minutes", file=sys.stderr)
        write_report([str(folder)], folder, baseline)
    return 0


def check_job(name: str, overrides: list[str]) -> None:
    """Refuse impossible settings of one system before the first is trained."""
    config = configuration.compose("compare", [*search_path(), *overrides])
    try:
        check(config, "compare", ignore=("hydra",))
        if runs.finished(Path(config.run_dir)):
            return
        experiment = config.hydra.runtime.choices.get("experiment")
        check_values(config, load_start(config, Path(config.run_dir), config.hydra.overrides.task, experiment))
    except UserError as error:
        raise UserError(f"{name}: {error}") from error


def known_baseline(config: DictConfig, folder: Path, names: Sequence[str]) -> str | None:
    """The baseline as the report will know it, by the name of a run.

    Raises:
        UserError: it is neither compared nor in the folder from before.
    """
    from seq2seq.report.study import hypothesis_files

    baseline = config.baseline
    if baseline is None:
        return None
    if baseline in names:
        return f"{baseline}-seed{config.seeds[0]}"
    names_of_runs = [f"{name}-seed{seed}" for name in names for seed in config.seeds]
    before = [path.parent.name for path in folder.glob("*/metrics.json")]
    before += [name for name, _ in hypothesis_files(folder)]
    if baseline not in (*names_of_runs, *before, *(name.rpartition("-seed")[0] for name in before)):
        raise UserError(
            f"baseline={baseline!r} is none of the compared systems{nearest(baseline, names)}\n"
            f"Compared are {', '.join(names)}."
        )
    return str(baseline)


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
    for name in names:
        if not name or name.startswith(".") or Path(name).name != name:
            raise UserError(f"{name!r} cannot be a system's name: each has a folder of that name in run_dir")
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
        return sum(runs.finished(folder) for folder in self.folders)

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

    One that fails does not keep the others from running; what was wrong is printed once all have ended.

    Raises:
        UserError: a process of the launcher's died.
        SystemExit: a signal ended a training in this process.
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
    try:
        returns = launcher.launch(jobs, initial_job_idx=0)
    except BrokenProcessPool as error:
        raise UserError(
            "a process that trained has died, perhaps for want of memory, and the others were stopped\n"
            "The same command goes on from their last checkpoints."
        ) from error
    return [_status(job) for job in returns]


def run_job(config: DictConfig, progress: Progress) -> int:
    """One training of a comparison; the task that a launcher runs, perhaps in another process."""
    choices = dict(HydraConfig.get().runtime.choices)
    OmegaConf.set_struct(config, False)
    for key in OWN:
        config.pop(key, None)
    name = Path(config.run_dir).name
    try:
        status = train(config, Path(config.run_dir), choices)
        if leading() and not config.dry_run:
            print(progress, file=sys.stderr)
        return status
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    except OSError as error:
        if error.strerror is None:
            raise
        raise UserError(f"{name}: {error.filename or ''}: {error.strerror}") from error
    except TrainingInterrupted as stop:
        return stop.exit_code
    except Exception as error:
        if out_of_memory(error):
            raise UserError(f"{name}: {OUT_OF_MEMORY}") from error
        traceback.print_exc()
        raise


def _status(job: JobReturn) -> int:
    if job.status != JobStatus.FAILED:
        return int(job.return_value)
    error = job._return_value
    print(f"error: {error if isinstance(error, UserError) else repr(error)}", file=sys.stderr)
    return 2 if isinstance(error, UserError) else 1


def _key(override: str) -> str:
    return key_of(override).split(".")[0]

"""`seq2seq compare`: several trainings under the same settings, then the report."""

from __future__ import annotations

import shlex
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from seq2seq.commands.arguments import quoted
from seq2seq.commands.choices import key_of, own_folders
from seq2seq.commands.config_check import without_hydra
from seq2seq.commands.configuration import checked
from seq2seq.commands.explain import explain
from seq2seq.commands.progress import Progress
from seq2seq.commands.report import write_report
from seq2seq.commands.train import named, several_processes, train
from seq2seq.commands.workers import enter_worker, in_worker
from seq2seq.errors import OUT_OF_MEMORY, UserError, out_of_memory
from seq2seq.pipeline.ranks import is_rank_zero
from seq2seq.pipeline.suggestions import nearest
from seq2seq.run import Run, RunInUse
from seq2seq.training.signals import TrainingInterrupted

OWN = ("models", "experiments", "seeds", "systems", "baseline")
"""Keys of the comparison itself; all other overrides apply to each training."""


def main(config: DictConfig) -> int:
    hydra = HydraConfig.get()
    choices = dict(hydra.runtime.choices)
    study = choices.get("experiment") or f"{choices.get('recipe') or 'compare'}-{choices['data']}"
    folder = named(config.run_dir or f"runs/{study}")
    compared = systems(config)
    baseline = known_baseline(config, folder, [name for name, _ in compared])
    jobs = job_overrides(hydra.overrides.task, compared, config.seeds, folder)
    trainings = Jobs(config, folder)
    for name, overrides in jobs.items():
        trainings.check(name, overrides)
    began = time.time()
    progress = Progress([folder / name for name in jobs], began)
    if not config.dry_run:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot write {folder}: {error.strerror}\nGive another run_dir=.") from error
    ended = train_free(trainings, jobs, progress)
    if failed := {name: one for name, one in ended.items() if one.status}:
        for name, one in failed.items():
            if one.error:
                print(f"error: {name}: {one.error}", file=sys.stderr)
        raise Unfinished(folder, failed)
    if not is_rank_zero() or config.dry_run:
        return 0
    taken = [name for name, one in ended.items() if one.taken]
    trained = sum(one.trained for one in ended.values())
    print(f"{trained} run{'s' * (trained != 1)} in {(time.time() - began) / 60:.1f} minutes", file=sys.stderr)
    unscored = baseline in taken and not Run(folder / str(baseline)).finished
    if taken:
        against = f" baseline={shlex.quote(baseline)}" if baseline else ""
        print(
            f"{', '.join(taken)}: being trained by another process; when it has ended,\n"
            f"seq2seq report runs={shlex.quote(str(folder))}{against} compares all runs"
            + (f"; without {baseline}, the baseline, there is no report yet" if unscored else ""),
            file=sys.stderr,
        )
    if len(taken) < len(jobs) and not unscored:
        report_all(folder, baseline)
    return 0


def report_all(folder: Path, baseline: str | None) -> None:
    """Write the report, and again while other starts finish runs meanwhile: the last report has all."""
    reported = None
    while reported != (finished := {path for path in folder.iterdir() if Run(path).finished}):
        write_report([str(folder)], folder, baseline)
        reported = finished


def train_free(trainings: Jobs, jobs: Mapping[str, list[str]], progress: Progress) -> dict[str, Ended]:
    """Run the trainings that no other process has taken, including those that become free meanwhile."""
    ended: dict[str, Ended] = {}
    waiting = dict(jobs)
    while waiting:
        found = dict(zip(waiting, trainings.launch(list(waiting.values()), progress), strict=True))
        ended |= found
        taken = {name: jobs[name] for name, one in found.items() if one.taken}
        waiting = taken if len(taken) < len(waiting) else {}
    return ended


class Jobs:
    """Trainings of a comparison, composed and launched by Hydra as jobs of a sweep."""

    def __init__(self, config: DictConfig, folder: Path) -> None:
        """folder: for files of the launcher itself."""
        self._config = config.copy()
        with open_dict(self._config):
            self._config.hydra = HydraConfig.get()
        with read_write(self._config.hydra):
            self._config.hydra.sweep.dir = str(folder)
        self._loader = GlobalHydra.instance().config_loader()

    def check(self, name: str, overrides: list[str]) -> None:
        """Refuse impossible settings of one training before any begins."""
        from seq2seq.pipeline.job import assemble
        from seq2seq.pipeline.resume import check_no_evaluation

        try:
            config = checked(self._loader.load_sweep_config(self._config, overrides), "compare", overrides)
            run = Run(config.run_dir)
            check_no_evaluation(run)
            if not run.finished:
                settings: Any = OmegaConf.to_container(without_hydra(config), resolve=True)
                assemble(settings, run)
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(f"{name}: {explain(error, 'compare', overrides, own_folders())}") from error
        except UserError as error:
            raise UserError(f"{name}: {error}") from error

    def launch(self, jobs: Sequence[Sequence[str]], progress: Progress) -> list[Ended]:
        """Run the trainings one after the other, or as hydra/launcher= says.

        Raises:
            UserError: a process of the launcher died.
            SystemExit: a signal ended a training in this process, or one of several processes is taken.
        """
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=HydraContext(config_loader=self._loader, callbacks=cast(Any, Callback())),
            task_function=partial(run_job, progress=progress),
            config=self._config,
        )
        try:
            return [job.return_value for job in launcher.launch(jobs, initial_job_idx=0)]
        except BrokenProcessPool as error:
            raise UserError(
                "a training process died, perhaps because memory ran out, and the others were stopped\n"
                "The same command resumes them from their last checkpoints."
            ) from error


class Ended(NamedTuple):
    """Result of a training: exit status and error message, or `taken` if another process is running it.

    trained: False where the run had finished before.
    """

    status: int
    error: str = ""
    taken: bool = False
    trained: bool = False


class Unfinished(UserError):
    """Raised when trainings of a comparison have failed; its exit status is the highest of theirs."""

    def __init__(self, folder: Path, failed: Mapping[str, Ended]) -> None:
        super().__init__(
            f"not finished: {', '.join(failed)}; the same command resumes them, and\n"
            f"seq2seq report runs={shlex.quote(str(folder))} compares the others"
        )
        self.status = max(ended.status for ended in failed.values())


def job_overrides(
    arguments: Sequence[str], compared: Sequence[tuple[str, list[str]]], seeds: Sequence[int], folder: Path
) -> dict[str, list[str]]:
    """List the overrides of each training by its name, SYSTEM-seedN."""
    shared = [text for text in arguments if _key(text) not in (*OWN, "run_dir")]
    if any(_key(text) == "seed" for text in (*shared, *(text for _, own in compared for text in own))):
        raise UserError("seed= is of one training\nGive seeds=[...] for all systems.")
    return {
        name: [*shared, *own, f"seed={seed}", f"run_dir={quoted(str(folder / name))}"]
        for system, own in compared
        for seed in seeds
        for name in [f"{system}-seed{seed}"]
    }


def known_baseline(config: DictConfig, folder: Path, names: Sequence[str]) -> str | None:
    """Find the baseline, by the name of a run as the report knows it.

    Raises:
        UserError: it is neither among the compared systems nor in the folder.
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
            f"baseline={baseline!r} is not one of the compared systems{nearest(baseline, names)}\n"
            f"The systems are {', '.join(names)}."
        )
    return str(baseline)


def systems(config: DictConfig) -> list[tuple[str, list[str]]]:
    """List name and overrides of each system, from `models`, `experiments` and `systems`.

    Raises:
        UserError: nothing to compare.
    """
    details: dict[str, Any] = dict(config.systems or {})
    found = [(str(name), [f"model={name}"]) for name in config.models]
    found += [(str(name), [f"experiment={name}"]) for name in config.experiments]
    if not found:
        found = [(str(name), []) for name in details]
    if not config.seeds:
        raise UserError("seeds=[] is empty\nGive seeds=[1].")
    if not found:
        raise UserError("nothing to compare\nGive models=[rnn,bahdanau], experiments=[...] or experiment=quickstart.")
    names = [name for name, _ in found]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{', '.join(repeated)} is given twice\nGive each system once, and seeds= for several runs.")
    for name in names:
        if not name or name.startswith(".") or Path(name).name != name:
            raise UserError(f"{name!r} cannot be a system's name, which is also the name of a folder")
    for name in details:
        if name not in names:
            print(f"note: systems.{name} is ignored; the systems are {', '.join(names)}", file=sys.stderr)
    return [(name, [*own, *details.get(name, [])]) for name, own in found]


def run_job(config: DictConfig, progress: Progress) -> Ended:
    """Run one training of a comparison: the task of a launcher, perhaps in another process."""
    enter_worker()
    choices = dict(HydraConfig.get().runtime.choices)
    OmegaConf.set_struct(config, False)
    try:
        config = checked(config, "compare", [])
        for key in OWN:
            config.pop(key)
        run = Run(config.run_dir)
        names = {key: choices.get(key) for key in ("data", "experiment")}
        names |= {"system": run.name.rpartition("-seed")[0], "study": run.folder.resolve().parent.name}
        before = _time_of(run.metrics_file)
        train(config, run, names)
        trained = _time_of(run.metrics_file) != before
    except TrainingInterrupted as stop:
        return Ended(stop.exit_code)
    except RunInUse as error:
        if not several_processes(config):
            return Ended(0, taken=True)
        if in_worker():
            return Ended(2, str(error))
        print(f"error: {run.name}: {error}", file=sys.stderr)
        raise SystemExit(2) from None  # the other processes are in this training already, and must not meet in another
    except UserError as error:
        return Ended(2, str(error))
    except Exception as error:
        if isinstance(error, OSError) and error.strerror is not None:
            return Ended(2, f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
        if out_of_memory(error):
            return Ended(2, OUT_OF_MEMORY)
        traceback.print_exc()
        return Ended(1, repr(error))
    if is_rank_zero() and not config.dry_run:
        with suppress(Exception):  # a training that has ended well counts, whatever becomes of this line
            print(progress, file=sys.stderr)
    return Ended(0, trained=trained)


def _key(override: str) -> str:
    return key_of(override).split(".")[0]


def _time_of(path: Path) -> int | None:
    """Time at which the file was written; None where there is none."""
    return path.stat().st_mtime_ns if path.exists() else None

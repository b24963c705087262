"""`seq2seq train`: from a configuration to a trained, scored run folder."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from seq2seq.commands import runs
from seq2seq.commands.choices import search_path
from seq2seq.commands.configuration import Outcome, build
from seq2seq.commands.console import hush, talk_to
from seq2seq.commands.preflight import check_lengths, check_values, warn, warn_of_late_validation
from seq2seq.commands.scoring import score_split, test_splits, write_word_counts
from seq2seq.commands.starting import create_model, load_start, training_data, warn_of_tokenizer
from seq2seq.commands.workers import by_joblib, concerned, in_worker, joined_by_others, launched, leading
from seq2seq.errors import UserError
from seq2seq.inference.card import short_name

if TYPE_CHECKING:
    from seq2seq.data.translation_data import TranslationData
    from seq2seq.inference.bundle import Bundle
    from seq2seq.training.trainer import TrainingResult


def main(config: DictConfig) -> Outcome:
    """The objective, for sweepers, is the best validation BLEU."""
    hydra = HydraConfig.get()
    sweep = hydra.mode == RunMode.MULTIRUN
    choices = dict(hydra.runtime.choices)
    folder = runs.run_dir(config, choices, list(hydra.overrides.task), sweep)
    command = None if sweep else shlex.join(["seq2seq", "train", *search_path(), *hydra.overrides.task])
    status = train(config, folder, choices, command)
    return Outcome(status, None if config.dry_run else best_valid_bleu(folder))


def best_valid_bleu(folder: Path) -> float | None:
    """Of a finished run; None in processes that finish before the one that writes metrics.json."""
    path = folder / "metrics.json"
    return runs.read_metrics(path)["training"]["best_valid_bleu"] if path.is_file() else None


def train(config: DictConfig, folder: Path, choices: dict[str, Any], command: str | None = None) -> int:
    """Train in `folder`, or go on there; then score the best checkpoint. Returns the exit status.

    choices: the option taken from each config group. command: what was typed, if that repeats this run alone.

    Raises:
        UserError: whatever is wrong with settings, data or machine.
        SystemExit: a signal stopped the training; it stops whatever would have come after it as well.
    """
    if not config.dry_run and not concerned(folder):
        return 0
    start = load_start(config, folder, HydraConfig.get().overrides.task, choices.get("experiment"))
    if config.dry_run:
        from seq2seq.commands.dry_run import dry_run

        check_values(config, start)
        with talk_to():
            return dry_run(config, start)
    settings = runs.plain(config)
    if _told_finished(folder, config, settings, start):
        return 0
    check_values(config, start)
    _check_processes(config)
    with launched(), runs.held(folder):
        if _told_finished(folder, config, settings, start):
            return 0
        runs.claim(folder, settings)
        with joined_by_others(folder):
            return _tell(folder, partial(_train, config, settings, folder, choices, command, start))


def _check_processes(config: DictConfig) -> None:
    """Raises UserError for a training in several processes where its other processes, which repeat the command line,
    would not come to it: a sweeper that chooses trials by the outcomes of earlier ones does not tell them of these."""
    trainer, hydra = config.trainer, HydraConfig.get()
    if (str(trainer.devices), trainer.num_nodes) == ("1", 1):
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


def _told_finished(folder: Path, config: DictConfig, settings: dict[str, Any], start: Bundle | None) -> bool:
    """Whether the run in `folder` is finished, within the limits of `config`; if it is, say so."""
    if not runs.finished(folder):
        return False
    runs.check_same(folder, settings)
    _check_corpus(folder, config, start)
    if _goes_on(folder, config) or _unscored(folder, config):
        return False
    if leading():
        print(f"{folder} is finished; its scores are in {folder / 'metrics.json'}", file=sys.stderr)
    return True


def _check_corpus(folder: Path, config: DictConfig, start: Bundle | None) -> None:
    """Raises UserError if a finished run was trained on another corpus than is there now. One that is there no longer
    says nothing."""
    try:
        found = training_data(config, start).fingerprint
    except UserError:
        return
    if found != runs.read_metrics(folder / "metrics.json").get("corpus", found):  # older runs do not tell
        raise UserError(
            f"{folder} is finished, and the corpus is no longer what it was trained on\n"
            "Give another run_dir= to train on what is there now."
        )


def _goes_on(folder: Path, config: DictConfig) -> bool:
    """Whether a finished run has more to do because a limit that ended it has been raised or lifted."""
    training = runs.read_metrics(folder / "metrics.json")["training"]
    if build(config.trainer).limits().exceeded(training["updates"], training["epochs"], training["seconds"]):
        return False
    before, now = training.get("patience"), build(config.callbacks).patience
    return training["stopped"] != "patience" or now is None or (before is not None and now > before)


def _unscored(folder: Path, config: DictConfig) -> bool:
    """Whether other test sets are asked for than a finished run was scored on."""
    metrics = runs.read_metrics(folder / "metrics.json")
    if config.test_splits is None:
        return metrics.get("test_splits") is not None
    return not set(config.test_splits) <= metrics["splits"].keys()


def _tell(folder: Path, work: Callable[[], int]) -> int:
    """The exit status of a training, what it says kept in `folder`; of several processes the first one's alone."""
    from seq2seq.training.signals import TrainingInterrupted

    if not leading():
        hush()
        with suppress(TrainingInterrupted):
            work()
        return 0
    runs.remove_left_overs(folder)
    with talk_to(folder / "train.log", folder.name):
        try:
            return work()
        except TrainingInterrupted as stop:
            print(f"{folder.name}: {stop}", file=sys.stderr)
            if in_worker():
                raise
            raise SystemExit(stop.exit_code) from None


def _train(
    config: DictConfig,
    settings: dict[str, Any],
    folder: Path,
    choices: dict[str, Any],
    command: str | None,
    start: Bundle | None,
) -> int:
    from seq2seq.training.criterion import Criterion
    from seq2seq.training.progress import seed_everything
    from seq2seq.training.trainer import fit
    from seq2seq.training.validation import bleu

    lightning = build(config.trainer).build(folder)
    if start is not None:
        warn_of_tokenizer(config, HydraConfig.get().overrides.task)
    data = training_data(config, start)
    warn(config, data)
    data.prepare()
    seed_everything(config.seed, 0)
    model = create_model(config, start, data.vocabulary())
    check_lengths(config, model, data)
    warn_of_late_validation(config, data, lightning.num_devices * lightning.num_nodes)
    result = fit(
        model,
        data,
        criterion=Criterion(config.label_smoothing),
        optimizer=build(config.optimizer),
        schedule=build(config.schedule),
        search=build(config.search),
        trainer=build(config.trainer),
        callbacks=build(config.callbacks),
        run_dir=folder,
        config=settings,
        observers=[build(config.logger)],
        seed=config.seed,
        score=partial(bleu, tokenize=config.tokenize, lowercase=config.lowercase),
    )
    if result.main:
        finish(config, settings, folder, {**choices, "command": command}, data, result)
    return 0


def finish(
    config: DictConfig,
    settings: dict[str, Any],
    folder: Path,
    known: dict[str, Any],
    data: TranslationData,
    result: TrainingResult,
) -> None:
    """Score the trained model on its test sets; write bundle/ and metrics.json. known: names of data, ..."""
    from seq2seq.evaluation.metrics import bleu_name
    from seq2seq.inference.bundle import count_parameters, load_checkpoint
    from seq2seq.inference.scores import SCORED_MODEL
    from seq2seq.inference.translator import Translator

    bundle = load_checkpoint(result.checkpoint, result.device)
    translator = Translator([bundle], device=result.device)
    write_word_counts(data, folder / "word_counts.json")
    metrics = {
        "name": folder.name,
        "model": short_name(config.model),
        **{key: known.get(key) for key in ("data", "experiment", "command")},
        "checkpoint": config.checkpoint,
        "seed": config.seed,
        "languages": [data.source_language, data.target_language],
        "sizes": data.sizes,
        "corpus": data.fingerprint,
        "parameters": count_parameters(bundle.model),
        SCORED_MODEL: bundle.digest(),
        "training": {**result.summary(), "patience": build(config.callbacks).patience},
        "test_splits": settings["test_splits"],
        "splits": scores_of_before(folder, result),
        **runs.provenance(),
    }
    for split in test_splits(data, config.test_splits):
        if split not in metrics["splits"]:
            metrics["splits"][split] = score_split(
                translator, data, split, settings["search"], folder, config.tokenize, config.lowercase
            )
    bundle.save(folder / "bundle", metrics)
    runs.write_metrics(folder / "metrics.json", metrics)
    for split, scores in metrics["splits"].items():
        name = bleu_name(scores["bleu"]["signature"])
        print(f"{folder}  {split}  {name} {scores['bleu']['score']:.2f}  chrF {scores['chrf']['score']:.2f}")


def scores_of_before(folder: Path, result: TrainingResult) -> dict[str, Any]:
    """By test set, those of a finished run that was asked for others and has not been trained further."""
    if not runs.finished(folder):
        return {}
    metrics = runs.read_metrics(folder / "metrics.json")
    same = all(metrics["training"][key] == getattr(result, key) for key in ("updates", "best_update", "averaged"))
    return dict(metrics["splits"]) if same else {}

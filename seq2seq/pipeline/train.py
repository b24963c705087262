"""Train a job in its run's folder, then score the best checkpoint."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any

import torch

from seq2seq.data.lexical_translation import translation_candidates
from seq2seq.data.translation_data import TranslationData
from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import summary
from seq2seq.inference.bundle import Bundle, count_parameters, load_checkpoint
from seq2seq.inference.card import short_name
from seq2seq.inference.scored_run import SCORED_MODEL, scored_run
from seq2seq.inference.translator import Translator
from seq2seq.pipeline.hints import warn, warn_of_late_validation
from seq2seq.pipeline.job import Job, default_folder
from seq2seq.pipeline.logs import logging_to, silence
from seq2seq.pipeline.provenance import provenance
from seq2seq.pipeline.ranks import is_rank_zero, process_group
from seq2seq.pipeline.resume import check_same
from seq2seq.pipeline.scoring import score_split, write_word_counts
from seq2seq.run import Run
from seq2seq.search import Shortlist
from seq2seq.training.loop import TrainingResult, fit
from seq2seq.training.signals import TrainingInterrupted
from seq2seq.training.state import seed_everything
from seq2seq.training.validation import primary_score

SHORTLIST_PAIRS = 50_000
"""Training pairs that the translations of a shortlist are estimated from."""

logger = logging.getLogger(__name__)


def train(job: Job, run_dir: str | PathLike[str] | None = None, callbacks: Sequence[Any] = ()) -> Run:
    """Train `job` in `run_dir`, or resume there, then score the best checkpoint on the test sets.

    A finished run is returned as it is. run_dir: by default the job's own, or runs/<model>-<data>-seed<n>. callbacks:
    see `training.loop.fit`.

    Raises:
        UserError: the folder is in use, holds another training or cannot be written; or whatever `fit` refuses.
        TrainingInterrupted: SIGTERM or Ctrl-C; the same call resumes.
    """
    run = Run(run_dir or job.settings["run_dir"] or default_folder(job.settings, job.names))
    if is_finished(job, run):
        return run
    _ = job.data.fingerprint  # refuses a corpus that is not there before the run has a folder
    with run.held() if is_rank_zero() else nullcontext():
        if is_finished(job, run):
            return run
        check_same(run, job.settings)
        if run.begun and run.of_first_version:
            raise UserError(
                f"cannot resume: {run} was begun by version 0.1.0 of seq2seq\n"
                f"Give another run_dir=, with checkpoint={run} model=checkpoint to start from its weights."
            )
        with process_group(run.folder):
            if is_rank_zero():
                _write_settings(job, run)
                run.remove_leftovers()
                with logging_to(run.log, run.name):
                    _train(job, run, callbacks)
            else:
                silence()
                with suppress(TrainingInterrupted):
                    _train(job, run, callbacks)
    return run


def is_finished(job: Job, run: Run) -> bool:
    """Return True if the run has been trained to the job's limits and scored on its test sets; rank zero says so.

    Raises:
        UserError: it was trained with other settings or on another corpus.
    """
    if not run.finished:
        return False
    check_same(run, job.settings)
    metrics = run.read_metrics()
    _check_corpus(job, run, metrics)
    if _limit_raised(job, metrics["training"]) or _unscored(job, metrics):
        return False
    if is_rank_zero():
        print(f"{run} is finished; its scores are in {run.metrics_file}", file=sys.stderr)
    return True


def _check_corpus(job: Job, run: Run, metrics: dict[str, Any]) -> None:
    """Raises UserError if the run's corpus has changed since. A corpus that is gone says nothing."""
    try:
        found = job.data.fingerprint
    except UserError:
        return
    if found != metrics.get("corpus", found):
        raise UserError(
            f"{run} is finished, and the corpus is no longer what it was trained on\n"
            "Give another run_dir= to train on what is there now."
        )


def _limit_raised(job: Job, training: dict[str, Any]) -> bool:
    if job.trainer.limits().reached(training["updates"], training["epochs"], training["seconds"]):
        return False
    before, now = training.get("patience"), job.trainer.patience
    return training["stopped"] != "patience" or now is None or (before is not None and now > before)


def _unscored(job: Job, metrics: dict[str, Any]) -> bool:
    wanted = job.settings["test_splits"]
    if wanted is None:
        return metrics.get("test_splits") is not None
    return not set(wanted) <= metrics["splits"].keys()


def _write_settings(job: Job, run: Run) -> None:
    if run.settings_file.is_file() and run.read_settings() == job.settings:
        return
    try:
        run.write_settings(job.settings)
    except OSError as error:
        raise UserError(f"cannot write {run.settings_file}: {error.strerror}\nGive another run_dir=.") from error


def _train(job: Job, run: Run, callbacks: Sequence[Any]) -> None:
    fabric = job.trainer.create_fabric()  # refuses what this machine cannot do before data are prepared
    warn(job)
    job.data.prepare()
    seed_everything(job.seed)
    model = job.model()
    check_lengths(job, model)
    warn_of_late_validation(job, processes=getattr(fabric.strategy, "num_processes", 1) * job.trainer.num_nodes)
    tokenize, lowercase = job.settings["tokenize"], job.settings["lowercase"]
    result = fit(
        model,
        job.data,
        criterion=job.criterion,
        optimizer=job.optimizer,
        schedule=job.schedule,
        search=job.search,
        settings=job.trainer,
        run=run,
        config=job.settings,
        loggers=job.loggers,
        callbacks=callbacks,
        seed=job.seed,
        score=partial(primary_score, tokenize=tokenize, lowercase=lowercase),
    )
    if result.main:
        finish(job, run, result)


def finish(job: Job, run: Run, result: TrainingResult) -> None:
    """Score the trained model on its test sets; write bundle/ and metrics.json."""
    data, settings = job.data, job.settings
    bundle = load_checkpoint(result.checkpoint, result.device)
    if settings["search"].get("shortlist"):
        shortlist = build_shortlist(data, settings["search"]["shortlist"])
        bundle = replace(bundle, config={**bundle.config, "search": settings["search"]}, shortlist=shortlist)
    translator = Translator([bundle], device=result.device)
    write_word_counts(data, run.word_counts)
    metrics = {
        "name": run.name,
        "system": job.names.get("system") or run.name.rpartition("-seed")[0] or run.name,
        "study": job.names.get("study"),
        "seed": job.seed,
        "model": short_name(settings["model"]),
        "data": job.names.get("data") or settings["data"]["corpus"],
        "experiment": job.names.get("experiment"),
        "command": job.names.get("command"),
        "checkpoint": settings["checkpoint"],
        "languages": [data.source_language, data.target_language],
        "sizes": data.sizes,
        "corpus": data.fingerprint,
        "parameters": count_parameters(bundle.model),
        SCORED_MODEL: bundle.digest(),
        "training": {**result.summary(), "patience": job.trainer.patience},
        "test_splits": settings["test_splits"],
        "splits": _earlier_scores(run, bundle),
        **provenance(),
    }
    for split in job.test_splits:
        if split not in metrics["splits"]:
            metrics["splits"][split] = score_split(
                translator, data, split, settings["search"], run, settings["tokenize"], settings["lowercase"]
            )
    bundle.save(run.bundle, metrics)
    run.write_metrics(metrics)
    for split, scores in metrics["splits"].items():
        print(f"{run}  {split}  {summary(scores)}")


def build_shortlist(data: TranslationData, count: int) -> Shortlist:
    """Estimate the `count` most probable translations of each source token from training pairs."""
    began = time.perf_counter()
    source, target = data.tokenizers.source, data.tokenizers.target
    found = translation_candidates(
        partial(data.sample_batches, SHORTLIST_PAIRS), len(source), len(target), count, data.tokenizers.joint
    )
    logger.info("likely translations of the source tokens estimated in %.0f s", time.perf_counter() - began)
    return Shortlist(*map(torch.from_numpy, found))


def _earlier_scores(run: Run, bundle: Bundle) -> dict[str, Any]:
    """Scores by test set of a finished run that was asked for others and whose model is the same."""
    scored = scored_run(run, bundle)
    return {} if scored is None else dict(scored.read_metrics()["splits"])


def check_lengths(job: Job, model: Any) -> None:
    """Raises UserError if a segment of the prepared data is longer than a model with learned positions can take."""
    way_out = "Raise model.maximum_positions, lower data.max_length (of training), or take other positions."
    data = job.data
    unforeseen = data.streaming or job.settings["tokenizer"].get("sampling")
    for side, longest in (("source", model.longest_source), ("target", model.longest_output)):
        if longest is None:
            continue
        if unforeseen and data.filters.max_length > longest:
            raise UserError(
                f"data.max_length={data.filters.max_length}: the model has positions for {longest} {side} tokens\n"
                f"{way_out}"
            )
        for split in {*data.sizes} & {"train", "valid", *job.test_splits}:
            length, row = data.longest(split, side)
            if length > longest:
                raise UserError(
                    f"{split}: segment {row + 1} has {length} {side} tokens, and the model positions for {longest}\n"
                    f"{way_out}"
                )

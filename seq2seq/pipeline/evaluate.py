"""Score a checkpoint on test sets: those of its own corpus, or of any other."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from seq2seq.data.corpora import check_split
from seq2seq.data.tokenizer import TokenizerSettings
from seq2seq.data.translation_data import TranslationData
from seq2seq.errors import UserError
from seq2seq.evaluation.comet import Comet
from seq2seq.evaluation.metrics import LEARNED, METRICS, PRIMARY
from seq2seq.inference.bundle import Bundle, count_parameters
from seq2seq.inference.card import short_name
from seq2seq.inference.export_folder import Export
from seq2seq.inference.loading import find_device, load_model
from seq2seq.inference.scored_run import scored_run
from seq2seq.inference.translator import Translator
from seq2seq.pipeline.job import create_data
from seq2seq.pipeline.provenance import provenance
from seq2seq.pipeline.resume import DEFAULTS
from seq2seq.pipeline.scoring import score_split, with_beam_size
from seq2seq.run import Run, checkpoint_name, upgraded_settings
from seq2seq.search import SearchChoice, search_settings
from seq2seq.training.checkpoint import read_checkpoint

logger = logging.getLogger(__name__)


def evaluate(
    checkpoint: str | Path,
    *,
    data: Mapping[str, Any] | None = None,
    splits: Sequence[str] | None = None,
    search: SearchChoice = None,
    output: str | Path | None = None,
    tokenize: str | None = None,
    lowercase: bool | None = None,
    comet: Comet | None = None,
    beam_sizes: Sequence[int] = (),
    device: str = "cpu",
    names: Mapping[str, str | None] | None = None,
) -> dict[str, Any]:
    """Translate test sets with a trained model and score them; entries as in metrics.json, by split.

    checkpoint: a run's folder, a bundle or a .ckpt. data: settings that replace those of the checkpoint's corpus or,
    with `corpus` among them, another corpus whole. splits: test sets, by default all. search: another, or changes
    to the checkpoint's own (see `search.chosen_search`). output: a folder for translations, attention, settings and
    metrics.json, which reports read like a run's. tokenize, lowercase: sacreBLEU's, by default the run's. beam_sizes:
    also score beams of these sizes. names: the corpus ("data") and "command" as scores and reports name them.

    Scores by COMET and by beam size are also added to the run's metrics.json, where they are of the run's own model and
    test sets.

    Raises:
        UserError: no such checkpoint, corpus or split; an export, which cannot be evaluated; an output that holds a
            training or is in use.
    """
    folder = None if output is None else Run(output)
    if folder is not None:
        folder.check_no_training()
    bundle = load_model(checkpoint, find_device(device))
    if isinstance(bundle, Export):
        raise UserError(
            f"checkpoint={checkpoint} is an export, which can translate but not be evaluated whole\n"
            "Give the run itself, or translate with it and give hypotheses= and references=."
        )
    translator = Translator([bundle], search, device=device)
    for size in beam_sizes:
        with_beam_size(translator.search, size)
    settings = run_settings(Path(checkpoint))
    own_data = settings["data"]
    chosen = dict(data or {})
    node = chosen if chosen.get("corpus") else {**own_data, **_known(chosen, own_data)}
    corpus = create_data(node, TokenizerSettings(), settings["seed"], bundle.tokenizers)
    corpus.prepare()
    tokenize = settings["tokenize"] if tokenize is None else tokenize
    lowercase = settings["lowercase"] if lowercase is None else lowercase
    wanted = _splits(corpus, splits)
    used = search_settings(translator.search)
    known = _scores(checkpoint)
    trained_on = known.get("data") or own_data["corpus"]
    name = (names or {}).get("data") or (node["corpus"] if node is chosen else trained_on)
    with nullcontext() if folder is None else folder.held("output"):
        if folder is not None:
            folder.check_no_training()
        found = {
            split: score_split(translator, corpus, split, used, folder, tokenize, lowercase, comet, beam_sizes)
            for split in wanted
        }
        for entry in found.values():
            entry["data"] = {"name": name, "corpus": node["corpus"], "fingerprint": corpus.fingerprint}
        if folder is not None:
            metrics = {
                "name": folder.name,
                **_of_training(known, checkpoint, bundle, settings),
                "data": name,
                "corpus": corpus.fingerprint,
                "languages": [corpus.source_language, corpus.target_language],
                "command": (names or {}).get("command"),
                "evaluated": {"checkpoint": str(checkpoint), "data": trained_on, "corpus": known.get("corpus")},
                "splits": found,
                **provenance(),
            }
            folder.write_metrics(metrics)  # first: settings alone would pass for a training
            folder.write_settings(
                {**settings, "data": node, "search": used, "tokenize": tokenize, "lowercase": lowercase}
            )
    if node is not chosen and (comet is not None or beam_sizes):
        _record(checkpoint, bundle, found)
    return found


def _scores(checkpoint: str | Path) -> dict[str, Any]:
    """The metrics.json of the checkpoint's run; empty where it has none."""
    run = Run.scored(checkpoint)
    return {} if run is None else run.read_metrics()


def _of_training(
    known: Mapping[str, Any], checkpoint: str | Path, bundle: Bundle, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Describe the model to reports. known: its run's metrics.json, whose training counts if it made these weights."""
    name = checkpoint_name(checkpoint)
    return {
        "system": known.get("system") or name.rpartition("-seed")[0] or name,
        "study": known.get("study"),
        "seed": settings["seed"],
        "model": short_name(bundle.config["model"]),
        "parameters": count_parameters(bundle.model),
        "training": known["training"] if scored_run(checkpoint, bundle) is not None else {},
        **{key: known[key] for key in ("sizes", "checkpoint") if key in known},
    }


def _known(changes: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Changes to the checkpoint's own data settings. Raises UserError for one that its corpus does not have."""
    for key, value in changes.items():
        if key not in own:
            raise UserError(f"data.{key}={value}: the checkpoint's corpus ({own['corpus']}) has no such setting")
    return dict(changes)


def _splits(corpus: TranslationData, wanted: Sequence[str] | None) -> list[str]:
    if wanted is None:
        return [name for name in corpus.corpus.splits() if name.startswith("test")]
    for split in wanted:
        check_split(corpus.corpus, split)
    return list(wanted)


def run_settings(checkpoint: Path) -> dict[str, Any]:
    """Find the settings of the run that a checkpoint belongs to.

    Raises:
        UserError: there are none beside it.
    """
    if checkpoint.is_file():
        return {**DEFAULTS, **upgraded_settings(read_checkpoint(checkpoint)["seq2seq"]["config"])}
    for run in Run.containing(checkpoint):
        if run.settings_file.is_file() and "data" in (settings := run.read_settings()):
            return {**DEFAULTS, **settings}
    raise UserError(
        f"checkpoint={checkpoint} does not say what corpus it was trained on\n"
        "Give the run's folder, or translate with it and give hypotheses= and references=."
    )


def _record(checkpoint: str | Path, bundle: Bundle, splits: Mapping[str, Any]) -> None:
    """Add the learned metric and "by_beam_size" to the metrics.json of the run, where its scores are these scores."""
    run = scored_run(checkpoint, bundle)
    if run is None:
        if Run.scored(checkpoint) is not None:
            logger.warning(
                "scores not kept in the run's metrics.json: checkpoint=%s is not the model that was scored", checkpoint
            )
        return
    metrics = run.read_metrics()
    for split, entry in splits.items():
        known = metrics["splits"].get(split, {})
        both = METRICS.keys() & known.keys() & entry.keys()
        if PRIMARY.key not in both or any(known[key] != entry[key] for key in both - {LEARNED.key}):
            logger.warning("scores not kept in %s: it has no such scores of %s", run.metrics_file, split)
            continue
        known |= {key: entry[key] for key in (LEARNED.key, "by_beam_size") if key in entry}
    try:
        run.write_metrics(metrics)
    except OSError as error:  # the scores are also returned
        logger.warning("scores not kept in %s: %s", run.metrics_file, error.strerror or error)

"""The scores that belong to a model: those in a run's folder that its own weights and tokenizers earned."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from seq2seq.errors import UserError
from seq2seq.inference.bundle import Bundle, count_parameters
from seq2seq.inference.card import short_name
from seq2seq.inference.export_folder import Export
from seq2seq.run import Run

SCORED_MODEL = "scored_model"
"""The key of metrics.json with the digest of the model that was scored."""


def scored_run(path: str | PathLike[str], model: Bundle | Export) -> Run | None:
    """The run that `path` lies in, if `model`, which was loaded from there, earned its scores; else None.

    Other weights may lie in the same folder: the last checkpoint, averages, another run's bundle, quantized exports.

    Raises:
        UserError: metrics.json is damaged.
    """
    run = Run.scored(path)
    if run is None:
        return None
    metrics = run.read_metrics()
    earned = metrics.get(SCORED_MODEL) or _digest_of_bundle(run, metrics)
    return run if earned is not None and model.digest() == earned else None


def _digest_of_bundle(run: Run, metrics: Mapping[str, Any]) -> str | None:
    """The digest of what version 0.1.0 scored, which it did not record: the run's bundle, if it still is that model."""
    try:
        bundle = Bundle.load(run.bundle)
    except UserError:
        return None
    known = (metrics.get("model"), metrics.get("parameters"))
    return bundle.digest() if known == (short_name(bundle.config["model"]), count_parameters(bundle.model)) else None

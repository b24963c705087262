"""Recipes: the command that makes a run again, with its settings and versions."""

import shlex
from typing import Any

from seq2seq.evaluation.metrics import METRICS
from seq2seq.report.study import Result

HYDRA = "hydra.run.dir=. hydra.output_subdir=null hydra/job_logging=none hydra/hydra_logging=none"
"""Settings of conf/train.yaml that a run's config.yaml lacks: they keep Hydra from writing a folder."""


def recipe(result: Result) -> dict[str, Any]:
    """The command, settings, versions and signatures of a run that has a folder."""
    metrics = result.metrics
    return {
        "name": result.name,
        "command": metrics.get("command") or command(result),
        "config": result.config,
        "versions": metrics.get("versions"),
        "commit": metrics.get("commit"),
        "created": metrics.get("created"),
        "training": metrics.get("training"),
        "splits": {
            split: {key: scores[key]["signature"] for key in METRICS if scores.get(key)}
            for split, scores in metrics["splits"].items()
        },
    }


def command(result: Result) -> str:
    """Write the command that trains a run of `compare` or a sweep alone, from its settings: it kept none that does.

    A run that was trained further from a checkpoint takes that one's model, but for rates of dropout that are typed.
    """
    assert result.run is not None
    folder = shlex.quote(str(result.run.folder.resolve()))
    model = result.config.get("model") or {} if result.config.get("checkpoint") else {}
    rates = [f"model.{key}={value}" for key, value in model.items() if key.endswith("dropout")]
    return " ".join(["seq2seq train --config-path", folder, "--config-name config run_dir=NEW", *rates, HYDRA])

"""How a run can be made again."""

import shlex
from typing import Any

from seq2seq.report.splits import METRICS
from seq2seq.report.study import Run

HYDRA = "hydra.run.dir=. hydra.output_subdir=null hydra/job_logging=none hydra/hydra_logging=none"
"""What conf/train.yaml sets and a run's config.yaml lacks: keeps Hydra from writing a folder of its own."""


def recipe(run: Run) -> dict[str, Any]:
    """The command, settings, versions and signatures of a run that has a folder."""
    return {
        "name": run.name,
        "command": run.metrics.get("command") or command(run),
        "config": run.config,
        "versions": run.metrics.get("versions"),
        "commit": run.metrics.get("commit"),
        "created": run.metrics.get("created"),
        "training": run.metrics.get("training"),
        "splits": {
            split: {key: scores[key]["signature"] for key in METRICS if scores.get(key)}
            for split, scores in run.metrics["splits"].items()
        },
    }


def command(run: Run) -> str:
    """What trains a run of `compare` or a sweep alone, from its settings: no command line was kept that does.

    A run that went on from a checkpoint takes that one's model, but for rates of dropout that are typed.
    """
    assert run.folder is not None
    folder = shlex.quote(str(run.folder.resolve()))
    model = run.config.get("model") or {} if run.config.get("checkpoint") else {}
    rates = [f"model.{key}={value}" for key, value in model.items() if key.endswith("dropout")]
    return " ".join(["seq2seq train --config-path", folder, "--config-name config run_dir=NEW", *rates, HYDRA])

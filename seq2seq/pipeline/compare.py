"""Train several jobs one after the other in one folder, for a report that compares them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.pipeline.job import Job
from seq2seq.pipeline.train import train
from seq2seq.run import Run


def compare(jobs: Mapping[str, Job], folder: str | Path) -> list[Run]:
    """Train each job in FOLDER/NAME and return the finished runs; finished ones are skipped, interrupted ones resume.

    One that fails does not keep the others from running. `seq2seq.report.render.write_report` compares what is there.

    Raises:
        UserError: naming those that failed, once all have run.
        TrainingInterrupted: SIGTERM or Ctrl-C; the same call resumes.
    """
    runs, failed = [], []
    for name, job in jobs.items():
        try:
            runs.append(train(job, Path(folder) / name))
        except UserError as error:
            print(f"error: {name}: {error}", file=sys.stderr)
            failed.append(name)
    if failed:
        raise UserError(f"not finished: {', '.join(failed)}")
    return runs

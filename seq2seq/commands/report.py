"""`seq2seq report`: compare finished runs and external systems."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from seq2seq.errors import UserError


def main(config: DictConfig) -> int:
    if not config.runs:
        raise UserError("runs= names no folder; give a folder of runs, such as runs=runs")
    folders = [str(folder) for folder in config.runs] if OmegaConf.is_list(config.runs) else [str(config.runs)]
    write_report(
        folders, Path(config.output or folders[0]), config.baseline, config.split, dict(config.hypotheses or {})
    )
    return 0


def write_report(
    folders: Sequence[str],
    output: Path,
    baseline: str | None = None,
    split: str | None = None,
    hypotheses: Mapping[str, str] | None = None,
) -> None:
    """Write the report on the runs below `folders` to `output`; print its table and its path."""
    from rich.console import Console

    from seq2seq.report.render import build_report
    from seq2seq.report.study import collect
    from seq2seq.report.tables import print_summary

    study = collect(folders, hypotheses)
    files, report = build_report(study, output, baseline, split)
    for note in report["notes"]:
        print(f"note: {note}", file=sys.stderr)
    print_summary(report, Console())
    print(f"\nreport: {files.html.resolve()}")

"""`seq2seq export`: a checkpoint in another format."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

from omegaconf import DictConfig

from seq2seq.commands.configuration import checkpoints, need_files
from seq2seq.errors import UserError
from seq2seq.run import Run

SAMPLE = 64
"""Number of segments that verify an export."""


def main(config: DictConfig) -> int:
    output, checkpoint = Path(config.output), Path(config.checkpoint)
    if config.format != "ctranslate2" and config.quantization is not None:
        raise UserError("quantization= belongs to format=ctranslate2")
    if config.format == "bundle" and config.sample is not None:
        raise UserError("sample= belongs to format=ctranslate2 and format=onnx; a bundle is the model itself")
    if output.exists():
        raise UserError(f"output={output} exists already\nGive another folder, or remove it first.")
    checkpoints(config.checkpoint)
    need_files(config, "sample")
    from seq2seq.inference.bundle import load_bundle
    from seq2seq.inference.scored_run import scored_run

    bundle = load_bundle(checkpoint)
    run = scored_run(checkpoint, bundle)
    metrics = None if run is None else run.read_metrics()
    if config.format == "bundle":
        bundle.save(output, metrics)
    else:
        from seq2seq.export import export_ctranslate2, export_onnx

        sample = run_sources(checkpoint) if config.sample is None else read_sample(Path(config.sample))
        if config.format == "ctranslate2":
            found = export_ctranslate2(bundle, output, config.quantization, sample, metrics)
        else:
            found = export_onnx(bundle, output, sample, metrics)
        print(found, file=sys.stderr)
    print(output)
    return 0


def run_sources(checkpoint: Path) -> list[str] | None:
    """Read the first source lines of the run's first test set; None if there is none beside the checkpoint."""
    run = Run.scored(checkpoint)
    path = None if run is None else run.sources()
    return None if path is None else read_sample(path)


def read_sample(path: Path) -> list[str]:
    from seq2seq.data.readers import read_lines

    return list(islice(read_lines(path, errors="replace"), SAMPLE))

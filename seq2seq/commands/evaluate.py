"""`seq2seq evaluate`: scores of a checkpoint, or of a file of translations, as JSON on standard output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seq2seq.commands.configuration import build
from seq2seq.commands.console import talk_to
from seq2seq.commands.runs import read_settings
from seq2seq.commands.scoring import score_split, test_splits
from seq2seq.commands.translate import chosen_search
from seq2seq.errors import UserError
from seq2seq.files import atomic_write


def main(config: DictConfig) -> int:
    files = [config.hypotheses, config.references, config.sources]
    if (config.checkpoint is None) == (config.hypotheses is None):
        raise UserError("give checkpoint=RUN, or hypotheses=FILE references=FILE sources=FILE")
    if config.hypotheses is not None and None in files:
        raise UserError("hypotheses=FILE needs references=FILE and sources=FILE")
    with talk_to():
        splits = score_files(config, files) if config.checkpoint is None else score_checkpoint(config)
    text = json.dumps(splits, indent=1, ensure_ascii=False)
    if config.output is not None:
        with atomic_write(Path(config.output) / "scores.json") as stream:
            stream.write(text + "\n")
    print(text)
    return 0


def score_files(config: DictConfig, files: list[str]) -> dict[str, Any]:
    from seq2seq.data.readers import read_lines
    from seq2seq.evaluation.metrics import evaluate_texts

    hypotheses, references, sources = (list(read_lines(Path(path))) for path in files)
    scores = evaluate_texts(hypotheses, references, sources, tokenize=config.tokenize, lowercase=config.lowercase)
    return {Path(files[0]).name: scores}


def score_checkpoint(config: DictConfig) -> dict[str, Any]:
    """Scores of the checkpoint on the test sets of the corpus that it was trained on."""
    from seq2seq.data.datamodule import TranslationData
    from seq2seq.inference.translator import Translator

    translator = Translator.load(config.checkpoint, config.device, chosen_search(config))
    settings = run_settings(Path(config.checkpoint))
    if config.data_root is not None:
        settings.data.root = config.data_root
    data = TranslationData.from_config(build(settings.data), translator.tokenizers, settings.seed)
    data.prepare()
    output = None if config.output is None else Path(config.output)
    search = OmegaConf.to_container(config.search if chosen_search(config) else settings.search, resolve=True)
    assert isinstance(search, dict)
    return {
        split: score_split(
            translator,
            data,
            split,
            {str(key): value for key, value in search.items()},
            output,
            config.tokenize,
            config.lowercase,
        )
        for split in test_splits(data, config.splits)
    }


def run_settings(checkpoint: Path) -> DictConfig:
    """The configuration of the run that a checkpoint belongs to."""
    if checkpoint.is_file():
        from seq2seq.training.checkpoint import read_checkpoint

        settings = OmegaConf.create(read_checkpoint(checkpoint)["seq2seq"]["config"])
        assert isinstance(settings, DictConfig)
        return settings
    for folder in (checkpoint, checkpoint.parent):
        if (folder / "config.yaml").is_file():
            settings = OmegaConf.create(read_settings(folder / "config.yaml"))
            if "data" in settings:
                return settings
    raise UserError(
        f"checkpoint={checkpoint} does not say what corpus it was trained on\n"
        "Give the run's folder, or translate with it and give hypotheses= references= sources=."
    )

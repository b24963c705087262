"""`seq2seq evaluate`: scores of a checkpoint or of a file of translations, as JSON on standard output."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from seq2seq.commands.choices import search_path
from seq2seq.commands.configuration import checkpoints, chosen_search, need_files
from seq2seq.commands.console import need_output
from seq2seq.errors import UserError
from seq2seq.files import atomic_write
from seq2seq.pipeline.logs import logging_to
from seq2seq.run import Run

if TYPE_CHECKING:
    from seq2seq.evaluation.comet import Comet


def main(config: DictConfig) -> int:
    files = [config.hypotheses, config.references, config.sources]
    if (config.checkpoint is None) == (config.hypotheses is None):
        raise UserError("give checkpoint=RUN, or hypotheses=FILE references=FILE")
    if config.hypotheses is not None and config.references is None:
        raise UserError("hypotheses=FILE needs references=FILE")
    if config.hypotheses is not None and config.sources is None and config.comet is not None:
        raise UserError("comet= needs sources=FILE as well")
    if config.checkpoint is not None and any(files):
        raise UserError("references= and sources= go with hypotheses=; a checkpoint has the test sets of its corpus")
    if config.checkpoint is None and (config.splits or chosen_data(config) or chosen_search(config.search)):
        raise UserError("splits=, data= and search= go with checkpoint=; hypotheses= are scored as they are")
    if config.beam_sizes and config.checkpoint is None:
        raise UserError("beam_sizes=[...] needs checkpoint=RUN, which translates again with each")
    if config.output is None:
        need_output("Give output=DIR.")
    else:
        Run(config.output).check_no_training()
    if config.checkpoint is not None:
        checkpoints(config.checkpoint)
    need_files(config, "hypotheses", "references", "sources")
    with logging_to():
        comet = asked_comet(config)
        splits = score_files(config, files, comet) if config.checkpoint is None else score_checkpoint(config, comet)
    text = json.dumps(splits, indent=1, ensure_ascii=False)
    if config.output is not None:
        with atomic_write(Path(config.output) / "scores.json") as stream:
            stream.write(text + "\n")
    print(text)
    return 0


def asked_comet(config: DictConfig) -> Comet | None:
    """Load the COMET model of `comet=`, if any, before anything is translated."""
    if config.comet is None:
        return None
    from seq2seq.evaluation.comet import load_comet

    return load_comet(config.comet, gpus=int(config.device.startswith("cuda")))


def score_files(config: DictConfig, files: list[Any], comet: Comet | None) -> dict[str, Any]:
    from seq2seq.data.texts import read_texts
    from seq2seq.evaluation.metrics import LEARNED, evaluate_texts

    hypotheses, references = map(read_texts, files[:2])
    sources = None if files[2] is None else read_texts(files[2])
    tokenize, lowercase = config.tokenize or "13a", bool(config.lowercase)
    scores = evaluate_texts(hypotheses, references, sources, tokenize=tokenize, lowercase=lowercase)
    if comet is not None and sources is not None:
        scores[LEARNED.key] = comet.score(hypotheses, references, sources)
    return {Path(files[0]).name: scores}


def score_checkpoint(config: DictConfig, comet: Comet | None) -> dict[str, Any]:
    from seq2seq.pipeline.evaluate import evaluate

    hydra = HydraConfig.get()
    return evaluate(
        config.checkpoint,
        data=chosen_data(config),
        splits=config.splits,
        search=chosen_search(config.search),
        output=config.output,
        tokenize=config.tokenize,
        lowercase=config.lowercase,
        comet=comet,
        beam_sizes=config.beam_sizes,
        device=config.device,
        names={
            "data": hydra.runtime.choices["data"] if config.data.get("corpus") else None,
            "command": shlex.join(["seq2seq", "evaluate", *search_path(), *hydra.overrides.task]),
        },
    )


def chosen_data(config: DictConfig) -> dict[str, Any]:
    """Return the corpus of `data=NAME`; for data=checkpoint the keys that change the checkpoint's own."""
    data: Any = OmegaConf.to_container(config.data, resolve=True)
    return data if data.get("corpus") else {key: value for key, value in data.items() if value is not None}

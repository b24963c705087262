"""`seq2seq evaluate`: scores of a checkpoint or of a file of translations, as JSON on standard output."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from seq2seq.commands.config_check import check_foreign
from seq2seq.commands.configuration import build, checkpoints, chosen_search
from seq2seq.commands.console import need_output, talk_to
from seq2seq.errors import UserError
from seq2seq.files import atomic_write
from seq2seq.run import Run

if TYPE_CHECKING:
    from seq2seq.evaluation.comet import Comet

logger = logging.getLogger(__name__)


def main(config: DictConfig) -> int:
    files = [config.hypotheses, config.references, config.sources]
    if (config.checkpoint is None) == (config.hypotheses is None):
        raise UserError("give checkpoint=RUN, or hypotheses=FILE references=FILE sources=FILE")
    if config.hypotheses is not None and None in files:
        raise UserError("hypotheses=FILE needs references=FILE and sources=FILE")
    if config.checkpoint is not None and any(files):
        raise UserError("references= and sources= go with hypotheses=; a checkpoint has the test sets of its corpus")
    if config.checkpoint is None and (config.splits or config.data.root or chosen_search(config.search)):
        raise UserError("splits=, data.root= and search go with checkpoint=; hypotheses= are scored as they are")
    if config.beam_sizes and config.checkpoint is None:
        raise UserError("beam_sizes=[...] needs checkpoint=RUN, which translates again with each")
    if config.output is not None and (Path(config.output) / "metrics.json").is_file():
        raise UserError(
            f"output={config.output} is the folder of a run, whose metrics.json belongs to the texts that are there\n"
            f"Give another folder, such as output={Path(config.output) / 'evaluation'}"
        )
    if config.output is None:
        need_output("Give output=DIR.")
    if config.checkpoint is not None:
        checkpoints(config.checkpoint)
    with talk_to():
        comet = asked_comet(config)
        splits = score_files(config, files, comet) if config.checkpoint is None else score_checkpoint(config, comet)
    text = json.dumps(splits, indent=1, ensure_ascii=False)
    if config.output is not None:
        with atomic_write(Path(config.output) / "scores.json") as stream:
            stream.write(text + "\n")
    print(text)
    return 0


def asked_comet(config: DictConfig) -> Comet | None:
    """The COMET model that was asked for; loaded first, so that a missing one is said before anything is translated."""
    if config.comet is None:
        return None
    from seq2seq.evaluation.comet import load_comet

    return load_comet(config.comet, gpus=int(config.device.startswith("cuda")))


def score_files(config: DictConfig, files: list[str], comet: Comet | None) -> dict[str, Any]:
    from seq2seq.data.texts import read_texts
    from seq2seq.evaluation.metrics import LEARNED, evaluate_texts

    hypotheses, references, sources = map(read_texts, files)
    tokenize, lowercase = config.tokenize or "13a", bool(config.lowercase)
    scores = evaluate_texts(hypotheses, references, sources, tokenize=tokenize, lowercase=lowercase)
    if comet is not None:
        scores[LEARNED.key] = comet.score(hypotheses, references, sources)
    return {Path(files[0]).name: scores}


def score_checkpoint(config: DictConfig, comet: Comet | None) -> dict[str, Any]:
    """Scores of the checkpoint on the test sets of the corpus that it was trained on.

    What was asked for beyond a run's own scores, COMET and the effect of the beam, is added to its metrics.json, where
    reports find it; nothing there is changed.
    """
    from seq2seq.commands.scoring import score_split, test_splits, with_beam_size
    from seq2seq.data.tokenizer import TokenizerSettings
    from seq2seq.data.translation_data import TranslationData
    from seq2seq.inference.translator import Translator

    translator = Translator.load(config.checkpoint, config.device, chosen_search(config.search))
    if translator.exported:
        raise UserError(
            f"checkpoint={config.checkpoint} is an export, which can translate but not be evaluated whole\n"
            "Give the run itself, or translate with it and give hypotheses= references= sources=."
        )
    for size in config.beam_sizes:
        with_beam_size(translator.search, size)
    settings = run_settings(Path(config.checkpoint))
    if config.data.root is not None:
        move_data(settings.data, config.data.root)
    node = OmegaConf.to_container(settings.data, resolve=True)
    assert isinstance(node, dict)
    check_foreign({str(key): value for key, value in node.items()}, "data", f"{config.checkpoint}: data")
    data = TranslationData.from_config(build(settings.data), TokenizerSettings(), settings.seed, translator.tokenizers)
    data.prepare()
    # Runs of earlier versions do not say how they were scored: there was one way.
    tokenize = settings.get("tokenize", "13a") if config.tokenize is None else config.tokenize
    lowercase = settings.get("lowercase", False) if config.lowercase is None else config.lowercase
    output = None if config.output is None else Path(config.output)
    search: Any = OmegaConf.to_container(
        config.search if "_target_" in config.search else settings.search, resolve=True
    )
    search |= {key: value for key, value in config.search.items() if value is not None}
    splits = {
        split: score_split(
            translator,
            data,
            split,
            search,
            output,
            tokenize,
            lowercase,
            comet,
            config.beam_sizes,
        )
        for split in test_splits(data, config.splits)
    }
    if comet is not None or config.beam_sizes:
        record(config.checkpoint, splits)
    return splits


def move_data(data: DictConfig, root: str) -> None:
    """Point a run's data at another folder. In a saved configuration what refers to data.root is written out.

    Raises:
        UserError: the run's corpus does not come from a folder.
    """
    places = [key for key in ("root", "path") if key in data.corpus and data.corpus[key] == data.get("root")]
    if not places:
        raise UserError(f"data.root={root}: the run's data was not read from a folder")
    data.root = root
    for key in places:
        data.corpus[key] = root


def record(checkpoint: str, splits: dict[str, Any]) -> None:
    """Add "comet" and "by_beam_size" to the metrics.json of a checkpoint's run, where its scores are these scores."""
    from seq2seq.inference.bundle import load_bundle
    from seq2seq.inference.scores import scored_run

    if Run.scored(checkpoint) is None:
        return
    run = scored_run(checkpoint, load_bundle(checkpoint))
    if run is None:
        logger.warning("not kept in the run's metrics.json: checkpoint=%s is not the model that was scored", checkpoint)
        return
    metrics = run.read_metrics()
    for split, entry in splits.items():
        known = metrics["splits"].get(split)
        if known is None or any(known.get(key) != entry[key] for key in ("bleu", "chrf")):
            logger.warning("not kept in %s: it has no such scores of %s", run.metrics_file, split)
            continue
        known |= {key: entry[key] for key in ("comet", "by_beam_size") if key in entry}
    run.write_metrics(metrics)


def run_settings(checkpoint: Path) -> DictConfig:
    """The configuration of the run that a checkpoint belongs to."""
    if checkpoint.is_file():
        from seq2seq.training.checkpoint import read_checkpoint

        settings = OmegaConf.create(read_checkpoint(checkpoint)["seq2seq"]["config"])
        assert isinstance(settings, DictConfig)
        return settings
    for run in Run.containing(checkpoint):
        if run.settings_file.is_file():
            settings = OmegaConf.create(run.read_settings())
            if "data" in settings:
                return settings
    raise UserError(
        f"checkpoint={checkpoint} does not say what corpus it was trained on\n"
        "Give the run's folder, or translate with it and give hypotheses= references= sources=."
    )

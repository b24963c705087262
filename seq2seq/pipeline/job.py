"""One training, assembled from plain settings and checked before anything is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seq2seq.data.catalogue import CORPORA
from seq2seq.data.concatenation import ConcatenatedCorpus
from seq2seq.data.corpora import check_split
from seq2seq.data.tokenizer import TokenizerPair, TokenizerSettings
from seq2seq.data.translation_data import TranslationData
from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import References
from seq2seq.inference.bundle import Bundle, fill, load_bundle
from seq2seq.inference.card import short_name
from seq2seq.pipeline.build import TARGET, build, check_arguments
from seq2seq.pipeline.resume import DEFAULTS, model_differences
from seq2seq.pipeline.suggestions import nearest
from seq2seq.run import Run
from seq2seq.search import Search
from seq2seq.search.penalties import NO_COVERAGE
from seq2seq.training.criterion import Criterion
from seq2seq.training.loggers import LoggerFactory
from seq2seq.training.optimizer import create_optimizer, parameter_kinds
from seq2seq.training.schedule import Schedule
from seq2seq.training.settings import TrainerSettings

GROUPS = ("data", "tokenizer", "model", "optimizer", "schedule", "search", "trainer")
"""Settings that a configuration must hold, each a mapping."""

OWN_DATA_KEYS = inspect.signature(TranslationData).parameters.keys() - {"corpus", "tokenizer", "seed", "tokenizers"}
"""Keys of `data` that are TranslationData's; the others are the corpus's."""


@dataclass(frozen=True)
class Job:
    """Everything of one training.

    settings: the plain configuration that the parts were built from, which the run keeps. names: what reports call this
    run ("system", "study", "data", "experiment", "command"), where known. create_model(**vocabulary) builds the model
    (vocabulary: see TokenizerPair.vocabulary). start: the trained model that training begins with, or None.
    """

    settings: dict[str, Any]
    data: TranslationData
    create_model: Callable[..., nn.Module]
    criterion: Criterion
    optimizer: Callable[..., torch.optim.Optimizer]
    schedule: Schedule
    search: Search
    trainer: TrainerSettings
    loggers: Sequence[LoggerFactory] = ()
    start: Bundle | None = None
    names: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        return int(self.settings["seed"])

    @property
    def test_splits(self) -> list[str]:
        """Test sets to score: those asked for, or all of the corpus."""
        wanted = self.settings["test_splits"]
        if wanted is None:
            return [name for name in self.data.corpus.splits() if name.startswith("test")]
        return list(wanted)

    def model(self) -> nn.Module:
        """Build the model for the prepared data, with the weights of `start` if there is one."""
        model = self.create_model(**self.data.vocabulary())
        if self.start is not None:
            fill(model, dict(self.start.model.state_dict()), f"checkpoint={self.settings['checkpoint']}")
        return model


def assemble(config: Mapping[str, Any], run: Run | None = None, names: Mapping[str, str | None] | None = None) -> Job:
    """Build every part of a training and check that they work together; no data is read.

    config: a resolved configuration as plain values, such as `seq2seq.compose` returns or a run's config.yaml holds.
    run: where it will be trained; a run that has begun holds its own copy of the model that `checkpoint` names.

    Raises:
        UserError: settings that are unknown, of the wrong type, out of range, or that do not go together.
    """
    settings = {**DEFAULTS, **config}
    if missing := [name for name in GROUPS if not isinstance(settings.get(name), Mapping)]:
        raise UserError(f"the configuration has no {missing[0]}: seq2seq.compose() returns a whole one")
    if not 0 <= settings["seed"] < 2**32:
        raise UserError(f"seed={settings['seed']} must be at least 0 and below 2 ** 32")
    References((), settings["tokenize"], settings["lowercase"])
    start = None if settings["checkpoint"] is None else _load_start(settings["checkpoint"], run)
    settings["model"] = _model_settings(settings, start)
    tokenizer = _tokenizer_settings(settings["tokenizer"], start)
    logger = settings["logger"] or {}
    job = Job(
        settings,
        create_data(settings["data"], tokenizer, settings["seed"], start.tokenizers if start else None),
        partial(build, settings["model"], "model"),
        Criterion(settings["label_smoothing"], settings["r_drop"]),
        build(settings["optimizer"], "optimizer"),
        build(settings["schedule"], "schedule"),
        build(settings["search"], "search"),
        build(settings["trainer"], "trainer"),
        (build(logger, "logger"),) if logger.get(TARGET) else (),
        start,
        names or {},
    )
    _check(job)
    return job


def create_data(
    settings: Mapping[str, Any], tokenizer: TokenizerSettings, seed: int, tokenizers: TokenizerPair | None = None
) -> TranslationData:
    """Build the corpus and its batches from the `data` settings, with `tokenizers` that are already trained, if given.
    A key that the corpus does not take may be None.

    Raises:
        UserError: an unknown corpus or key, or a value of the wrong type or out of range.
    """
    name = settings.get("corpus")
    if not isinstance(name, str) or name not in CORPORA:
        known = ", ".join(CORPORA)
        raise UserError(f"data.corpus={name!r} is unknown{nearest(str(name), CORPORA)}\nThere are {known}.")
    corpus = CORPORA[name]
    taken = inspect.signature(corpus).parameters.keys()
    own = {key: value for key, value in settings.items() if key in OWN_DATA_KEYS}
    others = {key: value for key, value in settings.items() if key in taken}
    for key, value in settings.items():
        if key != "corpus" and key not in own and key not in others and value is not None:
            known_keys = sorted({*taken, *OWN_DATA_KEYS})
            raise UserError(f"data.{key}={value}: corpus {name} does not take it{nearest(key, known_keys)}")
    own |= check_arguments("data", own, TranslationData)
    others |= check_arguments("data", others, corpus)
    joined = own.get("concatenation") or {}
    own["concatenation"] = {**joined, **check_arguments("data.concatenation", joined, ConcatenatedCorpus)}
    return TranslationData(corpus(**others), tokenizer, seed, tokenizers, **own)


def _load_start(checkpoint: str, run: Run | None) -> Bundle:
    for path in (run.last, run.best, run.bundle) if run is not None else ():
        if path.exists():
            try:
                return load_bundle(path)
            except UserError:
                continue
    return load_bundle(checkpoint)


def _model_settings(settings: Mapping[str, Any], start: Bundle | None) -> dict[str, Any]:
    """The model's settings: those given, or with model=checkpoint those of `start` but for the keys that are not null.

    Raises:
        UserError: model=checkpoint without a checkpoint, or settings that do not fit its weights.
    """
    given = dict(settings["model"])
    if start is None:
        if given.get(TARGET) is None:
            raise UserError("model=checkpoint needs checkpoint=RUN\nGive that, or a model= to train from scratch.")
        return given
    there = dict(start.config["model"])
    name = f"checkpoint={settings['checkpoint']}"
    if given.get(TARGET) is None:
        changed = {key: value for key, value in given.items() if value is not None}
        if unknown := [key for key in changed if key not in there]:
            raise UserError(f"model.{unknown[0]}={changed[unknown[0]]}: the model of {name} has no such setting")
        given = {**there, **changed}
    elif (own := short_name(there)) != (asked := short_name(given)):
        raise UserError(f"{name} holds a model={own}, not {asked}\nGive model=checkpoint to train that one further.")
    if found := model_differences(there, given):
        raise UserError(
            f"{name} has other settings: {'; '.join(found[:4])}\nGive model=checkpoint, and the checkpoint's are taken."
        )
    return given


def _tokenizer_settings(settings: Mapping[str, Any], start: Bundle | None) -> TokenizerSettings:
    """Choose the tokenizer settings; with the tokenizers of `start`, only subword sampling counts."""
    if start is not None:
        return TokenizerSettings(sampling=settings.get("sampling") or 0.0)
    if settings.get(TARGET) is None:
        raise UserError("tokenizer=checkpoint needs checkpoint=RUN\nGive that, or tokenizer=unigram.")
    tokenizer: TokenizerSettings = build(settings, "tokenizer")
    return tokenizer


def _check(job: Job) -> None:
    """Refuse parts that cannot work together: let a tiny model look at one word, and build its optimizer."""
    tokenizer = job.settings["tokenizer"]
    tiny = {"source_vocabulary": 8, "target_vocabulary": 8, "joint_vocabulary": tokenizer.get("joint", True)}
    model: Any = job.create_model(**(job.start.tokenizers.vocabulary() if job.start else tiny)).eval()
    word, mask = torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.bool)
    with torch.no_grad():
        model.decode(word, model.encode(word, mask), mask)
        before = torch.get_rng_state()
        mixture = model.train().decode(word, model.encode(word, mask), mask).mixture
        random = not torch.equal(before, torch.get_rng_state())
        model.eval()
    if job.criterion.r_drop and mixture is not None:
        raise UserError(
            f"r_drop={job.criterion.r_drop}: a model with alignment=hard_marginal predicts a mixture of "
            "distributions, which R-Drop does not compare\nLeave r_drop out, or choose another alignment."
        )
    if job.criterion.r_drop and not random:
        raise UserError(
            f"r_drop={job.criterion.r_drop} compares two passes that differ by dropout, and this model has none\n"
            "Give model.dropout=0.1, or leave r_drop out."
        )
    if job.trainer.precision == "bf16-mixed" and job.trainer.accelerator == "cpu":
        _check_bfloat16(model, word, mask)
    if job.search.ranking.coverage_penalty and not model.attends:
        raise UserError(NO_COVERAGE)
    create_optimizer(job.optimizer, model.named_parameters(), parameter_kinds(model))
    check_split(job.data.corpus, "valid")
    for split in job.settings["test_splits"] or ():
        check_split(job.data.corpus, split)


def _check_bfloat16(model: Any, word: torch.Tensor, mask: torch.Tensor) -> None:
    """Raises UserError where this processor has no bfloat16 product for one of the model's layers."""
    try:
        with torch.autocast("cpu", torch.bfloat16):
            model.decode(word, model.encode(word, mask), mask).features.float().sum().backward()
    except RuntimeError as error:
        raise UserError(
            "trainer.precision=bf16-mixed: this processor cannot run the model in bfloat16 "
            f"({str(error).splitlines()[0]})\nUse trainer.precision=32-true."
        ) from error
    finally:
        model.zero_grad()


def default_folder(settings: Mapping[str, Any], names: Mapping[str, str | None]) -> Path:
    """The folder of a training without run_dir: runs/<experiment or model>-<data>-seed<n>."""
    data = names.get("data") or settings["data"].get("corpus")
    name = names.get("experiment") or f"{short_name(settings['model'])}-{data}"
    return Path("runs") / f"{name}-seed{settings['seed']}"

"""Where a training starts: from random weights, or from a trained model (`checkpoint=`)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from seq2seq.commands.choices import key_of
from seq2seq.commands.configuration import build
from seq2seq.commands.runs import differences
from seq2seq.errors import UserError
from seq2seq.inference.card import short_name

if TYPE_CHECKING:
    from seq2seq.data.translation_data import TranslationData
    from seq2seq.inference.bundle import Bundle

logger = logging.getLogger(__name__)


def load_start(config: DictConfig, folder: Path, chosen: Sequence[str], experiment: str | None) -> Bundle | None:
    """The model that `checkpoint=` names, or None; and `config.model` becomes its model, see `_take_model`.

    A run in `folder` that has begun holds all that is needed of it, and goes on even where `checkpoint=` is gone.
    chosen: the overrides that were typed. experiment: the one that was chosen.
    """
    if config.checkpoint is None:
        return None
    from seq2seq.inference.bundle import load_bundle

    start = None
    for path in (folder / "checkpoints" / "last.ckpt", folder / "checkpoints" / "best.ckpt", folder / "bundle"):
        if start is None and path.exists():
            with suppress(UserError):
                start = load_bundle(path)
    if start is None:
        start = load_bundle(config.checkpoint)
    _take_model(config, start.config["model"], [key_of(text) for text in chosen], experiment)
    return start


def warn_of_tokenizer(config: DictConfig, chosen: Sequence[str]) -> None:
    """Say which settings of a tokenizer were typed in vain: the start brings its own. Only sampling counts."""
    typed = [key_of(text) for text in chosen]
    if vain := [key for key in typed if key.split(".")[0] == "tokenizer" and key != "tokenizer.sampling"]:
        logger.warning("checkpoint=%s brings its own tokenizers: %s not used", config.checkpoint, ", ".join(vain))


def _take_model(config: DictConfig, there: dict[str, Any], keys: Sequence[str], experiment: str | None) -> None:
    """Let `config.model` be `there` but for single keys that were typed, unless model= or an experiment has chosen it.

    Raises:
        UserError: naming each setting that differs in the end, rates of dropout excepted.
    """
    if experiment is None and not any(key == "model" or key.startswith("model/") for key in keys):
        taken = OmegaConf.create(dict(there))
        for key in keys:
            if key.startswith("model."):
                OmegaConf.update(taken, key.removeprefix("model."), OmegaConf.select(config, key))
        config.model = taken
    here: Any = OmegaConf.to_container(config.model, resolve=True)
    if (own := short_name(there)) != (asked := short_name(here)):
        raise UserError(
            f"checkpoint={config.checkpoint} holds a model={own}, not {asked}\nGive that, or leave model= out."
        )
    if found := model_differences(there, here):
        raise UserError(
            f"checkpoint={config.checkpoint} has other settings: {'; '.join(found)}\n"
            "Leave them out, and the checkpoint's are taken."
        )


def model_differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """`model.KEY: old -> new` for each setting of a model that differs, rates of dropout excepted: the same weights do
    with any."""
    found = differences({"model": one}, {"model": other})
    return [text for text in found if not text.partition(":")[0].endswith("dropout")]


def training_data(config: DictConfig, start: Bundle | None = None) -> TranslationData:
    """The corpus of `config` with its tokenizer settings, or the tokenizers of `start`; nothing is read yet."""
    from seq2seq.data.translation_data import TranslationData

    tokenizers = None if start is None else start.tokenizers
    return TranslationData.from_config(build(config.data), build(config.tokenizer), config.seed, tokenizers)


def create_model(config: DictConfig, start: Bundle | None, vocabulary: dict[str, Any]) -> Any:
    """The model of `config`, with the weights of `start` if that is given. vocabulary: see TokenizerPair.vocabulary."""
    from seq2seq.inference.bundle import fill

    model = build(config.model, **vocabulary)
    if start is not None:
        fill(model, dict(start.model.state_dict()), f"checkpoint={config.checkpoint}")
    return model

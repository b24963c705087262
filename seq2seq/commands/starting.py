"""Where a training starts: from random weights, or from a trained model (`checkpoint=`)."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from seq2seq.commands.configuration import build
from seq2seq.commands.runs import differences
from seq2seq.commands.validation import check_arguments
from seq2seq.errors import UserError

if TYPE_CHECKING:
    from seq2seq.data.datamodule import TranslationData
    from seq2seq.inference.bundle import Bundle


def load_start(config: DictConfig) -> Bundle | None:
    """The model that `checkpoint=` names, or None."""
    from seq2seq.inference.bundle import load_bundle

    return None if config.checkpoint is None else load_bundle(config.checkpoint)


def training_data(config: DictConfig, start: Bundle | None = None) -> TranslationData:
    """The corpus of `config` with its tokenizer settings, or the tokenizers of `start`; nothing is read yet."""
    from seq2seq.data.datamodule import TranslationData

    settings = build(config.data)
    own = inspect.signature(TranslationData).parameters.keys() - {"corpus"}
    check_arguments("data", {key: value for key, value in settings.items() if key in own}, TranslationData)
    tokenizers = None if start is None else start.tokenizers
    return TranslationData.from_config(settings, build(config.tokenizer), config.seed, tokenizers)


def create_model(config: DictConfig, start: Bundle | None, vocabulary: dict[str, Any]) -> Any:
    """The model of `config`, with the weights of `start` if that is given. vocabulary: see TokenizerPair.vocabulary."""
    from seq2seq.inference.bundle import fill

    model = build(config.model, **vocabulary)
    if start is not None:
        fill(model, dict(start.model.state_dict()), f"checkpoint={config.checkpoint}")
    return model


def check_start(config: DictConfig, start: Bundle) -> None:
    """Hold model= against the checkpoint's model: rates of dropout may differ, nothing else.

    Raises:
        UserError: naming each difference.
    """
    here: Any = OmegaConf.to_container(config.model, resolve=True)
    there = {**here, **start.config["model"]}  # what an older version did not know, it does not hold
    kinds = [str(node["_target_"]).rpartition(".create_")[2] for node in (there, here)]
    if kinds[0] != kinds[1]:
        raise UserError(f"checkpoint={config.checkpoint} holds a model={kinds[0]}, not {kinds[1]}\nGive that model=.")
    if found := [text for text in differences(there, here) if not text.partition(":")[0].endswith("dropout")]:
        raise UserError(
            f"checkpoint={config.checkpoint} has other settings under model: {'; '.join(found)}\n"
            "Give those on the left of the arrows."
        )

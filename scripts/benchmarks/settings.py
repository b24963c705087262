"""From overrides to the product's own objects, in a measuring process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seq2seq.data.translation_data import TranslationData

NEVER = 10**9


def compose_training(overrides: list[str]) -> DictConfig:
    """The configuration of `seq2seq train` under `overrides`, checked as the command checks it."""
    from seq2seq.commands.config_check import check
    from seq2seq.commands.configuration import compose

    config = compose("train", overrides)
    check(config, "train")
    return config


def without_validation(config: DictConfig, updates: int) -> DictConfig:
    """The same training, for `updates` updates in which nothing but training happens."""
    from omegaconf import OmegaConf

    own = {
        "trainer": {"max_steps": updates, "val_check_interval": NEVER, "log_every_n_steps": NEVER},
        "callbacks": {"save_every_n_steps": None, "save_minutes": None, "patience": None, "progress": False},
        "logger": OmegaConf.create({"_target_": "seq2seq.training.loggers.Observer"}),
    }
    OmegaConf.set_struct(config, False)
    config.pop("logger")
    merged = OmegaConf.merge(config, own)
    assert OmegaConf.is_dict(merged)
    return merged


def chosen(config: DictConfig) -> dict[str, str]:
    """Which option of each config group was taken."""
    choices = config.hydra.runtime.choices
    names = ("model", "data", "tokenizer", "trainer", "experiment")
    return {name: choices[name] for name in names if choices.get(name)}


def prepared(config: DictConfig) -> TranslationData:
    from seq2seq.commands.starting import training_data

    data = training_data(config)
    data.prepare()
    return data


def new_model(config: DictConfig, data: TranslationData) -> Any:
    """The configured model with its initial weights."""
    from seq2seq.commands.configuration import build
    from seq2seq.training.progress import seed_everything

    seed_everything(config.seed, 0)
    return build(config.model, **data.vocabulary())


def use_threads(config: DictConfig) -> int:
    """Give torch the configured number of threads; how many it has."""
    import torch

    if config.trainer.threads is not None:
        torch.set_num_threads(config.trainer.threads)
    return torch.get_num_threads()

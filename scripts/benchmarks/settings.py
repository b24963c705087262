"""From overrides to the product's own objects, in a measuring process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seq2seq.data.translation_data import TranslationData
    from seq2seq.pipeline.job import Job

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
        "trainer": {
            "max_steps": updates,
            "val_check_interval": NEVER,
            "log_every_n_steps": NEVER,
            "save_every_n_steps": None,
            "save_minutes": None,
            "patience": None,
            "progress": False,
        },
        "logger": OmegaConf.create({"_target_": None}),
    }
    OmegaConf.set_struct(config, False)
    config.pop("logger")
    merged = OmegaConf.merge(config, own)
    assert OmegaConf.is_dict(merged)
    return merged


def chosen(config: DictConfig) -> dict[str, str]:
    """Return the chosen option of each config group."""
    choices = config.hydra.runtime.choices
    names = ("model", "data", "tokenizer", "trainer", "experiment")
    return {name: choices[name] for name in names if choices.get(name)}


def job_of(config: DictConfig) -> Job:
    """The training of a composed configuration."""
    from omegaconf import OmegaConf

    from seq2seq.commands.config_check import without_hydra
    from seq2seq.pipeline.job import assemble

    settings: Any = OmegaConf.to_container(without_hydra(config), resolve=True)
    return assemble(settings)


def prepared(config: DictConfig) -> TranslationData:
    data = job_of(config).data
    data.prepare()
    return data


def new_model(job: Job) -> Any:
    """The job's model with its initial weights."""
    from seq2seq.training.state import seed_everything

    seed_everything(job.seed)
    return job.model()


def use_threads(config: DictConfig) -> int:
    """Give torch the configured number of threads; how many it has."""
    import torch

    if config.trainer.threads is not None:
        torch.set_num_threads(config.trainer.threads)
    return torch.get_num_threads()

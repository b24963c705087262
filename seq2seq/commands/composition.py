"""Compose settings from conf/ in Python, as `seq2seq train` composes them."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from seq2seq.commands.config_check import without_hydra
from seq2seq.commands.configuration import checked
from seq2seq.commands.configuration import compose as compose_command


def compose(*overrides: str) -> dict[str, Any]:
    """Return the settings of one training as plain values, for `assemble`.

    overrides: as on the command line, such as "model=rnn", "data.root=DIR" or "trainer.max_steps=500".

    Raises:
        UserError: an override that does not exist or cannot work.
    """
    config = checked(compose_command("train", list(overrides)), "train", list(overrides))
    settings: Any = OmegaConf.to_container(without_hydra(config), resolve=True)
    return {str(key): value for key, value in settings.items()}

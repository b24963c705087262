"""Values in a configuration."""

from __future__ import annotations

import os
import re
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf


def put(config: DictConfig, path: str, value: Any) -> None:
    """Set a value of the configuration, following references such as ${data.sizes}."""
    while True:
        parent, _, key = path.rpartition(".")
        raw: Any = OmegaConf.to_container(OmegaConf.select(config, parent) if parent else config, resolve=False)
        reference = re.fullmatch(r"\$\{([\w.]+)\}", raw[key]) if isinstance(raw[key], str) else None
        if reference is None:
            OmegaConf.update(config, path, value, merge=False)
            return
        path = reference[1]


def expand_home(node: DictConfig | ListConfig) -> None:
    """Replace a leading ~/ in every text of the configuration by the home folder, as a shell does."""
    for key in list(node) if isinstance(node, DictConfig) else range(len(node)):
        if key == "hydra" or OmegaConf.is_missing(node, key) or OmegaConf.is_interpolation(node, key):
            continue
        value = node[key]
        if OmegaConf.is_config(value):
            expand_home(value)
        elif isinstance(value, str) and (value == "~" or value.startswith("~/")):
            node[key] = os.path.expanduser(value)

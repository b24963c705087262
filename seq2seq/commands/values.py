"""Plain YAML values against type hints, and in a configuration."""

from __future__ import annotations

import os
import re
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from omegaconf import DictConfig, ListConfig, OmegaConf


def fits(value: Any, hint: Any) -> bool:
    """True if a plain YAML value suits a type hint. Hints beyond plain types are left to the constructor."""
    if get_origin(hint) in (Union, types.UnionType):
        return any(fits(value, option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is list:
        return isinstance(value, list) and all(fits(item, get_args(hint)[0]) for item in value)
    if get_origin(hint) in (dict, Mapping):
        key, item = get_args(hint)
        return isinstance(value, Mapping) and all(fits(a, key) and fits(b, item) for a, b in value.items())
    if hint in (None, type(None)):
        return value is None
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (bool, str):
        return isinstance(value, hint)
    return True


def describe(hint: Any) -> str:
    """Say in words which values a type hint allows."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(describe(option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    if get_origin(hint) in (dict, Mapping):
        return f"{{name: {describe(get_args(hint)[1])}}}"
    if get_origin(hint) is list:
        return str(hint)
    return {type(None): "null", None: "null"}.get(hint, getattr(hint, "__name__", str(hint)))


def with_whole_numbers(value: Any, hint: Any) -> Any:
    """Replace whole floats such as 1e5 by ints if the value fits the hint only then."""
    if fits(value, hint):
        return value
    found = value
    if isinstance(value, float) and value.is_integer():
        found = int(value)
    elif isinstance(value, Mapping):
        found = {key: with_whole_numbers(item, int) for key, item in value.items()}
    elif isinstance(value, list):
        found = [with_whole_numbers(item, int) for item in value]
    return found if fits(found, hint) else value


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

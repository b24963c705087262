"""A command's configuration: composed, checked, and turned into objects."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq.commands import choices
from seq2seq.commands.explain import FILE_ERRORS, explain
from seq2seq.commands.values import expand_home
from seq2seq.errors import UserError

if TYPE_CHECKING:
    from seq2seq.search import Search


@dataclass(frozen=True)
class Outcome:
    """How a job ended. status: of the process. objective: what a sweeper maximizes, where the job has such a thing."""

    status: int = 0
    objective: float | None = None


def checked(config: DictConfig, command: str, overrides: list[str]) -> DictConfig:
    """`config` itself, with ~/ expanded and checked by `config_check.check`.

    Raises:
        UserError: a key or value that cannot work, or one that refers to nothing.
    """
    from seq2seq.commands.config_check import check

    try:
        expand_home(config)
        check(config, command)
    except OmegaConfBaseException as error:
        raise UserError(explain(error, command, overrides)) from error
    return config


def build(node: DictConfig, **keywords: Any) -> Any:
    """What a node's `_target_` makes of its values, and of `keywords`.

    Raises:
        UserError: its constructor refuses them.
    """
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    try:
        return instantiate(node, **keywords)
    except InstantiationException as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from None
        raise UserError(f"{node.get('_target_')}: {error.__cause__ or error}") from error


def checkpoints(value: Any, key: str = "checkpoint") -> list[str]:
    """The paths that `checkpoint=` names, one or several. Nothing is imported for it.

    Raises:
        UserError: none, or one that does not exist.
    """
    paths = [str(path) for path in value] if OmegaConf.is_list(value) else [str(value)]
    if not paths:
        raise UserError(f"{key}=[] names no checkpoint")
    for path in paths:
        if not Path(path).exists():
            raise UserError(f"{key}={path} does not exist")
    return paths


def chosen_search(node: DictConfig) -> Search | dict[str, Any] | None:
    """The search of `search=NAME`. For search=checkpoint the options that change the checkpoint's own search, or None.

    Raises:
        UserError: a value of the wrong type.
    """
    if "_target_" in node:
        search: Search = build(node)
        return search
    from seq2seq.commands.config_check import check_arguments
    from seq2seq.search import METHODS

    options = {str(name): value for name, value in node.items() if value is not None}
    for name, value in list(options.items()):
        if method := next((each for each in METHODS.values() if name in inspect.signature(each).parameters), None):
            options |= check_arguments("search", {name: value}, method)
    return options or None


def compose(config_name: str, overrides: list[str]) -> DictConfig:
    """The configuration of `config_name` under `overrides`, with Hydra's own node (for `choices`)."""
    from hydra.errors import HydraException

    try:
        return choices.compose(config_name, overrides, with_hydra=True)
    except (HydraException, OmegaConfBaseException, *FILE_ERRORS) as error:
        raise UserError(explain(error, config_name, overrides)) from error

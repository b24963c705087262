"""Composing and checking a command's configuration, and building objects from it."""

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
    """Result of a job: the exit status, and the objective that a sweeper maximizes, if there is one."""

    status: int = 0
    objective: float | None = None


def checked(config: DictConfig, command: str, overrides: list[str]) -> DictConfig:
    """Expand ~/ in `config`, check it by `config_check.check`, and return it.

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


def build_node(node: DictConfig, path: str) -> Any:
    """Build a node of the configuration, see `pipeline.build`."""
    from seq2seq.pipeline.build import build

    values: Any = OmegaConf.to_container(node, resolve=True)
    return build(values, path)


def checkpoints(value: Any, key: str = "checkpoint") -> list[str]:
    """List the paths that `checkpoint=` names, checked before anything slow is imported.

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


def need_files(config: DictConfig, *keys: str) -> None:
    """Check the files that these keys name, if any; called before slow imports.

    Raises:
        UserError: a file does not exist, or is a folder.
    """
    for key in keys:
        if config[key] is not None and not Path(config[key]).exists():
            raise UserError(f"{key}={config[key]}: No such file or directory")
        if config[key] is not None and Path(config[key]).is_dir():
            raise UserError(f"{key}={config[key]} is a folder\nGive a file.")


def chosen_search(node: DictConfig) -> Search | dict[str, Any] | None:
    """Build the search of `search=NAME`; for search=checkpoint return the changed options, or None.

    Raises:
        UserError: a value of the wrong type.
    """
    if "_target_" in node:
        search: Search = build_node(node, "search")
        return search
    from seq2seq.pipeline.build import check_arguments
    from seq2seq.search import METHODS

    options = {str(name): value for name, value in node.items() if value is not None}
    for name, value in list(options.items()):
        if method := next((each for each in METHODS.values() if name in inspect.signature(each).parameters), None):
            options |= check_arguments("search", {name: value}, method)
    return options or None


def compose(config_name: str, overrides: list[str]) -> DictConfig:
    """Compose the configuration of `config_name` with Hydra's own node.

    Raises:
        UserError: `overrides` do not compose.
    """
    from hydra.errors import HydraException

    try:
        return choices.compose(config_name, overrides, with_hydra=True)
    except (HydraException, OmegaConfBaseException, *FILE_ERRORS) as error:
        raise UserError(explain(error, config_name, overrides)) from error

"""Composing a command's configuration, and saying in plain words what is wrong with it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError, MissingMandatoryValue, OmegaConfBaseException
from yaml import MarkedYAMLError

from seq2seq.commands.choices import (
    MISPLACED,
    SEARCH_PATH,
    config_dir,
    groups,
    key_of,
    option_file,
    own_files,
    readable,
    root_groups,
    with_search_path,
)
from seq2seq.commands.suggestions import nearest
from seq2seq.commands.workers import preemptible
from seq2seq.errors import UserError


@dataclass(frozen=True)
class Outcome:
    """How a job ended. status: of the process. objective: what a sweeper maximises, where the job has such a thing."""

    status: int = 0
    objective: float | None = None


BEFORE = (MarkedYAMLError, ValueError)
"""What Hydra also raises while it composes: for a file that is no YAML or no UTF-8, for a choice that is none."""

Main = Callable[[DictConfig], Outcome | int | None]

PLUGINS = {
    **dict.fromkeys(("hydra/launcher/submitit_slurm", "hydra/launcher/submitit_local"), "slurm"),
    "hydra/sweeper/optuna": "optuna",
}
"""Choices that another package brings, and our extra with it."""


def launch(command: str, main: Main, arguments: list[str]) -> int:
    """Compose `command`'s configuration as Hydra does and call `main` with it (once a job under -m)."""
    import hydra

    status = 0
    stopped: list[Exception] = []
    here = os.getpid()
    program = sys.argv[0]
    composed = False

    def task(config: DictConfig) -> float | None:
        nonlocal status, composed
        from seq2seq.commands.config_check import check

        composed = True
        sys.argv = [program, command, *arguments]  # Lightning starts the other processes of a training by it.
        try:
            try:
                check(config, command)
            except OmegaConfBaseException as error:
                raise UserError(explain(error, command, arguments)) from error
            outcome = main(config)
        except (UserError, OSError, MemoryError, MissingMandatoryValue) as error:
            if os.getpid() != here:  # in a launcher's process, from which only an exception comes back
                raise
            missing = isinstance(error, MissingMandatoryValue)
            stopped.append(UserError(explain(error, command, arguments)) if missing else error)
            return None  # Hydra would print its own account of it
        if not isinstance(outcome, Outcome):
            outcome = Outcome(outcome or 0)
        status = max(status, outcome.status)
        return outcome.objective

    flags = {"-m", "--multirun"}.intersection(arguments)  # Hydra wants them in front.
    arguments = [*flags, *map(readable, with_search_path([text for text in arguments if text not in flags]))]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = [f"seq2seq {command}", *arguments]
    try:
        with preemptible() if command in ("train", "compare") else nullcontext():
            hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=command)(task)()
    except (hydra.errors.HydraException, OmegaConfBaseException) as error:
        raise UserError(explain(error, command, arguments)) from error
    except Exception as error:
        if stopped:  # the sweeper missed an objective
            raise stopped[0] from None
        if not composed and isinstance(error, BEFORE):
            raise UserError(explain(error, command, arguments)) from error
        raise
    for earlier in stopped[:-1]:
        print(f"error: {earlier}", file=sys.stderr)
    if stopped:
        raise stopped[-1]
    return status


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


def compose(config_name: str, overrides: list[str]) -> DictConfig:
    """The configuration of `config_name` under `overrides`, with Hydra's own node (for `choices`)."""
    import hydra

    with _composition():
        try:
            return hydra.compose(config_name, overrides, return_hydra_config=True)
        except (hydra.errors.HydraException, OmegaConfBaseException, *BEFORE) as error:
            raise UserError(explain(error, config_name, overrides)) from error


@contextmanager
def _composition() -> Iterator[None]:
    """Hydra's compose interface, also within a command that Hydra itself has started."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.initialize import get_gh_backup, restore_gh_from_backup

    outer = get_gh_backup()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(config_dir()), version_base="1.3"):
            yield
    finally:
        restore_gh_from_backup(outer)


def help_text(command: str, arguments: Iterable[str] = ()) -> str:
    """What `seq2seq COMMAND [GROUP=OPTION ...] --help` prints: the command's self-documenting YAML file and the groups'
    choices, or the files of the options that are named."""
    overrides = with_search_path([text for text in arguments if text not in ("-h", "--help")])
    named = [text.split("=", 1) for text in overrides if "=" in text]
    files = {f"{group}={option}": option_file(group, option, overrides) for group, option in named if group in groups()}
    if texts := [f"# {name}\n{_option_text(file)}" for name, file in files.items() if file]:
        return "\n".join(texts)
    text = (config_dir() / f"{command}.yaml").read_text(encoding="utf-8")
    keys = re.sub(r"^  # hydra:\n(?:  - .*\n)*", "", text, flags=re.MULTILINE).split("\n# hydra:")[0].rstrip()
    lines = [f"usage: seq2seq {command} [key=value ...] [-m] [--cfg job] [--config-dir DIR]", "", keys, "", "Choices:"]
    tops = root_groups(command)
    for group, options in groups().items():
        if group.split("/")[0] in tops and not group.endswith("/common"):
            lines.append(f"  {group}: {', '.join(options)}")
    if not tops:
        return "\n".join(lines[:-2])
    lines += ["", f"The keys of a choice: seq2seq {command} GROUP=OPTION --help"]
    return "\n".join(lines)


def _option_text(file: Path) -> str:
    """An option's file, and then the files that it includes in the same place."""
    text = file.read_text(encoding="utf-8")
    content: Any = OmegaConf.to_container(OmegaConf.create(text))
    included = [entry for entry in content.get("defaults", []) if isinstance(entry, str) and entry != "_self_"]
    there = (file.parent / f"{entry.removesuffix('@_here_')}.yaml" for entry in included)
    return "\n".join([text, *map(_option_text, filter(Path.is_file, there))])


def explain(error: Exception, command: str, overrides: list[str]) -> str:
    """Two lines at most on why `overrides` do not compose: the culprit and the nearest right spelling."""
    from hydra.errors import MissingConfigException, OverrideParseException

    if isinstance(error, MissingConfigException) and error.missing_cfg_file in PLUGINS:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return f"{group}={name} needs another package\npip install 'seq2seq[{PLUGINS[error.missing_cfg_file]}]'"
    inner = re.search(r"experiment/(\w+)[@/]", str(error))
    if inner and inner[1] in groups():
        return f"{inner[1]} in an experiment's defaults list must be written - override /{inner[1]}: NAME, with a slash"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        options = groups(overrides).get(group, [])
        hint = f"\nChoices: {', '.join(options)}" if options else ""
        return f"{group}={name}: no such choice{nearest(name, options)}{hint}"
    if "@experiment." in str(error):
        return MISPLACED
    if isinstance(error, InterpolationResolutionError):
        return f"{error.full_key}: {str(error).splitlines()[0]}"
    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    if isinstance(error, UnicodeDecodeError):
        return f"{_not_utf8(overrides)}: {error.reason} at byte {error.start}\nSave it as UTF-8."
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key}= is needed\nSee seq2seq {command} --help"
    if isinstance(error, OverrideParseException) and "=" not in error.override.strip("="):
        return f"cannot read {error.override!r}: write KEY=VALUE, without blanks\nSee seq2seq {command} --help"
    if isinstance(error, OverrideParseException):
        return (
            f"cannot read {error.override!r}: {str(error.message).splitlines()[0]}\n"
            "Write 'key=[1,2]' for a list, and a text with commas, brackets or blanks as 'key=\"a, b\"'."
        )
    if several := re.search(r"Ambiguous value for argument '([^=]+)=([^']*)'", str(error)):
        key, values = several.groups()
        return f"{key}={values} is several values\nWrite {key}=[{values}] for a list; -m in front for a job with each."
    refused = re.match(r"Could not override '(\w+)/([\w/]+)'", str(error))
    if refused and (owners := _having(*refused.groups())):
        return f"{refused[1]}/{refused[2]} goes with {' or '.join(f'{refused[1]}={owner}' for owner in owners)} only"
    tops = root_groups(command)
    for override in overrides:
        key = key_of(override)
        if override.startswith("-") or "=" not in override:
            continue
        if key in groups(overrides) and key.split("/")[0] not in tops:
            return f"{override}: {command} has no choice of {key}\nSee seq2seq {command} --help"
        if not known(key, command, overrides):
            hint = _nearest_key(key, command, overrides)
            return f"unknown key {key!r} in {override!r}{hint}\nSee seq2seq {command} --help"
    first = [line for line in str(error).splitlines() if line.strip()]
    return "\n".join(first[:2])


def _not_utf8(overrides: list[str]) -> str:
    """Names the user's own files of configuration that are not UTF-8."""
    found = []
    for file in own_files(overrides):
        try:
            file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            found.append(str(file))
    return ", ".join(found) or "a file of configuration"


def _having(group: str, switch: str) -> list[str]:
    """The options of a group that have a further choice, such as attention/score of models."""
    return [
        option
        for option in groups().get(group, [])
        if re.search(rf"^  - {switch}:", (config_dir() / group / f"{option}.yaml").read_text(encoding="utf-8"), re.M)
    ]


def known(key: str, command: str, overrides: list[str]) -> bool:
    """Whether `key` names a group or a key of the command's configuration under the group choices in `overrides`."""
    if re.split(r"[./]", key)[0] == "hydra" or key.split("@")[0] in groups(overrides):
        return True
    return key in _keys(command, overrides)


def _keys(command: str, overrides: list[str]) -> list[str]:
    return list(flat_keys(OmegaConf.to_container(_without_details(command, overrides), resolve=False)))


def _without_details(command: str, overrides: list[str]) -> DictConfig:
    """The configuration with the group choices of `overrides` only."""
    import hydra

    names = {*groups(overrides), SEARCH_PATH}
    choices = [text for text in overrides if text.split("=")[0] in names]
    for attempt in (choices, []):
        try:
            with _composition():
                return hydra.compose(command, attempt)
        except (hydra.errors.HydraException, OmegaConfBaseException, *BEFORE):
            continue
    return OmegaConf.create()


def _nearest_key(key: str, command: str, overrides: list[str]) -> str:
    keys = _keys(command, overrides)
    elsewhere = [name for name in keys if name.split(".")[-1] == key.split(".")[-1]]
    if elsewhere:
        return f" (did you mean {' or '.join(repr(name) for name in elsewhere[:3])}?)"
    return nearest(key, [*keys, *groups(overrides)])


def flat_keys(node: Any, prefix: str = "") -> Iterator[str]:
    """Dotted names of every key below `node`."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield f"{prefix}{name}"
            yield from flat_keys(value, f"{prefix}{name}.")

"""Explanations of errors of Hydra and OmegaConf, in two lines at most: the culprit and the way out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError, MissingMandatoryValue, OmegaConfBaseException
from yaml import MarkedYAMLError

from seq2seq.commands.arguments import quoted
from seq2seq.commands.choices import (
    WHOLE,
    compose,
    config_dir,
    flat_keys,
    groups,
    key_of,
    misplaced,
    own_files,
    root_groups,
)
from seq2seq.pipeline.suggestions import nearest

FILE_ERRORS = (MarkedYAMLError, ValueError)
"""Errors that Hydra lets through while composing: not YAML, not UTF-8, or a choice without a name."""

PLUGINS = {
    **dict.fromkeys(("hydra/launcher/submitit_slurm", "hydra/launcher/submitit_local"), "slurm"),
    "hydra/sweeper/optuna": "optuna",
}
"""Choices that need another package, and the extra that installs it."""


MOVED = {
    "grammar_sweep": "recipe=grammar_sweep",
    **{f"iwslt14_{model}": f"recipe={model}_small data=iwslt14" for model in ("bahdanau", "luong", "transformer")},
    **{f"pydocs_{model}": "seq2seq compare recipe=tiny data=pydocs" for model in ("bahdanau", "rnn", "transformer")},
    **{
        f"wmt14_{pair}_{recipe.removesuffix('_2015')}": f"recipe={recipe} data=wmt14_{pair}"
        for pair in ("ende", "enfr")
        for recipe in ("bahdanau_2015", "luong_2015", "transformer_base", "transformer_big")
    },
}
"""Experiments of version 0.1.0 and their replacements."""

REMOVED = {
    ("translate", "processes"): "Write: seq2seq translate -m ... shard.count=2 shard.index=0,1 hydra/launcher=joblib, "
    "then join=true (see seq2seq translate --help).",
}
"""Keys of version 0.1.0 and their replacements."""


def explain(error: Exception, command: str, overrides: Sequence[str], folders: Sequence[Path] = ()) -> str:
    """Say why `overrides` do not compose: the culprit and the nearest correct spelling.

    folders: those of --config-dir.
    """
    from hydra.errors import MissingConfigException, OverrideParseException

    if isinstance(error, MissingConfigException) and error.missing_cfg_file in PLUGINS:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return f"{group}={name} needs another package\npip install 'seq2seq[{PLUGINS[error.missing_cfg_file]}]'"
    inner = re.search(rf"({'|'.join(WHOLE)})/(\w+)[@/]", str(error))
    if inner and inner[2] in groups():
        return f"{inner[1]}/: {inner[2]} in a defaults list there is written - override /{inner[2]}: NAME, with a slash"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        if group == "experiment" and name in MOVED:
            return f"experiment={name} is now {MOVED[name]}"
        options = groups(folders).get(group, [])
        hint = f"\nChoices: {', '.join(options)}" if options else ""
        return f"{group}={name}: no such choice{nearest(name, options)}{hint}"
    if under := re.search(rf"@({'|'.join(WHOLE)})\.", str(error)):
        return misplaced(under[1])
    if isinstance(error, InterpolationResolutionError):
        return f"{error.full_key}: {str(error).splitlines()[0]}"
    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    if isinstance(error, UnicodeDecodeError):
        return f"{_not_utf8(folders)}: {error.reason} at byte {error.start}\nSave it as UTF-8."
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key}= is needed\nSee seq2seq {command} --help"
    if isinstance(error, OverrideParseException) and "=" not in error.override.strip("="):
        return f"cannot read {error.override!r}: write KEY=VALUE, without spaces\nSee seq2seq {command} --help"
    if isinstance(error, OverrideParseException):
        return (
            f"cannot read {error.override!r}: {str(error.message).splitlines()[0]}\n"
            "Write a list as 'key=[1,2]', and a text with commas, brackets or spaces as 'key=\"a, b\"'."
        )
    if several := re.search(r"Ambiguous value for argument '([^=]+)=([^']*)'", str(error)):
        key, values = several.groups()
        return (
            f"{key}={values} is several values, which only a sweep can use: -m in front\n"
            f"Write a list as {key}=[{values}], one text as '{key}=\"{values}\"'."
        )
    refused = re.match(r"Could not override '(\w+)/([\w/]+)'", str(error))
    if refused and (owners := _having(*refused.groups())):
        return f"{refused[1]}/{refused[2]} goes with {' or '.join(f'{refused[1]}={owner}' for owner in owners)} only"
    tops = root_groups(command)
    for override in overrides:
        key = key_of(override)
        if override.startswith("-") or "=" not in override:
            continue
        if key in groups(folders) and key.split("/")[0] not in tops:
            return f"{override}: {command} has no choice of {key}\nSee seq2seq {command} --help"
        if not known(key, command, overrides, folders):
            if (command, key) in REMOVED:
                return f"{key}= was removed\n{REMOVED[command, key]}"
            hint = _nearest_key(key, command, overrides, folders)
            return f"unknown key {key!r} in {override!r}{hint}\nSee seq2seq {command} --help"
    first = [line for line in str(error).splitlines() if line.strip()]
    return "\n".join(first[:2])


def _not_utf8(folders: Sequence[Path]) -> str:
    """Name the user's own configuration files that are not UTF-8."""
    found = []
    for file in own_files(folders):
        try:
            file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            found.append(str(file))
    return ", ".join(found) or "a configuration file"


def _having(group: str, switch: str) -> list[str]:
    """List the options of a group that have a nested group, such as the models with attention/score."""
    return [
        option
        for option in groups().get(group, [])
        if re.search(rf"^  - {switch}:", (config_dir() / group / f"{option}.yaml").read_text(encoding="utf-8"), re.M)
    ]


def known(key: str, command: str, overrides: Sequence[str], folders: Sequence[Path]) -> bool:
    """True if `key` is a group, or a key of the configuration that the group choices in `overrides` give."""
    if re.split(r"[./]", key)[0] == "hydra" or key.split("@")[0] in groups(folders):
        return True
    return key in _keys(command, overrides, folders)


def _keys(command: str, overrides: Sequence[str], folders: Sequence[Path]) -> list[str]:
    config = _without_details(command, overrides, folders)
    return list(flat_keys(OmegaConf.to_container(config, resolve=False)))


def _without_details(command: str, overrides: Sequence[str], folders: Sequence[Path]) -> DictConfig:
    """Compose the configuration with the group choices of `overrides` only."""
    from hydra.errors import HydraException

    names = groups(folders)
    places = ", ".join(quoted(f"file://{folder.resolve()}") for folder in folders)
    for chosen in ([text for text in overrides if text.split("=")[0] in names], []):
        try:
            return compose(command, [f"hydra.searchpath=[{places}]", *chosen])
        except (HydraException, OmegaConfBaseException, *FILE_ERRORS):
            continue
    return OmegaConf.create()


def _nearest_key(key: str, command: str, overrides: Sequence[str], folders: Sequence[Path]) -> str:
    keys = _keys(command, overrides, folders)
    elsewhere = [name for name in keys if name.split(".")[-1] == key.split(".")[-1]]
    if elsewhere:
        return f" (did you mean {' or '.join(repr(name) for name in elsewhere[:3])}?)"
    return nearest(key, [*keys, *groups(folders)])

"""Checks of a composed configuration that need no data: unknown keys, wrong types, foreign targets."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, get_type_hints

from omegaconf import DictConfig, OmegaConf

from seq2seq.commands.choices import WHOLE, config_dir, misplaced, root_files, root_groups
from seq2seq.commands.suggestions import nearest
from seq2seq.commands.values import describe, fits, put, with_whole_numbers
from seq2seq.errors import UserError

TYPES: dict[str, Any] = {
    **dict.fromkeys(("checkpoint", "checkpoints", "runs"), str | list[str]),
    **dict.fromkeys(("export.checkpoint", "output", "host", "split", "format", "engine", "device", "tokenize"), str),
    **dict.fromkeys(("run_dir", "baseline", "input", "quantization", "sample"), str | None),
    **dict.fromkeys(("evaluate.tokenize", "comet", "report.split"), str | None),
    **dict.fromkeys(("train.checkpoint", "compare.checkpoint", "evaluate.checkpoint"), str | None),
    **dict.fromkeys(("evaluate.output", "translate.output", "report.output"), str | None),
    **dict.fromkeys(("hypotheses", "evaluate.references", "evaluate.sources"), str | None),
    **dict.fromkeys(("sources", "translations"), str),
    **dict.fromkeys(("dry_run", "lowercase", "resume", "join"), bool),
    **dict.fromkeys(("test_splits", "splits"), list[str] | None),
    **dict.fromkeys(("models", "experiments"), list[str]),
    **dict.fromkeys(("threads", "n_best"), int | None),
    "report.hypotheses": dict[str, str] | None,
    "systems": dict[str, list[str]] | None,
    "evaluate.data": dict[str, str | None],
    "evaluate.lowercase": bool | None,
    "beam_sizes": list[int],
    "seeds": list[int],
    "seed": int,
    "label_smoothing": float,
}
"""Types of the plain keys of the root files; `command.key` takes precedence over `key`."""

TRUSTED = ("seq2seq.", "torch.optim.")
"""Packages whose classes a configuration may name."""


def check(config: DictConfig, command: str) -> None:
    """Refuse what cannot work, and turn whole floats such as 1e5 into ints where ints are needed.

    Raises:
        UserError: a key that nothing reads, a value of the wrong type, or a `_target_` outside the trusted packages.
    """
    allowed = {str(key) for content in root_files(command) for key in content} - {"defaults", "hydra"}
    allowed |= root_groups(command)
    for group in WHOLE:
        if group in config:
            raise UserError(misplaced(group))
    for key in config:
        if key not in {*allowed, "hydra"}:
            raise UserError(f"unknown key {str(key)!r}{nearest(str(key), allowed)}\nSee seq2seq {command} --help")
    if missing := sorted(allowed - {*WHOLE} - {str(key) for key in config}):
        raise UserError(f"{missing[0]}= is needed and was removed\nSee seq2seq {command} --help")
    if command in ("train", "compare") and "_target_" not in config.search:
        raise UserError(f"search=checkpoint is not for {command}\nChoose search=beam, greedy, sampling or diverse.")
    plain = OmegaConf.to_container(without_hydra(config), resolve=True)
    assert isinstance(plain, dict)
    for key, value in plain.items():
        hint = TYPES.get(f"{command}.{key!s}", TYPES.get(str(key), object))
        found = with_whole_numbers(value, hint)
        if not fits(found, hint):
            raise UserError(f"{key!s}={value!r} has the wrong type: {describe(hint)} is needed")
        if found is not value:
            put(config, str(key), found)
    for path, node in targets(plain):
        for key, value in check_target(path, node).items():
            put(config, f"{path}.{key}", value)


def without_hydra(config: DictConfig) -> DictConfig:
    """A copy of the configuration without Hydra's own node."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def targets(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every mapping with a `_target_` below `node`, with its dotted path."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield path, node
        for name, value in node.items():
            yield from targets(value, f"{path}.{name}" if path else str(name))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from targets(value, f"{path}[{number}]")


def check_target(path: str, node: dict[str, Any]) -> dict[str, Any]:
    """Check one node against the signature of its target; see `check_arguments`."""
    target = str(node["_target_"])
    if not target.startswith(TRUSTED):
        raise UserError(f"{path}._target_: {target!r} is refused\nOnly targets in {', '.join(TRUSTED)} are allowed.")
    values = {key: value for key, value in node.items() if not (key.startswith("_") and key.endswith("_"))}
    return check_arguments(path, values, locate(target, path))


def check_data(config: DictConfig) -> None:
    """Check the node `data` of a training against the parameters of TranslationData.

    Another key must be one that a reference somewhere in `config` names, or a setting of every corpus with its default
    value. (The saved configuration of a run has no references.)

    Raises:
        UserError: nothing reads a key, or a value has the wrong type.
    """
    from seq2seq.data.concatenation import ConcatenatedCorpus
    from seq2seq.data.translation_data import TranslationData

    data: Any = OmegaConf.to_container(config.data, resolve=True)
    own = inspect.signature(TranslationData).parameters.keys() - {"seed", "tokenizer", "tokenizers"}
    common: Any = OmegaConf.to_container(OmegaConf.load(config_dir() / "data" / "common" / "base.yaml"))
    references = re.findall(r"\$\{([^}]*)", json.dumps(OmegaConf.to_container(without_hydra(config))))
    read = own.union(*(re.findall(r"\w+", reference) for reference in references))
    for key, value in data.items():
        if references and key not in read and (key not in common or value != common[key]):
            raise UserError(f"data.{key}={value}: nothing reads it{nearest(key, read)}")
    nodes = (
        ("data", {key: value for key, value in data.items() if key in own}, TranslationData),
        ("data.concatenation", data.get("concatenation") or {}, ConcatenatedCorpus),
    )
    for path, values, function in nodes:
        for key, value in check_arguments(path, values, function).items():
            put(config, f"{path}.{key}", value)


def check_foreign(node: dict[str, Any], group: str, path: str) -> None:
    """Check a node of an untrusted file: it may build only what the options of this group in conf/ build.

    path: the node's name in errors.

    Raises:
        UserError: another `_target_`, another of Hydra's keys, or arguments that do not fit.
    """
    options = (OmegaConf.to_container(OmegaConf.load(file)) for file in sorted((config_dir() / group).glob("*.yaml")))
    known = {str(option["_target_"]) for content in options for _, option in targets(content)}
    for place, inner in targets(node, path):
        if inner["_target_"] not in known:
            raise UserError(
                f"{place}._target_: {inner['_target_']!r} is refused\nOnly {', '.join(sorted(known))} are allowed."
            )
        if special := [key for key in inner if key.startswith("_") and key != "_target_"]:
            raise UserError(f"{place}.{special[0]} is refused in a run's configuration")
        check_target(place, inner)


def check_arguments(path: str, values: Mapping[str, Any], function: Callable[..., Any]) -> dict[str, Any]:
    """Check keyword arguments against the names and type hints of a function or class.

    Returns:
        Those that fit as ints only, as ints: see `with_whole_numbers`.

    Raises:
        UserError: an unknown name, or a value of another type.
    """
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return {}
    changed = {}
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    for key, value in values.items():
        if key not in parameters:
            raise UserError(f"unknown key '{path}.{key}'{nearest(key, parameters)}\nIt takes {', '.join(parameters)}.")
        if key not in hints or fits(value, hints[key]):
            continue
        changed[key] = with_whole_numbers(value, hints[key])
        if changed[key] is value:
            quotes = ""
            if isinstance(value, (bool, float)) and fits("", hints[key]):
                quotes = "\nPut a word that is a value in YAML, such as no, nan or on, in two pairs of quotes: '\"no\"'"
            wanted = describe(hints[key])
            raise UserError(f"{path}.{key}={value!r} has the wrong type: {wanted} is needed{quotes}")
    return changed


def locate(target: str, path: str) -> Any:
    module, _, name = target.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{path}._target_: cannot import {target!r}: {error}") from error

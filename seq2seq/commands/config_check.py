"""Checks that need no data: unknown keys, wrong types and foreign targets anywhere in a composed configuration."""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf

from seq2seq.commands.choices import MISPLACED, config_dir, root_files, root_groups
from seq2seq.commands.suggestions import nearest
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
"""Of the plain keys of the root files; `command.key` goes before `key`."""

TRUSTED = ("seq2seq.", "torch.optim.")
"""Packages whose classes a configuration may name."""


def check(config: DictConfig, command: str, ignore: Collection[str] = ()) -> None:
    """Refuse what could not work. ignore: top-level keys to pass over.

    Raises:
        UserError: a key that nothing reads, a value of the wrong type, or a `_target_` outside the trusted packages.
    """
    allowed = {str(key) for content in root_files(command) for key in content} - {"defaults", "hydra"}
    allowed |= root_groups(command)
    if "experiment" in config:
        raise UserError(MISPLACED)
    for key in config:
        if key not in allowed and key not in ignore:
            raise UserError(f"unknown key {str(key)!r}{nearest(str(key), allowed)}\nSee seq2seq {command} --help")
    if missing := sorted(allowed - {"experiment", "hydra", *ignore} - {str(key) for key in config}):
        raise UserError(f"{missing[0]}= is needed and was taken away\nSee seq2seq {command} --help")
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    for key, value in plain.items():
        hint = TYPES.get(f"{command}.{key!s}", TYPES.get(str(key), object))
        if key not in ignore and not fits(value, hint):
            raise UserError(f"{key!s}={value!r} has the wrong type: {describe(hint)} is needed")
    for path, node in targets({key: value for key, value in plain.items() if key not in ignore}):
        check_target(path, node)


def targets(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mapping with a `_target_` below `node`, with its dotted path."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield path, node
        for name, value in node.items():
            yield from targets(value, f"{path}.{name}" if path else str(name))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from targets(value, f"{path}[{number}]")


def check_target(path: str, node: dict[str, Any]) -> None:
    """Hold one node against the signature of what it names."""
    target = str(node["_target_"])
    if not target.startswith(TRUSTED):
        raise UserError(f"{path}._target_: {target!r} is refused\nOnly {', '.join(TRUSTED)} may be named there.")
    values = {key: value for key, value in node.items() if not (key.startswith("_") and key.endswith("_"))}
    check_arguments(path, values, locate(target, path))


def check_data(config: DictConfig) -> None:
    """Hold the node `data` of one training against what TranslationData takes. Another key must be one that a reference
    somewhere in `config` names, or one that conf/ has for every corpus and that is as it is there. (In a configuration
    that a run has saved nothing refers to anything any more.)"""
    from seq2seq.data.concatenation import ConcatenatedCorpus
    from seq2seq.data.translation_data import TranslationData

    data: Any = OmegaConf.to_container(config.data, resolve=True)
    own = inspect.signature(TranslationData).parameters.keys() - {"seed", "tokenizer", "tokenizers"}
    common: Any = OmegaConf.to_container(OmegaConf.load(config_dir() / "data" / "common" / "base.yaml"))
    references = re.findall(r"\$\{([^}]*)", json.dumps(OmegaConf.to_container(config, resolve=False)))
    read = own.union(*(re.findall(r"\w+", reference) for reference in references))
    for key, value in data.items():
        if references and key not in read and (key not in common or value != common[key]):
            raise UserError(f"data.{key}={value}: nothing reads it{nearest(key, read)}")
    check_arguments("data", {key: value for key, value in data.items() if key in own}, TranslationData)
    check_arguments("data.concatenation", data.get("concatenation") or {}, ConcatenatedCorpus)


def check_foreign(node: dict[str, Any], group: str, path: str) -> None:
    """Hold a node of a file that may come from a stranger to what the options of this group name in conf/: it may build
    nothing else. `path` names the node in errors.

    Raises:
        UserError: another `_target_`, another of Hydra's keys, or arguments that do not fit.
    """
    options = (OmegaConf.to_container(OmegaConf.load(file)) for file in sorted((config_dir() / group).glob("*.yaml")))
    known = {str(option["_target_"]) for content in options for _, option in targets(content)}
    for place, inner in targets(node, path):
        if inner["_target_"] not in known:
            raise UserError(
                f"{place}._target_: {inner['_target_']!r} is refused\nOnly {', '.join(sorted(known))} may be named."
            )
        if special := [key for key in inner if key.startswith("_") and key != "_target_"]:
            raise UserError(f"{place}.{special[0]} is refused in a run's configuration")
        check_target(place, inner)


def check_arguments(path: str, values: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Hold keyword arguments against a function's (or class') names and type hints."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    for key, value in values.items():
        if key not in parameters:
            raise UserError(f"unknown key '{path}.{key}'{nearest(key, parameters)}\nIt takes {', '.join(parameters)}.")
        if key in hints and not fits(value, hints[key]):
            quotes = ""
            if isinstance(value, (bool, float)) and fits("", hints[key]):
                quotes = (
                    "\nA word that is a value in YAML, such as no, nan or on, goes in two pairs of quotes: '\"no\"'"
                )
            wanted = describe(hints[key])
            raise UserError(f"{path}.{key}={value!r} has the wrong type: {wanted} is needed{quotes}")


def locate(target: str, path: str) -> Any:
    module, _, name = target.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{path}._target_: cannot import {target!r}: {error}") from error


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain YAML value suits a type hint; hints beyond plain types are left to the constructor."""
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
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(describe(option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    if get_origin(hint) in (dict, Mapping):
        return f"{{name: {describe(get_args(hint)[1])}}}"
    if get_origin(hint) is list:
        return str(hint)
    return {type(None): "null", None: "null"}.get(hint, getattr(hint, "__name__", str(hint)))

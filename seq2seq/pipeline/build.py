"""Build objects from plain configuration nodes: mappings with a `_target_` and keyword arguments."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from seq2seq.errors import UserError
from seq2seq.pipeline.suggestions import nearest

TARGET = "_target_"
PARTIAL = "_partial_"
SPECIAL = (TARGET, PARTIAL, "_convert_")

TRUSTED = ("seq2seq.", "torch.optim.")
"""Packages whose classes and functions a configuration may name."""


def build(node: Mapping[str, Any], path: str, **extra: Any) -> Any:
    """Call a node's target with its other keys, inner nodes first, and `extra`. With `_partial_: true` return the call
    as a `functools.partial` instead. `path` names the node in errors.

    Raises:
        UserError: a target outside `TRUSTED`, a key or type that it does not take, a value that it refuses.
    """
    target, converted = check_target(path, node)
    arguments = {**{key: value for key, value in node.items() if key not in SPECIAL}, **converted}
    values = {key: _build_inner(value, f"{path}.{key}") for key, value in arguments.items()}
    if node.get(PARTIAL):
        return partial(target, **values, **extra)
    try:
        return target(**values, **extra)
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: {error}") from error


def _build_inner(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        if TARGET in value:
            return build(value, path)
        return {key: _build_inner(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_build_inner(item, f"{path}[{number}]") for number, item in enumerate(value)]
    return value


def check_target(path: str, node: Mapping[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Hold a node against its target's signature. Return the target and what `check_arguments` returns."""
    target = str(node.get(TARGET))
    if not target.startswith(TRUSTED):
        raise UserError(f"{path}.{TARGET}: {target!r} is refused\nOnly {', '.join(TRUSTED)} may be named there.")
    found: Callable[..., Any] = locate(target, path)
    return found, check_arguments(path, {key: value for key, value in node.items() if key not in SPECIAL}, found)


def check_arguments(path: str, values: Mapping[str, Any], function: Callable[..., Any]) -> dict[str, Any]:
    """Hold keyword arguments against the names and type hints of a function or class.

    Returns:
        Those that fit only as whole numbers, converted: see `with_whole_numbers`.

    Raises:
        UserError: an unknown name, or a value of the wrong type.
    """
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return {}
    converted = {}
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    for key, value in values.items():
        if key not in parameters:
            raise UserError(f"unknown key '{path}.{key}'{nearest(key, parameters)}\nIt takes {', '.join(parameters)}.")
        if key not in hints or fits(value, hints[key]):
            continue
        converted[key] = with_whole_numbers(value, hints[key])
        if converted[key] is value:
            quotes = ""
            if isinstance(value, (bool, float)) and fits("", hints[key]):
                quotes = "\nA word that YAML reads as a value, such as no or nan, goes in two pairs of quotes: '\"no\"'"
            raise UserError(f"{path}.{key}={value!r} has the wrong type: {describe(hints[key])} is needed{quotes}")
    return converted


def locate(target: str, path: str) -> Any:
    """Import what a dotted name names. Raises UserError if it cannot be imported."""
    module, _, name = target.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{path}.{TARGET}: cannot import {target!r}: {error}") from error


def fits(value: Any, hint: Any) -> bool:
    """Return True if a plain YAML value suits a type hint; hints beyond plain types are left to the constructor."""
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
    """Name a type hint in an error."""
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

"""Building a bundle's parts from its configuration, without running anything but this package's own constructors."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
import yaml
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import seq2seq.attention
import seq2seq.models
import seq2seq.search
from seq2seq.errors import UserError

TARGET = "_target_"


def allowed_targets() -> dict[str, Callable[..., Any]]:
    """The models' factories, the attention modules and the searches, by their public dotted names."""
    models = {name: getattr(seq2seq.models, name) for name in seq2seq.models.__all__ if name.startswith("create_")}
    attention = {name: getattr(seq2seq.attention, name) for name in seq2seq.attention.__all__}
    searches = {name: getattr(seq2seq.search, name) for name in ("GreedySearch", "BeamSearch", "Sampling")}
    return {
        **{f"seq2seq.models.{name}": factory for name, factory in models.items()},
        **{
            f"seq2seq.attention.{name}": part
            for name, part in attention.items()
            if isinstance(part, type) and issubclass(part, nn.Module)
        },
        **{f"seq2seq.search.{name}": search for name, search in searches.items()},
    }


def build(node: Any, where: str, **extra: Any) -> Any:
    """Call the `_target_` of a configuration node with its other keys, inner nodes first; `extra` arguments are added
    at the top. `where` names the node in errors.

    Raises:
        UserError: a target that is not in `allowed_targets`, or arguments that it does not take.
    """
    try:
        return _build(node, where, extra)
    except RecursionError as error:
        raise UserError(f"{where} is nested too deeply") from error


def _build(node: Any, where: str, extra: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_build(item, f"{where}[{index}]", {}) for index, item in enumerate(node)]
    if not isinstance(node, dict):
        return node
    values = {}
    for key, value in node.items():
        if not isinstance(key, str) or (key.startswith("_") and key != TARGET):
            raise UserError(f"{where}: the key {key!r} is not allowed in a bundle's configuration")
        if key != TARGET:
            values[key] = _build(value, f"{where}.{key}", {})
    if TARGET not in node:
        return values
    target = allowed_targets().get(node[TARGET]) if isinstance(node[TARGET], str) else None
    if target is None:
        raise UserError(
            f"{where}.{TARGET}: {node[TARGET]!r} cannot be built from a bundle; only models, attention modules and "
            "searches of this package can"
        )
    try:
        return target(**values, **extra)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except (TypeError, ValueError, RuntimeError, AttributeError, ArithmeticError, MemoryError) as error:
        raise UserError(f"{where}: {node[TARGET]} cannot be built: {str(error).splitlines()[0]}") from error


class Allowance(TorchFunctionMode):
    """Stops the building of a model, before memory is taken, once it clearly has more or larger tensors than the
    weights that are to fill it: a configuration of a few bytes could ask for any size. Twice as much is allowed, which
    has room for what is computed and not kept with the weights.
    """

    def __init__(self, weights: Collection[Tensor]) -> None:
        super().__init__()
        self.tensors = 2 * len(weights)
        self.entries = 2 * sum(tensor.numel() for tensor in weights)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.empty, torch.zeros, torch.arange):
            self.tensors -= 1
            self.entries -= len(range(*args)) if function is torch.arange else entries(args)
            if min(self.tensors, self.entries) < 0:
                raise UserError("the configured model is larger than its weights")
        return function(*args, **(kwargs or {}))


def entries(shape: Sequence[Any]) -> int:
    """Number of entries in a tensor of this shape, given as to `torch.empty`: several numbers or one sequence."""
    return math.prod(torch.Size(shape[0] if shape and isinstance(shape[0], Sequence) else shape))


def read_yaml(text: str, where: str) -> dict[str, Any]:
    """Read a mapping of plain values from YAML. Aliases are refused: expanding them could take any amount of memory."""
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise UserError(f"{where} uses YAML aliases, which are not allowed in a bundle")
        config = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UserError(f"{where} is not plain YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise UserError(f"{where} must be a mapping")
    return config

"""Groups of parameters that an optimizer treats alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from seq2seq.errors import UserError
from seq2seq.layers.embedding import Embedding
from seq2seq.layers.output import OutputLayer
from seq2seq.layers.positions import LearnedPositions

TABLES = (Embedding, OutputLayer, LearnedPositions)
"""Layers whose matrix has a row for each word or position, and is no map between features."""

GROUPS: dict[str, dict[str, Any]] = {
    "map": {"matrices": True},
    "table": {"matrices": False},
    "vector": {"matrices": False, "weight_decay": 0.0},
}
"""The optimizer's groups of parameters and their settings: weight decay spares biases and normalization."""


def parameter_kinds(model: nn.Module) -> dict[str, str]:
    """The group of every parameter by its name. To be asked before FSDP flattens them."""
    tables = {layer.weight for layer in model.modules() if isinstance(layer, TABLES)}
    return {
        name: "vector" if parameter.ndim < 2 else "table" if parameter in tables else "map"
        for name, parameter in model.named_parameters()
    }


def create_optimizer(
    factory: Callable[[Iterable[Any]], Optimizer],
    named_parameters: Iterable[tuple[str, nn.Parameter]],
    kinds: dict[str, str],
) -> Optimizer:
    """factory([{"params": ..., "matrices": whether they are maps, ...}, ...]) over the parameters that learn.

    Raises:
        UserError: the factory refuses its settings or the parameters.
    """
    named = [(name, parameter) for name, parameter in named_parameters if parameter.requires_grad]
    groups = [
        {"params": [parameter for name, parameter in named if kinds[name] == kind], **settings}
        for kind, settings in GROUPS.items()
    ]
    try:
        optimizer = factory([group for group in groups if group["params"]])
        if len(betas := optimizer.defaults.get("betas", (0, 0))) != 2:
            raise ValueError(f"betas must be two numbers, got {list(betas)}")
    except (ValueError, TypeError, RuntimeError, IndexError) as error:
        raise UserError(f"the optimizer cannot be made: {error}\nSee the keys under optimizer.") from error
    return optimizer

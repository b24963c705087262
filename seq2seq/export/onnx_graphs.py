"""A model as two functions of plain tensors, as graphs need them: the encoder, and one step of the decoder.

A state (`interfaces.State`) is any nesting of dataclasses and tuples around tensors and whole numbers. `flatten` gives
the tensors in it names such as "state.memory.keys" or "state.layers.0.1", and `rebuild` makes a state of them again.

The axes of a tensor are numbers, or names for lengths that vary: batch, beam, source, steps (taken so far) and past
(entries of a cache, one a step and beam). The rows of a state, batch x beam, are two axes in a graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from seq2seq.attention.key_value_cache import KeyValueCache
from seq2seq.errors import UserError
from seq2seq.inference.onnx_model import NEXT, STATE
from seq2seq.interfaces import BOS, EOS, Model

ROWS = "rows"
Axes = tuple[str | int, ...]


@dataclass(frozen=True)
class GraphCache:
    """`KeyValueCache` as long as what is in it: a graph knows the lengths of its tensors, not the number of its calls.

    keys, values: one a layer (B, H, past, d). visible (B, K, past). starts (steps,).
    """

    keys: list[Tensor]
    values: list[Tensor]
    visible: Tensor
    starts: Tensor

    @classmethod
    def of(cls, cache: KeyValueCache) -> GraphCache:
        past = cache.visible.shape[2]
        keys, values = (list(store[..., :past, :].unbind(0)) for store in (cache.keys, cache.values))
        return cls(keys, values, cache.visible, torch.tensor(cache.starts, dtype=torch.int64))

    @property
    def steps(self) -> int:
        return self.starts.shape[0]

    @property
    def rows(self) -> int:
        return self.visible.shape[1]

    def extend(self) -> GraphCache:
        batch, rows, past = self.visible.shape
        own = torch.eye(rows, dtype=torch.bool).expand(batch, rows, rows)
        starts = torch.cat([self.starts, torch.full((1,), past)])
        return GraphCache(list(self.keys), list(self.values), torch.cat([self.visible, own], 2), starts)

    def append(
        self, layer: int, keys: Tensor, values: Tensor, window: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        self.keys[layer] = torch.cat([self.keys[layer], keys], 2)
        self.values[layer] = torch.cat([self.values[layer], values], 2)
        visible = self.visible
        if window is not None:
            late = torch.arange(self.steps) >= self.steps - 1 - window
            first = torch.where(late, self.starts, visible.shape[2]).amin(0)
            visible = visible & (torch.arange(visible.shape[2]) >= first)
        return self.keys[layer], self.values[layer], torch.where(visible, 0.0, -torch.inf).unsqueeze(1)


def parts(node: Any, name: str) -> dict[str, Any]:
    """The parts of a dataclass, tuple or list by their dotted names."""
    if isinstance(node, tuple | list):
        found = {str(number): value for number, value in enumerate(node)}
    elif is_dataclass(node):
        found = {field.name: getattr(node, field.name) for field in fields(node)}
    else:
        raise UserError(f"a state with a {type(node).__name__} in it ({name}) cannot become a graph's tensors")
    return {f"{name}{part}.": value for part, value in found.items()}


def flatten(node: Any, name: str = STATE) -> dict[str, Tensor]:
    """The tensors in a state by name. A whole number becomes a vector of that length, since graphs know lengths."""
    if isinstance(node, Tensor):
        return {name.rstrip("."): node}
    if isinstance(node, int | torch.SymInt):
        return {name.rstrip("."): torch.arange(cast("int", node))}
    if isinstance(node, KeyValueCache):
        node = GraphCache.of(node)
    return {key: leaf for part, value in parts(node, name).items() for key, leaf in flatten(value, part).items()}


def rebuild(like: Any, tensors: Mapping[str, Tensor], name: str = STATE) -> Any:
    """A state with the structure of `like`, from tensors by name."""
    if isinstance(like, Tensor):
        return tensors[name.rstrip(".")]
    if isinstance(like, int):
        return tensors[name.rstrip(".")].shape[0]
    if isinstance(like, KeyValueCache):
        like = GraphCache.of(like)
    found = [rebuild(value, tensors, part) for part, value in parts(like, name).items()]
    return type(like)(found) if isinstance(like, tuple | list) else type(like)(*found)


@dataclass(frozen=True)
class Sizes:
    """Lengths of the axes that vary."""

    batch: int
    beam: int
    source: int
    steps: int

    def named(self) -> dict[str, int]:
        past = self.steps * self.beam
        grown = {"steps + 1": self.steps + 1, "past + beam": past + self.beam}
        return {**vars(self), ROWS: self.batch * self.beam, "past": past, **grown}

    def tokens(self) -> Tensor:
        return torch.full((self.batch, self.beam), BOS)

    def sources(self) -> tuple[Tensor, Tensor]:
        """A source and its mask."""
        source = torch.full((self.batch, self.source), EOS)
        return source, torch.ones_like(source, dtype=torch.bool)

    def state(self, model: Model) -> Any:
        """A state after `steps` steps."""
        rows = torch.arange(self.batch).unsqueeze(1).expand(self.batch, self.beam)
        state = model.start(model.encode(*self.sources())).select(rows)
        for _ in range(self.steps):
            _, state, _ = model.step(self.tokens().flatten(), state)
        return state


SIZES, OTHER_SIZES = Sizes(4, 5, 7, 2), Sizes(2, 3, 4, 1)
"""Two sets of sizes that distinguish all axes."""


@dataclass(frozen=True)
class Layout:
    """The structure of a model's state, as in `like`, and the axes of its tensors and of a step's results, in order."""

    like: Any
    state: dict[str, Axes]
    results: dict[str, Axes]

    @classmethod
    def of(cls, model: Model) -> Layout:
        states = [sizes.state(model) for sizes in (SIZES, OTHER_SIZES)]
        given = [flatten(state) for state in states]
        results = []
        for sizes, state, before in zip((SIZES, OTHER_SIZES), states, given, strict=True):
            named = step(model, sizes.tokens(), state)
            results.append(
                {name: one for name, one in named.items() if one is not before.get(name.replace(NEXT, STATE))}
            )
        return cls(rebuild(states[1], given[1]), axis_names(*given), axis_names(*results))


def axis_names(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Axes]:
    """The axes of tensors, from their shapes under SIZES and OTHER_SIZES."""
    names = {(length, OTHER_SIZES.named()[name]): name for name, length in SIZES.named().items()}
    found = {
        name: tuple(a if a == b else names[a, b] for a, b in zip(tensor.shape, other[name].shape, strict=True))
        for name, tensor in one.items()
    }
    assert all(ROWS not in axes[1:] and "beam" not in axes[2:] for axes in found.values()), "rows come first"
    return found


def split(axes: Axes) -> Axes:
    """The axes of a tensor whose rows have become batch and beam."""
    return ("batch", "beam", *axes[1:]) if axes[0:1] == (ROWS,) else axes


def split_rows(tensors: Mapping[str, Tensor], axes: Mapping[str, Axes], batch: int, beam: int) -> dict[str, Tensor]:
    """The tensors that have axes, in their order, their rows as batch and beam."""
    return {
        name: tensors[name].reshape(batch, beam, *tensors[name].shape[1:]) if own[0:1] == (ROWS,) else tensors[name]
        for name, own in axes.items()
    }


def join_rows(tensors: Mapping[str, Tensor], axes: Mapping[str, Axes]) -> dict[str, Tensor]:
    return {name: one.flatten(0, 1) if axes[name][0:1] == (ROWS,) else one for name, one in tensors.items()}


def step(model: Model, tokens: Tensor, state: Any) -> dict[str, Tensor]:
    """tokens (batch, beam) -> logits, weights if the model attends, and the tensors of the next state."""
    features, following, weights = model.step(tokens.flatten(), state)
    shown = {"logits": model.logits(features), "weights": weights}
    return {
        **{name: one for name, one in shown.items() if one is not None},
        **flatten(following, NEXT),
    }


class EncoderGraph(nn.Module):
    """source (batch, source), mask (batch, source) -> the tensors of the first state, with a beam of 1."""

    def __init__(self, model: Any, layout: Layout) -> None:
        super().__init__()
        self.model, self.layout = model, layout

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        source, mask = inputs
        state = flatten(self.model.start(self.model.encode(source, mask)))
        return tuple(split_rows(state, self.layout.state, source.shape[0], 1).values())


class StepGraph(nn.Module):
    """tokens (batch, beam) and the tensors of a state -> what `Layout.results` names."""

    def __init__(self, model: Any, layout: Layout) -> None:
        super().__init__()
        self.model, self.layout = model, layout

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        layout, (tokens, *tensors) = self.layout, inputs
        given = join_rows(dict(zip(layout.state, tensors, strict=True)), layout.state)
        found = step(self.model, tokens, rebuild(layout.like, given))
        return tuple(split_rows(found, layout.results, *tokens.shape).values())

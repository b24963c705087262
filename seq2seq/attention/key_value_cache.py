"""Cache of past keys and values, for self-attention one step at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

STEPS = 32
"""Steps that a new cache has room for; it doubles when they are used up."""


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values of all layers and past steps, for B sentences with K rows (beams) each.

    The rows of a sentence share one store, to which each step appends K entries in place. `visible` (B, K, used) marks
    the entries that are a row's own past: reordering rows reorders this mask, never the keys and values. So K rows are
    K queries over one store, and `select` costs nothing that grows with the model's width or depth.

    keys, values (layers, B, H, capacity, d). bias (B, 1, K, used): added to the scores; None where every entry is
    visible. starts: the number of entries before each step, so that len(starts) steps have been taken. To use it, call
    `start`, then `cache = cache.extend()` at each step, and `append` in each layer.
    """

    keys: Tensor
    values: Tensor
    visible: Tensor
    bias: Tensor | None
    starts: tuple[int, ...]

    @classmethod
    def start(cls, layers: int, batch: int, heads: int, width: int, like: Tensor) -> KeyValueCache:
        """Create an empty cache with one row per sentence, for heads of `width`, of the dtype and device of `like`."""
        store = like.new_empty(2, layers, batch, heads, 0, width)
        visible = torch.ones(batch, 1, 0, dtype=torch.bool, device=like.device)
        return cls(store[0], store[1], visible, None, ())

    @property
    def steps(self) -> int:
        return len(self.starts)

    @property
    def rows(self) -> int:
        return self.visible.shape[1]

    def extend(self) -> KeyValueCache:
        """Make room for one more step, in which each row sees its own past and itself."""
        batch, rows, used = self.visible.shape
        own = torch.eye(rows, dtype=torch.bool, device=self.visible.device).expand(batch, rows, rows)
        visible = torch.cat([self.visible, own], dim=-1)
        keys, values = self.keys, self.values
        if used + rows > keys.shape[3]:
            room = max(keys.shape[3], STEPS * rows)
            keys, values = (
                torch.cat([old, old.new_empty(*old.shape[:3], room, old.shape[4])], 3) for old in (keys, values)
            )
        starts = (*self.starts, used)
        bias = None if used + rows == len(starts) else _bias(visible, keys.dtype)
        return KeyValueCache(keys, values, visible, bias, starts)

    def append(
        self, layer: int, keys: Tensor, values: Tensor, window: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Write one layer's keys and values (B, H, K, d) of this step, and return all that its rows may attend.

        Returns keys and values (B, H, used, d) and their part of `bias`. window: how many earlier steps a row sees
        (None: all).
        """
        used, rows = self.starts[-1], self.rows
        self.keys[layer, :, :, used : used + rows] = keys
        self.values[layer, :, :, used : used + rows] = values
        first = 0 if window is None else self.starts[max(0, self.steps - 1 - window)]
        seen = slice(first, used + rows)
        bias = None if self.bias is None else self.bias[..., seen]
        return self.keys[layer, :, :, seen], self.values[layer, :, :, seen], bias

    def select(self, rows: Tensor) -> KeyValueCache:
        """Return new rows from old ones, as `interfaces.State.select`: rows (B', K') of old numbers b * K + k."""
        visible = self.visible.flatten(0, 1)[rows]
        if rows.shape[0] == self.visible.shape[0]:
            return replace(self, visible=visible)
        sentences = rows[:, 0] // self.rows
        return replace(
            self,
            keys=self.keys.index_select(1, sentences),
            values=self.values.index_select(1, sentences),
            visible=visible,
        )


def _bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """visible (B, K, used) -> (B, 1, K, used), 0 where visible and -inf elsewhere. Each row always sees itself."""
    return (
        torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf).unsqueeze(1)
    )

"""Overlapping windows of a sequence, by which restricted self-attention costs O(S radius) instead of O(S^2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST_BLOCK = 32
"""Queries of a block, at least: smaller matrix products would be less efficient."""


@dataclass(frozen=True)
class Windows:
    """Layout of `count` blocks of `block` queries over `size` positions.

    Each block sees `span` keys, beginning `before` positions before its first query; each query sees `radius` positions
    to its left and, unless causal, to its right.
    """

    size: int
    block: int
    count: int
    before: int
    span: int
    radius: int
    causal: bool

    @classmethod
    def of(cls, size: int, radius: int, causal: bool) -> Windows:
        """Lay out windows over `size` positions."""
        block = min(max(radius, SMALLEST_BLOCK), max(size, 1))
        radius = min(radius, max(size - 1, 0))
        after = 0 if causal else radius
        return cls(size, block, max(-(-size // block), 1), radius, radius + block + after, radius, causal)

    def queries(self, values: Tensor) -> Tensor:
        """Cut queries into blocks: (B, S, F) -> (B * count, block, F), padded with zeros at the end."""
        padded = F.pad(values, (0, 0, 0, self.count * self.block - self.size))
        return padded.reshape(-1, self.block, values.shape[-1])

    def keys(self, values: Tensor) -> Tensor:
        """Cut keys into windows: (B, S, F) -> (B * count, span, F), zeros where a window leaves the sequence."""
        end = (self.count - 1) * self.block + self.span - self.before
        padded = F.pad(values, (0, 0, self.before, end - self.size))
        windows = padded.unfold(1, self.span, self.block)  # (B, count, F, span)
        return windows.transpose(2, 3).flatten(0, 1)

    def mask(self, batch: int, mask: Tensor | None, device: torch.device) -> Tensor:
        """Mask each query's keys, (B * count, block, span), by the band, the sequence's ends and mask (B, S)."""
        if mask is None:
            mask = torch.ones(batch, self.size, dtype=torch.bool, device=device)
        real = self.keys(mask.unsqueeze(-1)).transpose(1, 2)  # (B * count, 1, span)
        distance = torch.arange(self.span, device=device) - torch.arange(self.block, device=device).unsqueeze(1)
        distance = distance - self.before
        band = (distance >= -self.radius) & (distance <= (0 if self.causal else self.radius))
        return real & band

    def merge(self, blocks: Tensor) -> Tensor:
        """Join blocks: (B * count, block, F) -> (B, S, F)."""
        return blocks.reshape(-1, self.count * self.block, blocks.shape[-1])[:, : self.size]

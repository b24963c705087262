"""Splitting of packed projections into heads, with one copy in the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def split_heads(packed: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """packed (B, S, P * D) -> P views (B, H, S, d), d = D / H: the P parts lie side by side, each by heads.

    Autograd would join the gradients of the views in one copy and reorder them in another; training on a CPU does both
    in one. Elsewhere, and in compiled or exported graphs, this is `split_heads_reference`.
    """
    if not torch.is_grad_enabled() or packed.device.type != "cpu" or torch.compiler.is_compiling():
        return split_heads_reference(packed, parts, heads)
    split: tuple[Tensor, ...] = _SplitHeads.apply(packed, _shape(packed, parts, heads))
    return split


def split_heads_reference(packed: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """Compute `split_heads` by plain views, with the gradients that autograd derives."""
    return _views(packed, _shape(packed, parts, heads))


def _shape(packed: Tensor, parts: int, heads: int) -> tuple[int, ...]:
    return (*packed.shape[:2], parts, heads, packed.shape[2] // (parts * heads))  # (B, S, P, H, d)


def _views(packed: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    return packed.view(shape).permute(2, 0, 3, 1, 4).unbind(0)  # (B, S, P, H, d) -> P times (B, H, S, d)


class _SplitHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
        ctx.shape = shape
        return _views(packed, shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        packed = gradients[0].new_empty(ctx.shape)
        for part, gradient in enumerate(gradients):
            packed[:, :, part] = gradient.transpose(1, 2)  # (B, H, S, d) -> (B, S, H, d)
        return packed.flatten(2), None

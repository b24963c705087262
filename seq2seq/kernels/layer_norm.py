"""Layer normalization (Ba et al. 2016) that saves its result instead of its input for the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

SMALLEST_WEIGHT = 0.05
"""Least weight by which the result may be divided without losing digits; with a smaller one the input is saved."""


class LayerNorm(nn.LayerNorm):
    """`nn.LayerNorm` over the last dimension, (..., D) -> (..., D).

    In training on a CPU it saves its result, which the next layer saves anyway, and not its input: the backward pass
    reads the normalized input back as (result - bias) / weight.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)

    def forward(self, inputs: Tensor) -> Tensor:
        applies = torch.is_grad_enabled() and inputs.device.type == "cpu" and inputs.dtype == self.weight.dtype
        if not applies or self.weight.detach().abs().min() < SMALLEST_WEIGHT:
            return super().forward(inputs)
        normalized: Tensor = _LayerNorm.apply(inputs, self.weight, self.bias, self.eps)
        return normalized


def layer_norm_reference(inputs: Tensor, weight: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Compute `LayerNorm` from its equation, with the gradients that autograd derives."""
    centered = inputs - inputs.mean(-1, keepdim=True)
    variance = centered.square().mean(-1, keepdim=True)
    return centered / torch.sqrt(variance + epsilon) * weight + bias


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        result, _, scale = torch.native_layer_norm(inputs, weight.shape, weight, bias, epsilon)
        ctx.save_for_backward(result, scale, weight, bias)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        result, scale, weight, bias = ctx.saved_tensors
        normalized = torch.sub(result, bias).div_(weight)
        zeros, ones = torch.zeros_like(scale), torch.ones_like(scale)
        by_input, by_weight, by_bias = torch.ops.aten.native_layer_norm_backward(
            gradient, normalized, weight.shape, zeros, ones, weight, bias, [True, True, True]
        )
        return by_input.mul_(scale), by_weight, by_bias, None

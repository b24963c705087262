"""Layer normalisation (Ba et al. 2016) that remembers one tensor instead of two for the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

SMALLEST_WEIGHT = 0.05
"""Below it, what was normalised is not read back from the result: dividing by the weight would lose digits."""


class LayerNorm(nn.LayerNorm):
    """`nn.LayerNorm` over the last dimension. Training on a CPU it keeps its result, which the layer above keeps
    anyway, and not its input: (result - bias) / weight is the normalised input."""

    def __init__(self, width: int) -> None:
        super().__init__(width)

    def forward(self, inputs: Tensor) -> Tensor:
        thrifty = torch.is_grad_enabled() and inputs.device.type == "cpu" and inputs.dtype == self.weight.dtype
        if not thrifty or self.weight.detach().abs().min() < SMALLEST_WEIGHT:
            return super().forward(inputs)
        normalised: Tensor = _ThriftyLayerNorm.apply(inputs, self.weight, self.bias, self.eps)
        return normalised


class _ThriftyLayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        result, _, scale = torch.native_layer_norm(inputs, weight.shape, weight, bias, epsilon)
        ctx.save_for_backward(result, scale, weight, bias)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        result, scale, weight, bias = ctx.saved_tensors
        normalised = torch.sub(result, bias).div_(weight)
        zeros, ones = torch.zeros_like(scale), torch.ones_like(scale)
        by_input, by_weight, by_bias = torch.ops.aten.native_layer_norm_backward(
            gradient, normalised, weight.shape, zeros, ones, weight, bias, [True, True, True]
        )
        return by_input.mul_(scale), by_weight, by_bias, None

"""Projection of features onto the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.kernels.product import Shape, linear


class OutputLayer(nn.Module):
    """Logits of the vocabulary, features W^T + b: (..., D) -> (..., V).

    `weight` (V, D) may be an embedding's parameter (tied; Press and Wolf 2017); a new one is N(0, D^-1/2). The bias
    starts at zero.
    """

    def __init__(self, width: int, vocabulary: int, weight: nn.Parameter | None = None) -> None:
        super().__init__()
        if width < 1 or vocabulary < 1:
            raise UserError(f"an output layer needs width > 0 and vocabulary > 0, got {width} and {vocabulary}")
        if weight is None:
            weight = nn.Parameter(nn.init.normal_(torch.empty(vocabulary, width), std=width**-0.5))
        elif weight.shape != (vocabulary, width):
            raise UserError(f"tied weight has shape {tuple(weight.shape)}, the output needs {(vocabulary, width)}")
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, features: Tensor, out: Tensor | None = None) -> Tensor:
        """features (..., D) -> logits (..., V).

        out: where no gradient is needed, memory (N, V) that the logits of features (N, D) may be written to.
        """
        if out is None or out.dtype != features.dtype:
            return linear(features, self.weight, self.bias)
        return torch.addmm(self.bias, features, self.weight.t(), out=out)

    def weight_shapes(self) -> list[Shape]:
        return [(self.weight.shape[0], self.weight.shape[1])]

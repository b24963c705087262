"""Gated convolutions over a sequence (Gehring et al. 2017)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.kernels.dropout import Dropout
from seq2seq.kernels.product import Shape, linear


class GatedConvolution(nn.Module):
    """Gated linear unit over windows of `kernel` positions, (B, T, D) -> (B, T, D): A * sigmoid(G), [A G] = W x + b.

    causal: a window ends at its own position (in a decoder); otherwise it is centered there and `kernel` must be odd.
    Beyond the ends lie zeros: inputs at padding must be zero too, or padding would change the result. dropout acts on
    the inputs. W is N(0, sqrt(4 (1 - dropout) / (kernel D))), which keeps the variance through the gate (appendix A).
    """

    def __init__(self, width: int, kernel: int, causal: bool, dropout: float = 0.0) -> None:
        super().__init__()
        if width < 1 or kernel < 1:
            raise UserError(f"a convolution needs width > 0 and kernel > 0, got {width} and {kernel}")
        if not causal and kernel % 2 == 0:
            raise UserError(f"a centered convolution needs an odd kernel, got {kernel}")
        self.kernel = kernel
        self.left = kernel - 1 if causal else kernel // 2
        self.weight = nn.Parameter(torch.empty(2 * width, width, kernel))
        self.bias = nn.Parameter(torch.zeros(2 * width))
        nn.init.normal_(self.weight, std=math.sqrt(4 * (1 - dropout) / (kernel * width)))
        self.dropout = Dropout(dropout)

    def forward(self, inputs: Tensor) -> Tensor:
        padded = F.pad(self.dropout(inputs), (0, 0, self.left, self.kernel - 1 - self.left))  # (B, T + kernel - 1, D)
        return self.window(padded.unfold(1, self.kernel, 1))  # (B, T, D, kernel)

    def window(self, windows: Tensor) -> Tensor:
        """windows (..., D, kernel) -> the output of each (..., D), without dropout."""
        return F.glu(linear(windows.flatten(-2), self.weight.flatten(1), self.bias))

    def weight_shapes(self) -> list[Shape]:
        return [(self.weight.shape[0], self.weight.shape[1] * self.kernel)]

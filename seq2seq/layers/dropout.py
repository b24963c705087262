"""Dropout whose random numbers are cheap on a CPU, where drawing them otherwise takes up to a third of training."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seq2seq.errors import UserError

_LEVELS = 1 << 16


class Dropout(nn.Module):
    """Zeroes each entry with probability `rate` in training and divides the others by what is kept (Srivastava et al.
    2014); the identity in evaluation.

    On a CPU one 64-bit random word decides four entries, so the rate is a multiple of 1/65536; entries are divided by
    exactly the probability of being kept, so the expectation is exact. Random words come from torch's global generator.
    """

    def __init__(self, rate: float):
        super().__init__()
        if not 0 <= rate < 1:
            raise UserError(f"dropout must be at least 0 and less than 1, got {rate}")
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        return dropout(values, self.rate, self.training)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


def dropout(values: Tensor, rate: float, training: bool) -> Tensor:
    """`Dropout` as a function."""
    if not training or rate == 0:
        return values
    if values.device.type != "cpu":
        return F.dropout(values, rate)
    dropped: Tensor = _CheapDropout.apply(values, min(round(rate * _LEVELS), _LEVELS - 1))
    return dropped


class _CheapDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dropped: int) -> Tensor:
        """values of any shape; an entry is zeroed when its 16 random bits are among the `dropped` lowest numbers."""
        count = values.numel()
        words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        bits = words.view(torch.int16)[:count].view(values.shape)
        keep = bits.ge_(dropped - _LEVELS // 2).to(torch.uint8)
        ctx.save_for_backward(keep)
        ctx.scale = _LEVELS / (_LEVELS - dropped)
        return (values * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return gradient * keep * ctx.scale, None

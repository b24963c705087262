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


def add_dropout(inputs: Tensor, values: Tensor, rate: float, training: bool) -> Tensor:
    """inputs + dropout(values), of one shape, in one pass over them on a CPU."""
    if not training or rate == 0:
        return inputs + values
    if values.device.type != "cpu" or inputs.dtype != values.dtype:
        return inputs + dropout(values, rate, training)
    total: Tensor = _CheapAddDropout.apply(inputs, values, min(round(rate * _LEVELS), _LEVELS - 1))
    return total


def _draw(values: Tensor, dropped: int) -> Tensor:
    """1 (uint8) where an entry is kept: where its 16 random bits are not among the `dropped` lowest numbers."""
    count = values.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[:count].view(values.shape)
    return bits.ge_(dropped - _LEVELS // 2).to(torch.uint8)


def _apply(keep: Tensor, scale: float, values: Tensor) -> Tensor:
    """values * keep * scale. Converting `keep` first is several times faster than multiplying two types."""
    return keep.to(values.dtype).mul_(values).mul_(scale)


class _CheapDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dropped: int) -> Tensor:
        keep = _draw(values, dropped)
        ctx.save_for_backward(keep)
        ctx.scale = _LEVELS / (_LEVELS - dropped)
        return _apply(keep, ctx.scale, values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return _apply(keep, ctx.scale, gradient), None


class _CheapAddDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, values: Tensor, dropped: int) -> Tensor:
        keep = _draw(values, dropped)
        ctx.save_for_backward(keep)
        ctx.scale = _LEVELS / (_LEVELS - dropped)
        return torch.addcmul(inputs, values, keep.to(values.dtype), value=ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        (keep,) = ctx.saved_tensors
        return gradient, _apply(keep, ctx.scale, gradient), None

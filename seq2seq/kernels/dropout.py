"""Dropout that draws 16 random bits per entry on a CPU.

Drawing a number per entry takes up to a third of the time of training there.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seq2seq.errors import UserError

LEVELS = 1 << 16
"""Resolution of a rate on a CPU: it is rounded to a multiple of 1 / LEVELS."""


class Dropout(nn.Module):
    """Dropout (Srivastava et al. 2014): the identity in evaluation.

    In training it zeroes each entry with probability `rate` and divides the others by the probability of being kept.
    On a CPU one 64-bit random word decides four entries, so the rate is rounded to a multiple of 1/65536; entries are
    divided by exactly the probability that results, so the expectation is exact. Random words come from torch's global
    generator.
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
    """`Dropout` as a function, for values of any shape."""
    if not training or rate == 0:
        return values
    if values.device.type != "cpu":
        return F.dropout(values, rate)
    result: Tensor = _Dropout.apply(values, dropped_levels(rate))
    return result


def add_dropout(inputs: Tensor, values: Tensor, rate: float, training: bool) -> Tensor:
    """Compute inputs + dropout(values), both of one shape, in one pass on a CPU."""
    if not training or rate == 0:
        return inputs + values
    if values.device.type != "cpu" or inputs.dtype != values.dtype:
        return inputs + dropout(values, rate, training)
    total: Tensor = _AddDropout.apply(inputs, values, dropped_levels(rate))
    return total


def dropout_reference(values: Tensor, rate: float) -> Tensor:
    """Compute `dropout` in training on a CPU by plain operations, from the same draws."""
    dropped = dropped_levels(rate)
    return values * draw_kept(values, dropped) * (LEVELS / (LEVELS - dropped))


def add_dropout_reference(inputs: Tensor, values: Tensor, rate: float) -> Tensor:
    """Compute `add_dropout` in training on a CPU by plain operations, from the same draws."""
    return inputs + dropout_reference(values, rate)


def dropped_levels(rate: float) -> int:
    """Return how many of the LEVELS values of 16 random bits drop an entry; never all of them."""
    return min(round(rate * LEVELS), LEVELS - 1)


def draw_kept(values: Tensor, dropped: int) -> Tensor:
    """Draw a uint8 tensor of the shape of `values`: 0 for an entry whose 16 random bits are among the `dropped` lowest
    of the LEVELS values, 1 for an entry to keep.
    """
    count = values.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[:count].view(values.shape)
    return bits.ge_(dropped - LEVELS // 2).to(torch.uint8)


def _scale_kept(keep: Tensor, scale: float, values: Tensor) -> Tensor:
    """values * keep * scale. Converting `keep` first is several times faster than multiplying tensors of two types."""
    return keep.to(values.dtype).mul_(values).mul_(scale)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dropped: int) -> Tensor:
        keep = draw_kept(values, dropped)
        ctx.save_for_backward(keep)
        ctx.scale = LEVELS / (LEVELS - dropped)
        return _scale_kept(keep, ctx.scale, values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return _scale_kept(keep, ctx.scale, gradient), None


class _AddDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, values: Tensor, dropped: int) -> Tensor:
        keep = draw_kept(values, dropped)
        ctx.save_for_backward(keep)
        ctx.scale = LEVELS / (LEVELS - dropped)
        return torch.addcmul(inputs, values, keep.to(values.dtype), value=ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        (keep,) = ctx.saved_tensors
        return gradient, _scale_kept(keep, ctx.scale, gradient), None

"""Masks (bool, True = may be attended) and the one softmax that respects them."""

from __future__ import annotations

import torch
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.kernels.precision import widened


def lengths_to_mask(lengths: Tensor, size: int | None = None) -> Tensor:
    """Mask the first `lengths` positions out of `size` (default: the longest length).

    lengths (B,), one per sentence -> (B, S); lengths (B, Q), one per query -> (B, Q, S).
    """
    if lengths.is_floating_point() or lengths.dim() not in (1, 2):
        raise UserError(f"lengths must be integers of shape (B,) or (B, Q), got {lengths.dtype} {tuple(lengths.shape)}")
    if size is None:
        size = int(lengths.max()) if lengths.numel() else 0
    return torch.arange(size, device=lengths.device) < lengths.unsqueeze(-1)


def causal_mask(size: int, device: torch.device | str | None = None) -> Tensor:
    """Mask (size, size) by which position i may attend positions 0 .. i."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()


def band_mask(size: int, radius: int, causal: bool = False, device: torch.device | str | None = None) -> Tensor:
    """Mask (size, size) by which position i may attend positions i - radius .. i + radius (.. i when causal)."""
    mask = torch.ones(size, size, dtype=torch.bool, device=device).tril(0 if causal else radius)
    return mask.triu(-radius)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last dimension, among the positions that `mask` allows.

    scores (..., S) of any floating dtype, mask broadcastable to it (None allows everything) -> weights like scores,
    exactly zero off the mask. Computed in float32 or wider. A row with nothing to attend gets zeros only and passes no
    gradient.
    """
    wide = widened(scores)
    if mask is None:
        return torch.softmax(wide, dim=-1).to(scores.dtype)
    # The lowest finite number instead of -inf: a row with nothing to attend is uniform, not NaN, before it is zeroed.
    weights = torch.softmax(torch.where(mask, wide, torch.finfo(wide.dtype).min), dim=-1)
    return torch.where(mask, weights, 0.0).to(scores.dtype)


def masked_log_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Logarithm of `masked_softmax` in float32 or wider, with 0 instead of -inf off the mask."""
    wide = widened(scores)
    logs = torch.log_softmax(torch.where(mask, wide, torch.finfo(wide.dtype).min), dim=-1)
    return torch.where(mask, logs, 0.0)

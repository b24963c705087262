"""Precision of what half precision is too coarse for: it is for storage and products."""

import torch
from torch import Tensor


def widened(tensor: Tensor) -> Tensor:
    """Convert to float32, or leave as it is where the type is as wide."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))

"""Half precision is for storage and products; what needs more is done in this."""

import torch
from torch import Tensor


def widened(tensor: Tensor) -> Tensor:
    """The same values in float32, or as they are where they have more."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))

"""Symmetric divergence between two output distributions, fused with the output projection."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from seq2seq.kernels.cross_entropy import CPU_CHUNK, GPU_CHUNK
from seq2seq.kernels.product import linear


def symmetric_divergence(
    one: Tensor, other: Tensor, weight: Tensor, bias: Tensor | None, chunk: int | None = None
) -> Tensor:
    """Sum over rows of KL(p || q) + KL(q || p) in nats, p = softmax(one weight^T + bias), q the same of `other`.

    one, other (N, D), weight (V, D), bias (V,). About `chunk` logits are held at once; they are recomputed for the
    gradient.
    """
    if chunk is None:
        chunk = CPU_CHUNK if one.device.type == "cpu" else GPU_CHUNK
    rows = max(1, chunk // weight.shape[0])
    parts = [
        checkpoint(symmetric_divergence_reference, a, b, weight, bias, use_reentrant=False, preserve_rng_state=False)
        for a, b in zip(one.split(rows), other.split(rows), strict=True)
    ]
    return torch.stack(parts).sum()


def symmetric_divergence_reference(one: Tensor, other: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute `symmetric_divergence` from all logits at once: the sum of (p - q) (log p - log q)."""
    p, q = (torch.log_softmax(linear(features, weight, bias), dim=1) for features in (one, other))
    return ((p.exp() - q.exp()) * (p - q)).sum()

"""Cross-entropy with label smoothing, fused with the output projection."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from seq2seq.kernels.product import forward_product, input_product, weight_product

CPU_CHUNK = 2**21
"""Logits held at once on a CPU: 8 MB in float32, about one core's share of the last-level cache. Measured: 2^21 to 2^22
are fastest."""
GPU_CHUNK = 2**27


class _FusedCrossEntropy(torch.autograd.Function):
    """Computes gradients in the forward pass, chunk by chunk, while the chunk's logits are still in the cache.

    With z = x W^T + b, p = softmax(z) and q = (1 - eps) onehot(y) + eps / V, the gradient of the loss with respect to z
    is p - q. exp(z - max) serves as the unnormalized p, its sum scales the narrow rows of x instead of the wide rows of
    p, and the constant eps / V enters as a rank-one term. So each logit is written once and read a few times.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        chunk: int,
        low: torch.dtype | None,
        differentiate: bool,
        shares: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        vocabulary = weight.shape[0]
        wide = torch.promote_types(weight.dtype, torch.float32)
        x = features.to(low or weight.dtype)
        w = weight.to(low or weight.dtype)
        uniform = smoothing / vocabulary
        need_x, need_w, need_b = (differentiate and needed for needed in ctx.needs_input_grad[:3])
        grad_x = features.new_empty(features.shape, dtype=wide) if need_x else None
        grad_w = torch.zeros_like(weight, dtype=wide) if need_w else None
        grad_b = torch.zeros_like(bias, dtype=wide) if bias is not None and need_b else None
        nll = features.new_empty(features.shape[0], dtype=wide)
        mean_logit = features.new_empty(features.shape[0], dtype=wide)
        weight_sum, bias_mean = weight.to(wide).sum(0), 0.0 if bias is None else bias.to(wide).mean()
        rows = max(1, min(chunk // vocabulary, features.shape[0]))
        logits = x.new_empty(rows, vocabulary)  # one buffer for all chunks: fresh memory costs more than the product
        for start in range(0, features.shape[0], rows):
            part = slice(start, start + rows)
            y = target[part].unsqueeze(1)
            z = forward_product(x[part], w, out=logits[: y.shape[0]]).to(wide)
            if bias is not None:
                z.add_(bias)
            mean_logit[part] = x[part].to(wide) @ weight_sum / vocabulary + bias_mean
            nll[part] = -z.gather(1, y).squeeze(1)
            largest = z.amax(1, keepdim=True)
            total = z.sub_(largest).exp_().sum(1, keepdim=True)
            nll[part] += (largest + total.log()).squeeze(1)
            if not (need_x or need_w or need_b):
                continue
            z.scatter_add_(1, y, total * (smoothing - 1))
            scale = total.reciprocal()
            if shares is not None:
                scale.mul_(shares[part].unsqueeze(1))
            z = z.to(w.dtype)
            if grad_x is not None:
                grad_x[part] = (
                    input_product(z, w)
                    .to(wide)
                    .mul_(scale)
                    .sub_(weight_sum if shares is None else torch.outer(shares[part], weight_sum), alpha=uniform)
                )
            if grad_w is not None:
                scaled = (x[part] * scale).to(w.dtype)
                _add_product(grad_w, z, scaled)
            if grad_b is not None:
                grad_b += z.t().to(wide) @ scale.squeeze(1)
        if grad_w is not None and smoothing:
            grad_w.sub_(x.to(wide).sum(0) if shares is None else shares @ x.to(wide), alpha=uniform)
        if grad_b is not None and smoothing:
            grad_b.sub_((features.shape[0] if shares is None else shares.sum()) * uniform)
        # nll is lse - z_y; the uniform part of the loss is lse - mean(z) = nll + z_y - mean(z).
        target_logit = (x.to(wide) * w.index_select(0, target).to(wide)).sum(1)
        if bias is not None:
            target_logit = target_logit + bias.to(wide).index_select(0, target)
        losses = nll + smoothing * (target_logit - mean_logit)
        loss = losses.sum() if shares is None else losses @ shares
        ctx.gradients = (
            None if grad_x is None else grad_x.to(features.dtype),
            None if grad_w is None else grad_w.to(weight.dtype),
            None if grad_b is None or bias is None else grad_b.to(bias.dtype),
        )
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        return (
            *(None if g is None else g * grad_loss.to(g.dtype) for g in ctx.gradients),
            *(None, None, None, None, None, None),
        )


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left^T right, in place where the types allow."""
    if total.dtype == left.dtype:
        weight_product(left, right, total)
    else:
        total += left.t() @ right


def fused_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    smoothing: float = 0.0,
    chunk: int | None = None,
    shares: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of features (N, D) under logits = features weight^T + bias, without ever holding (N, V) logits.

    weight (V, D), bias (V,), target (N,) int64. The target distribution is (1 - smoothing) on the target plus
    smoothing / V on each of the V types, the target included (Szegedy et al. 2016, section 7). Returns the smoothed
    loss summed over rows, each times its share if shares (N,), constants, are given, and the plain negative
    log-likelihood (N,) of each target in nats, which carries no gradient. `chunk` is the number of logits held at once.
    Under autocast products run in its type, everything else in float32. Differentiable once.
    """
    device = features.device.type
    if chunk is None:
        chunk = CPU_CHUNK if device == "cpu" else GPU_CHUNK
    low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    with torch.autocast(device, enabled=False):
        loss, nll = _FusedCrossEntropy.apply(
            features, weight, bias, target, smoothing, chunk, low, torch.is_grad_enabled(), shares
        )
    return loss, nll


def cross_entropy_reference(
    features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Compute `fused_cross_entropy` from all logits at once, with the gradients that autograd derives."""
    log_probabilities = torch.log_softmax(F.linear(features, weight, bias), dim=1)  # (N, V)
    nll = -log_probabilities.gather(1, target.unsqueeze(1)).squeeze(1)
    uniform = -log_probabilities.mean(1)
    return ((1 - smoothing) * nll + smoothing * uniform).sum(), nll.detach()

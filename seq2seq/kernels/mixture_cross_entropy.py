"""Likelihood of a mixture of output distributions, fused with the output projection."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from seq2seq.kernels.cross_entropy import fused_cross_entropy
from seq2seq.kernels.precision import widened


def mixture_cross_entropy(
    features: Tensor,
    log_weights: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    smoothing: float = 0.0,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """-log sum_s a_ns p(y_n | x_ns) of features x (N, S, D), without ever holding (N, S, V) logits.

    log_weights (N, S) are log a; mask (N, S) marks the components there are, at least one per row. weight (V, D), bias
    (V,), target y (N,) int64, chunk: as in `fused_cross_entropy`. Returns the loss summed over rows, and the negative
    log-likelihood (N,) in nats, which carries no gradient.

    The gradient is that of sum_s r_ns (-log a_ns - log p(y_n | x_ns)), with the posterior r_ns = p(s | y_n) as a
    constant (the identity behind EM). So a first pass computes posteriors, and a second one differentiates the
    components whose posterior the floating type can tell from 0, mostly few. With smoothing, each component's
    cross-entropy is smoothed, and its share stays the posterior.
    """
    place = mask.flatten().nonzero().squeeze(1)
    rows = features.flatten(0, 1).index_select(0, place)  # (M, D)
    targets = target.unsqueeze(1).expand(mask.shape).reshape(-1).index_select(0, place)
    logs = widened(log_weights)
    with torch.no_grad():
        _, nll = fused_cross_entropy(rows, weight, bias, targets, chunk=chunk)
        joint = torch.full_like(logs, -torch.inf).flatten()
        joint[place] = logs.flatten()[place] - nll.to(joint.dtype)
        joint = joint.view_as(logs)
        posterior = torch.softmax(joint, dim=1)
        entropy = -torch.where(posterior > 0, posterior * posterior.log(), 0.0).sum()
        shares = posterior.flatten()[place]
        likely = (shares > torch.finfo(shares.dtype).eps).nonzero().squeeze(1)
    loss, _ = fused_cross_entropy(
        *(rows.index_select(0, likely), weight, bias, targets[likely], smoothing, chunk), shares=shares[likely]
    )
    choice = -torch.where(mask, posterior * logs, 0.0).sum()
    return loss + choice - entropy, -torch.logsumexp(joint, dim=1)


def mixture_cross_entropy_reference(
    features: Tensor, log_weights: Tensor, mask: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute `mixture_cross_entropy` without smoothing from all logits, with the gradients that autograd derives."""
    log_probabilities = torch.log_softmax(F.linear(features, weight, bias), dim=2)  # (N, S, V)
    of_target = log_probabilities.gather(2, target.view(-1, 1, 1).expand(*mask.shape, 1)).squeeze(2)  # (N, S)
    joint = torch.where(mask, log_weights + of_target, -torch.inf)
    nll = -torch.logsumexp(joint, dim=1)
    return nll.sum(), nll.detach()

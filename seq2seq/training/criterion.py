"""The training loss: label-smoothed cross-entropy, the score-function term of hard attention, and R-Drop."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seq2seq.attention import reinforce_loss
from seq2seq.errors import UserError
from seq2seq.interfaces import DecoderOutput, OutputLayer, PositionMixture, SampledAttention
from seq2seq.kernels.cross_entropy import fused_cross_entropy
from seq2seq.kernels.mixture_cross_entropy import mixture_cross_entropy
from seq2seq.kernels.symmetric_divergence import symmetric_divergence

ENTROPY_WEIGHT = 0.01
"""Weight of the attention's entropy in the REINFORCE term."""
EXPECTED_SHARE = 0.5
"""Share of the loss under the expected context, where attention was sampled (Xu et al. 2015, section 4.1)."""


@dataclass(frozen=True)
class Loss:
    """Sums over the real target tokens of a batch: what is minimised, the plain NLL (nats) and the token count."""

    loss: Tensor
    nll: Tensor
    tokens: Tensor


class Criterion(nn.Module):
    """Training loss: label-smoothed cross-entropy over real tokens. Where attention was sampled, it is

        (1 - EXPECTED_SHARE) (cross-entropy + REINFORCE) + EXPECTED_SHARE (cross-entropy under the expected context).

    The REINFORCE term is `attention.reinforce_loss` with a token's own log-likelihood as reward and its log-likelihood
    under the expected context as baseline (Deng et al. 2018, section 4). The baseline is as good or bad as the token is
    easy or hard, so that what remains is due to the choice. Later tokens are no part of the reward: without input
    feeding they do not depend on the choice and the gradient is unbiased; with it the choice's effect on them is left
    out. The expected context stands for the half of the time in which Xu et al. attend softly; it shows the scores
    every position before they favor one.

    Where a word's distribution is a mixture over positions, the loss is the mixture's (`mixture_cross_entropy`).

    r_drop, if positive, is the weight alpha of R-Drop (Liang et al. 2021, equation 4): a training batch holds each pair
    twice, the copies after the originals, with different dropout, and the loss adds alpha / 2 times the symmetric
    Kullback-Leibler divergence of their output distributions. All of it is halved, so that a pair counts once.
    """

    def __init__(self, smoothing: float = 0.1, r_drop: float = 0.0) -> None:
        super().__init__()
        if not 0 <= smoothing < 1:
            raise UserError(f"label_smoothing must be at least 0 and below 1, got {smoothing}")
        if not 0 <= r_drop < math.inf:
            raise UserError(f"r_drop must be at least 0, got {r_drop}")
        self.smoothing = smoothing
        self.r_drop = r_drop

    @property
    def twice(self) -> bool:
        """True where a batch must hold each pair twice (see `r_drop`)."""
        return self.training and self.r_drop > 0

    def forward(self, decoded: DecoderOutput, output: OutputLayer, target: Tensor, mask: Tensor) -> Loss:
        """decoded: features (B, T, D) and any sampling record; target (B, T) ids, mask (B, T) real tokens."""
        rows = mask.flatten().nonzero().squeeze(1)
        target = target.flatten().index_select(0, rows)
        smoothing = self.smoothing if self.training else 0.0

        def cross_entropy(features: Tensor) -> tuple[Tensor, Tensor]:
            features = features.flatten(0, 1).index_select(0, rows)
            return fused_cross_entropy(features, output.weight, output.bias, target, smoothing)

        if decoded.mixture is not None:
            loss, nll = self._marginal(decoded.mixture, output, target, rows, smoothing)
            return Loss(loss, nll.sum(), mask.sum())
        loss, nll = cross_entropy(decoded.features)
        if decoded.sampling is not None and decoded.expected is not None and self.training:
            expected_loss, expected_nll = cross_entropy(decoded.expected)
            sampling = SampledAttention(
                decoded.sampling.log_probability.flatten().index_select(0, rows),
                decoded.sampling.entropy.flatten().index_select(0, rows),
            )
            sampled_loss = loss + reinforce_loss(sampling, -nll, -expected_nll, ENTROPY_WEIGHT)
            loss = torch.lerp(sampled_loss, expected_loss, EXPECTED_SHARE)
        if self.twice:
            one, other = decoded.features.flatten(0, 1).index_select(0, rows).chunk(2)
            loss = loss + self.r_drop / 2 * symmetric_divergence(one, other, output.weight, output.bias)
            return Loss(loss / 2, nll.sum() / 2, mask.sum() // 2)
        return Loss(loss, nll.sum(), mask.sum())

    def _marginal(
        self, mixture: PositionMixture, output: OutputLayer, target: Tensor, rows: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """target (N,) at flat positions rows (N,) -> loss, negative log-likelihood (N,)."""
        features, log_weights, mask = (
            each.expand(*mixture.log_weights.shape, *each.shape[3:]).flatten(0, 1).index_select(0, rows)
            for each in (mixture.features, mixture.log_weights, mixture.mask)
        )
        return mixture_cross_entropy(features, log_weights, mask, output.weight, output.bias, target, smoothing)


def token_nll(decoded: DecoderOutput, output: OutputLayer, target: Tensor, mask: Tensor) -> Tensor:
    """Negative log-likelihood (B, T) in nats of each target token, zero at padding; no gradient."""
    rows = mask.flatten().nonzero().squeeze(1)
    with torch.no_grad():
        features = decoded.features.flatten(0, 1).index_select(0, rows)
        _, nll = fused_cross_entropy(features, output.weight, output.bias, target.flatten().index_select(0, rows))
        return nll.new_zeros(mask.numel()).index_copy_(0, rows, nll).view(mask.shape)

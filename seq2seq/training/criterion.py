"""The training loss: label-smoothed cross-entropy, and the score-function term of hard attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seq2seq.attention import reinforce_loss, reward_to_go
from seq2seq.errors import UserError
from seq2seq.interfaces import DecoderOutput, OutputLayer, SampledAttention
from seq2seq.kernels.cross_entropy import fused_cross_entropy

ENTROPY_WEIGHT = 0.01
"""Of the attention's entropy in the REINFORCE term."""
BASELINE_DECAY = 0.9
"""What each batch leaves of the moving average that is REINFORCE's baseline."""


@dataclass(frozen=True)
class Loss:
    """Sums over the real target tokens of a batch: what is minimised, the plain NLL (nats) and the token count."""

    loss: Tensor
    nll: Tensor
    tokens: Tensor


class Criterion(nn.Module):
    """Training loss: label-smoothed cross-entropy over real tokens, plus REINFORCE where attention was sampled.

    The REINFORCE term is `attention.reinforce_loss` with the log-likelihood of this and all later tokens as reward,
    and a moving average of the log-likelihood of a token, times the tokens to come, as baseline. The average is part of
    the state.
    """

    baseline: Tensor

    def __init__(self, smoothing: float = 0.1) -> None:
        super().__init__()
        if not 0 <= smoothing < 1:
            raise UserError(f"label_smoothing must be at least 0 and below 1, got {smoothing}")
        self.smoothing = smoothing
        self.register_buffer("baseline", torch.tensor(float("nan")))

    def forward(self, decoded: DecoderOutput, output: OutputLayer, target: Tensor, mask: Tensor) -> Loss:
        """decoded: features (B, T, D) and any sampling record; target (B, T) ids, mask (B, T) real tokens."""
        rows = mask.flatten().nonzero().squeeze(1)
        features = decoded.features.flatten(0, 1).index_select(0, rows)
        target = target.flatten().index_select(0, rows)
        smoothing = self.smoothing if self.training else 0.0
        loss, nll = fused_cross_entropy(features, output.weight, output.bias, target, smoothing)
        if decoded.sampling is not None and self.training:
            loss = loss + self._reinforce(decoded.sampling, -_unpacked(nll, rows, mask), mask)
        return Loss(loss, nll.sum(), mask.sum())

    def _reinforce(self, sampling: SampledAttention, reward: Tensor, mask: Tensor) -> Tensor:
        """reward (B, T): each token's log-likelihood."""
        tokens = mask.to(reward.dtype)
        mean = reward.sum() / tokens.sum().clamp(min=1)
        baseline = torch.where(self.baseline.isnan(), mean, self.baseline)
        moved = baseline + (1 - BASELINE_DECAY) * (mean - baseline)
        self.baseline.copy_(torch.where(mean.isfinite(), moved, self.baseline))  # an update that is skipped leaves it
        return reinforce_loss(
            sampling,
            reward_to_go(reward, mask),
            reward_to_go(tokens, mask) * baseline,
            ENTROPY_WEIGHT,
            mask,
        )


def token_nll(decoded: DecoderOutput, output: OutputLayer, target: Tensor, mask: Tensor) -> Tensor:
    """Negative log-likelihood (B, T) in nats of each target token, zero at padding; no gradient."""
    rows = mask.flatten().nonzero().squeeze(1)
    with torch.no_grad():
        features = decoded.features.flatten(0, 1).index_select(0, rows)
        _, nll = fused_cross_entropy(features, output.weight, output.bias, target.flatten().index_select(0, rows))
        return _unpacked(nll, rows, mask)


def _unpacked(values: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    """values (N,) of the real tokens at flat positions `rows` -> (B, T), zero elsewhere."""
    return values.new_zeros(mask.numel()).index_copy_(0, rows, values).view(mask.shape)

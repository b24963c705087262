"""The Monte Carlo (REINFORCE) gradient of hard attention."""

from __future__ import annotations

import torch
from torch import Tensor

from seq2seq.interfaces import SampledAttention


def reinforce_loss(
    sampling: SampledAttention,
    reward: Tensor,
    baseline: Tensor | float = 0.0,
    entropy_weight: float = 0.0,
    mask: Tensor | None = None,
) -> Tensor:
    """Scalar to add to the loss, so that minimising it follows Xu et al. 2015, section 4.1:

        -sum_t [(R_t - b_t) log p(s_t) + entropy_weight H_t]

    Its value means nothing; its gradient, averaged over samples, is that of -E[reward] with respect to the attention
    weights (the gradient through everything else comes from the likelihood itself), minus the entropy's. Sampled s_t,
    log-probabilities and entropies are those of `sampling` (B, T). reward (B, T) is treated as constant. It must hold
    all that depends on s_t: in a recurrent decoder, the log-likelihood of this and all later tokens (`reward_to_go`).
    baseline, broadcastable to (B, T), must not depend on s_t: it lowers the variance and leaves the mean. mask (B, T)
    tells real tokens. The sum is over them, so divide by whatever the likelihood is divided by.
    """
    advantage = (reward - baseline).detach() if isinstance(baseline, Tensor) else reward.detach() - baseline
    gain = advantage * sampling.log_probability + entropy_weight * sampling.entropy
    if mask is not None:
        gain = torch.where(mask, gain, 0.0)
    return -gain.sum()


def reward_to_go(token_rewards: Tensor, mask: Tensor | None = None) -> Tensor:
    """Sum of each token's reward and those of all later real tokens: (B, T) -> (B, T), detached."""
    rewards = token_rewards.detach()
    if mask is not None:
        rewards = torch.where(mask, rewards, 0.0)
    return rewards.flip(1).cumsum(1).flip(1)

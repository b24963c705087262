"""Monte Carlo (REINFORCE) gradient of hard attention."""

from __future__ import annotations

from torch import Tensor

from seq2seq.interfaces import SampledAttention


def reinforce_loss(
    sampling: SampledAttention, reward: Tensor, baseline: Tensor | float = 0.0, entropy_weight: float = 0.0
) -> Tensor:
    """Scalar to add to the loss, so that minimizing it follows Xu et al. 2015, section 4.1:

        -sum [(R - b) log p(s) + entropy_weight H]

    Its value means nothing; its gradient, averaged over samples, is that of -E[reward] with respect to the attention
    weights (the gradient through everything else comes from the likelihood itself), minus the entropy's. Choices s,
    log-probabilities and entropies are those of `sampling`. reward, one for each choice, is treated as constant; the
    gradient is unbiased if it holds all that depends on the choice. baseline, broadcastable to it, must not depend on
    the choice: it lowers the variance and leaves the mean. The sum is over all choices, so divide by whatever the
    likelihood is divided by.
    """
    advantage = (reward - baseline).detach()
    return -(advantage * sampling.log_probability + entropy_weight * sampling.entropy).sum()

"""Alignments, which decide where a query looks and with what weights. Any score combines with any alignment.

Every alignment is called with (score, query (B, Q, Dq), memory, position (B, Q) int64) and returns an
`AttentionOutput` whose weights are (B, Q, S), exactly zero wherever it did not look.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seq2seq.attention.masks import masked_log_softmax, masked_softmax
from seq2seq.attention.memory import AttentionMemory
from seq2seq.attention.scores import Score
from seq2seq.errors import UserError
from seq2seq.interfaces import AttentionOutput, SampledAttention
from seq2seq.kernels.precision import widened


class Alignment(nn.Module):
    """Base of the alignments. position (B, Q) is each query's own index in the target."""

    def forward(self, score: Score, query: Tensor, memory: AttentionMemory, position: Tensor) -> AttentionOutput:
        raise NotImplementedError


class SoftAlignment(Alignment):
    """Global alignment: a = softmax(score), context = sum_s a_s v_s over the source (Bahdanau et al. 2015, eq. 5-6)."""

    def forward(self, score: Score, query: Tensor, memory: AttentionMemory, position: Tensor) -> AttentionOutput:
        weights = masked_softmax(score(query, memory.keys), memory.query_mask)
        return AttentionOutput(torch.bmm(weights, memory.values), weights)


class UnnormalizedAlignment(Alignment):
    """Global alignment without softmax: a = score, so weights may be negative and need not sum to one."""

    def forward(self, score: Score, query: Tensor, memory: AttentionMemory, position: Tensor) -> AttentionOutput:
        weights = torch.where(memory.query_mask, score(query, memory.keys), 0.0)
        return AttentionOutput(torch.bmm(weights, memory.values), weights)


class LocalMonotonicAlignment(Alignment):
    """Monotonic local alignment ("local-m"): softmax over [p - D, p + D], p = t (Luong et al. 2015, section 3.2).

    The window is cut at the sentence's edges. Past the end of the source, p stays at its last position. Only the
    window's keys and values are read.
    """

    def __init__(self, window: int):
        super().__init__()
        if window < 0:
            raise UserError(f"LocalMonotonicAlignment: window must be 0 or more, got {window}")
        self.window = window

    def forward(self, score: Score, query: Tensor, memory: AttentionMemory, position: Tensor) -> AttentionOutput:
        center = torch.minimum(position, memory.lengths - 1)
        offsets = torch.arange(-self.window, self.window + 1, device=position.device)
        index = center.unsqueeze(-1) + offsets  # (B, Q, W)
        inside = (index >= 0) & (index < memory.lengths.unsqueeze(-1))
        return _attend_window(score, query, memory, index, inside, None)


class LocalPredictiveAlignment(Alignment):
    """Predictive local alignment ("local-p", Luong et al. 2015, equations 9-10).

    p = S sigmoid(scale v^T tanh(W q)), S the sentence's own length; the weights are softmax(score) over the integers of
    [p - D, p + D], times exp(-(s - p)^2 / (2 sigma^2)), sigma = D / 2.

    The window is cut at the sentence's edges. W and v learn through the Gaussian. Only the window's keys and values
    are read.

    Positions are hard to learn, for three reasons (measured on the built-in grammar, sources of up to 70 words):

    - The sigmoid saturates. Adam moves each of v's entries by the learning rate, whatever its gradient, so that a
      hundred of them carry a position across the sentence in a few updates, before the decoder reads anything there.
      v therefore starts near zero, with every window in the middle, and is multiplied by `scale`, such as
      1 / sqrt(width). In sources of 40 tokens or more p_t and t correlate by -0.6 at scale 1, and by 0.9 at 0.07.
    - A window that misses teaches nothing: words outside p - D .. p + D pass no gradient to p.
    - p / S must be accurate to D / S, so long sentences demand the most precision. D = 10 is too narrow for
      70 words: centers learn to stay between a quarter and three quarters of the sentence. D = 20 is enough.

    scale is 1 in bundles of version 0.1.0.
    """

    def __init__(self, query_width: int, width: int, window: int, scale: float = 1.0):
        super().__init__()
        if min(query_width, width) < 1:
            raise UserError(f"LocalPredictiveAlignment: widths must be positive, got {query_width} and {width}")
        if window < 1:
            raise UserError(f"LocalPredictiveAlignment: window must be 1 or more, got {window}")
        if not scale > 0:
            raise UserError(f"LocalPredictiveAlignment: scale must be positive, got {scale}")
        self.window = window
        self.scale = scale
        self.hidden = nn.Linear(query_width, width, bias=False)
        self.vector = nn.Linear(width, 1, bias=False)
        nn.init.uniform_(self.vector.weight, -0.001, 0.001)

    def center(self, query: Tensor, lengths: Tensor) -> Tensor:
        """query (B, Q, Dq), lengths (B, 1) or (B, Q) -> p (B, Q), in float32 or wider."""
        logit: Tensor = self.vector(torch.tanh(self.hidden(query))).squeeze(-1)
        return lengths * torch.sigmoid(self.scale * widened(logit))

    def forward(self, score: Score, query: Tensor, memory: AttentionMemory, position: Tensor) -> AttentionOutput:
        center = self.center(query, memory.lengths).unsqueeze(-1)
        first = torch.ceil(center.detach() - self.window).long()
        index = first + torch.arange(2 * self.window + 1, device=first.device)  # (B, Q, W)
        distance = index - center
        inside = (index >= 0) & (index < memory.lengths.unsqueeze(-1)) & (distance.abs() <= self.window)
        gaussian = torch.exp(distance.square() * (-2 / self.window**2))
        return _attend_window(score, query, memory, index, inside, gaussian)


class HardAlignment(Alignment):
    """Attends exactly one position: sampled from softmax(score) in training, the best one in evaluation
    (Xu et al. 2015, section 4.1).

    estimator "reinforce": the choice passes no gradient; the output's `sampling` and `expected` context go to the
    training loss (`training.criterion.Criterion`).
    estimator "straight_through": forward the sampled position, backward as if it were the soft weights (Bengio et al.
    2013); no `sampling` is returned. Samples come from torch's global generator.
    """

    def __init__(self, estimator: str = "reinforce"):
        super().__init__()
        if estimator not in ("reinforce", "straight_through"):
            raise UserError(f"HardAlignment: estimator must be reinforce or straight_through, got {estimator!r}")
        self.estimator = estimator

    def forward(self, score: Score, query: Tensor, memory: AttentionMemory, position: Tensor) -> AttentionOutput:
        scores = score(query, memory.keys)
        mask = memory.query_mask
        if not self.training:
            choice = torch.where(mask, scores, -torch.inf).argmax(-1, keepdim=True)
            return _attend_one(choice, mask, memory.values, scores.dtype)
        if self.estimator == "straight_through":
            weights = masked_softmax(scores, mask)
            hard = _one_hot(_sample(weights), mask, weights.dtype)
            weights = hard + (weights - weights.detach())
            return AttentionOutput(torch.bmm(weights, memory.values), weights)
        logs = masked_log_softmax(scores, mask)
        probabilities = torch.where(mask, logs.exp(), 0.0)
        choice = _sample(probabilities)
        output = _attend_one(choice, mask, memory.values, scores.dtype)
        sampling = SampledAttention(
            log_probability=logs.gather(-1, choice).squeeze(-1), entropy=-(probabilities * logs).sum(-1)
        )
        expected = torch.bmm(probabilities.to(memory.values.dtype), memory.values)
        return AttentionOutput(output.context, output.weights, sampling, expected)


class HardMarginalAlignment(Alignment):
    """Marginal hard attention: p(y_t) = sum_s a_ts p(y_t | v_s), a = softmax(score), without sampling (Wu, Shapiro and
    Cotterell 2018, equation 4).

    Training maximizes this mixture exactly. It costs one prediction per source position. Evaluation predicts from the
    best position alone, as `HardAlignment` does, at the cost of soft attention; that needs weights which favor one, so
    the uniform score does not serve. Where the context enters the recurrence
    (Bahdanau's decoder, the conditional GRU, input feeding), it is the expected one in training and evaluation, so that
    the mixture stays a sum over S positions instead of S^T paths; the paper's decoder has no such input.
    """

    def forward(self, score: Score, query: Tensor, memory: AttentionMemory, position: Tensor) -> AttentionOutput:
        scores, mask = score(query, memory.keys), memory.query_mask
        logs = masked_log_softmax(scores, mask)
        weights = torch.where(mask, logs.exp(), 0.0).to(scores.dtype)
        context = torch.bmm(weights, memory.values)
        if self.training:
            return AttentionOutput(context, weights, log_weights=logs)
        choice = torch.where(mask, scores, -torch.inf).argmax(-1, keepdim=True)
        best = _attend_one(choice, mask, memory.values, scores.dtype).context
        return AttentionOutput(context, weights, best=best)


def _attend_window(
    score: Score, query: Tensor, memory: AttentionMemory, index: Tensor, inside: Tensor, factor: Tensor | None
) -> AttentionOutput:
    """Soft attention over positions index (B, Q, W) where `inside` holds; softmax weights are multiplied by factor."""
    batch, queries, _ = index.shape
    size = memory.values.shape[1]
    index = index.clamp(0, size - 1)
    inside = inside & memory.query_mask.expand(batch, queries, size).gather(-1, index)
    window = masked_softmax(score(query, _gather(memory.keys, index)), inside)
    if factor is not None:
        window = window * factor.to(window.dtype)
    context = torch.matmul(window.unsqueeze(2), _gather(memory.values, index)).squeeze(2)
    # Positions clamped to an edge carry weight 0, so adding (not writing) keeps the edge's own weight.
    weights = window.new_zeros(batch, queries, size).scatter_add(-1, index, window)
    return AttentionOutput(context, weights)


def _attend_one(choice: Tensor, mask: Tensor, values: Tensor, dtype: torch.dtype) -> AttentionOutput:
    """Context and one-hot weights of choice (B, Q, 1); zeros where nothing may be attended."""
    allowed = mask.expand(*choice.shape[:2], mask.shape[-1]).gather(-1, choice)
    context = torch.where(allowed, _gather(values, choice).squeeze(2), 0.0)
    return AttentionOutput(context, _one_hot(choice, mask, dtype))


def _one_hot(choice: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """choice (B, Q, 1) -> (B, Q, S), all zero where the choice is masked."""
    chosen = torch.arange(mask.shape[-1], device=mask.device) == choice
    return (chosen & mask).to(dtype)


def _sample(weights: Tensor) -> Tensor:
    """One position (B, Q, 1) from weights (B, Q, S), as the winner of an exponential race: weight 0 never wins."""
    race = torch.empty_like(weights, dtype=torch.float32).exponential_()
    return (weights.detach().float() / race).argmax(-1, keepdim=True)


def _gather(values: Tensor, index: Tensor) -> Tensor:
    """values (B, S, D), index (B, Q, W) -> (B, Q, W, D)."""
    batch, size, width = values.shape
    rows = index + size * torch.arange(batch, device=index.device).view(-1, 1, 1)
    return values.reshape(batch * size, width).index_select(0, rows.flatten()).view(*index.shape, width)

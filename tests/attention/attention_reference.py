"""Oracle for seq2seq.attention: its equations in plain loops, one number at a time."""

import torch
from torch import nn

from seq2seq.attention import (
    AdditiveScore,
    DotScore,
    GaussianScore,
    GeneralScore,
    HardAlignment,
    HardMarginalAlignment,
    LocalMonotonicAlignment,
    LocalPredictiveAlignment,
    ScaledDotScore,
    SoftAlignment,
    UniformScore,
    UnnormalizedAlignment,
)

WIDTH = 4
SCORES = {
    "additive": lambda: AdditiveScore(WIDTH, WIDTH, 3),
    "dot": DotScore,
    "scaled_dot": lambda: ScaledDotScore(WIDTH),
    "general": lambda: GeneralScore(WIDTH, WIDTH),
    "gaussian": lambda: GaussianScore(1.5),
    "gaussian_learned": lambda: GaussianScore(0.7, learned=True),
    "uniform": UniformScore,
}
ALIGNMENTS = {
    "soft": SoftAlignment,
    "unnormalized": UnnormalizedAlignment,
    "local_monotonic": lambda: LocalMonotonicAlignment(1),
    "local_predictive": lambda: LocalPredictiveAlignment(WIDTH, 5, 2),
    "hard": lambda: HardAlignment().eval(),
    "hard_marginal": HardMarginalAlignment,
}


def reference_score(score: nn.Module, q, k):
    """Score of one query and one raw key."""
    if isinstance(score, AdditiveScore):
        total = 0.0
        for a in range(len(score.vector)):
            total = total + score.vector[a] * torch.tanh(
                (score.query.weight[a] * q).sum() + (score.key.weight[a] * k).sum()
            )
        return total
    if isinstance(score, DotScore):
        return sum(q[i] * k[i] for i in range(len(q)))
    if isinstance(score, ScaledDotScore):
        return sum(q[i] * k[i] for i in range(len(q))) / len(q) ** 0.5
    if isinstance(score, GeneralScore):
        return sum(q[i] * score.key.weight[i, j] * k[j] for i in range(len(q)) for j in range(len(k)))
    if isinstance(score, GaussianScore):
        return -sum((q[i] - k[i]) ** 2 for i in range(len(q))) / (2 * score.width**2)
    assert isinstance(score, UniformScore)
    return 0.0 * q.sum()


def reference_softmax(scores):
    """Softmax of a list of scalars."""
    top = max(float(score.detach()) for score in scores)
    parts = [torch.exp(score - top) for score in scores]
    return [part / sum(parts) for part in parts]


def reference_attention(score, alignment, query, keys, values, mask, position):
    """Context (B, Q, Dv) and weights (B, Q, S) of every (query, source position) pair in turn."""
    contexts, rows = [], []
    for b in range(query.shape[0]):
        real = [s for s in range(keys.shape[1]) if mask[b, s]]
        length = real[-1] + 1 if real else 0
        for t in range(query.shape[1]):
            q = query[b, t]
            weights = reference_weights(score, alignment, q, keys[b], real, length, int(position[b, t]))
            row = [weights.get(s, torch.zeros((), dtype=q.dtype)) for s in range(keys.shape[1])]
            rows.append(torch.stack(row))
            contexts.append(sum(row[s] * values[b, s] for s in range(keys.shape[1])))
    shape = query.shape[:2]
    return torch.stack(contexts).view(*shape, -1), torch.stack(rows).view(*shape, -1)


def reference_weights(score, alignment, q, keys, real, length, t):
    """{position: weight} of one query."""
    seen, factors = real, {}
    if isinstance(alignment, LocalMonotonicAlignment):
        center = min(t, length - 1)
        seen = [s for s in real if center - alignment.window <= s <= center + alignment.window]
    if isinstance(alignment, LocalPredictiveAlignment):
        p = length * torch.sigmoid(alignment.vector.weight[0] @ torch.tanh(alignment.hidden.weight @ q))
        low, high = float(p.detach()) - alignment.window, float(p.detach()) + alignment.window
        seen = [s for s in real if low <= s <= high]
        sigma = alignment.window / 2
        factors = {s: torch.exp(-((s - p) ** 2) / (2 * sigma**2)) for s in seen}
    if not seen:
        return {}
    scores = [reference_score(score, q, keys[s]) for s in seen]
    if isinstance(alignment, UnnormalizedAlignment):
        return dict(zip(seen, scores, strict=True))
    if isinstance(alignment, HardAlignment):
        best = max(range(len(seen)), key=lambda i: float(scores[i].detach()))
        return {seen[best]: torch.ones((), dtype=q.dtype)}
    return {s: w * factors.get(s, 1.0) for s, w in zip(seen, reference_softmax(scores), strict=True)}

"""Scores of given translations, as a search would report them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from seq2seq.attention import lengths_to_mask
from seq2seq.interfaces import BOS, EOS, PAD, Model
from seq2seq.search.penalties import Coverage, Ranking
from seq2seq.search.steps import LogProbabilities, mean_probability, start_decoding


@dataclass(frozen=True)
class Scored:
    """token_log_probabilities: one per token, EOS last; log_probability: their sum; score: see `Ranking`."""

    tokens: list[int]
    token_log_probabilities: list[float]
    log_probability: float
    score: float


@torch.inference_mode()
def score_pairs(
    models: Model | Sequence[Model], ranking: Ranking, source: Tensor, mask: Tensor, targets: Sequence[Sequence[int]]
) -> list[Scored]:
    """Force-decode targets (token ids without BOS and EOS) as finished hypotheses of source (B, S), mask (B, S).

    `ranking` is the search's (`search.ranking`). Several models are an ensemble. Models must be in eval mode.
    """
    models = models if isinstance(models, Sequence) else [models]
    if not targets:
        return []
    rows = [torch.tensor([BOS, *target], dtype=torch.long) for target in targets]
    target_in = pad_sequence(rows, batch_first=True, padding_value=PAD).to(source.device)
    ends = [torch.tensor([*target, EOS], dtype=torch.long) for target in targets]
    target_out = pad_sequence(ends, batch_first=True, padding_value=PAD).to(source.device)
    lengths = torch.tensor([len(row) for row in rows], device=source.device)
    target_mask = lengths_to_mask(lengths, target_in.shape[1])
    penalty: Tensor | float = 0.0
    if ranking.coverage_penalty:
        values, penalty = _by_steps(models, ranking, source, mask, target_in, target_out, lengths)
    else:
        values = _at_once(models, source, mask, target_in, target_out, target_mask)
    totals = values.double().masked_fill(~target_mask, 0).sum(1, keepdim=True)
    scores = ranking.score(totals, lengths[:, None], penalty)
    return [
        Scored(list(target), row[: len(target) + 1], total, score)
        for target, row, (total,), (score,) in zip(
            targets, values.tolist(), totals.tolist(), scores.tolist(), strict=True
        )
    ]


def _at_once(
    models: Sequence[Model], source: Tensor, mask: Tensor, target_in: Tensor, target_out: Tensor, target_mask: Tensor
) -> Tensor:
    """Return the log-probability of each target token (B, T), teacher-forced.

    Besides the features, memory holds the logits of one target position at a time.
    """
    features = [model.decode(target_in, model.encode(source, mask), target_mask).features for model in models]
    normalized = [LogProbabilities(model) for model in models]
    columns = []
    for place in range(target_in.shape[1]):
        parts = [
            of_model(own[:, place]).gather(-1, target_out[:, place, None])
            for of_model, own in zip(normalized, features, strict=True)
        ]
        columns.append(mean_probability(parts))
    return torch.cat(columns, 1)


def _by_steps(
    models: Sequence[Model],
    ranking: Ranking,
    source: Tensor,
    mask: Tensor,
    target_in: Tensor,
    target_out: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor | float]:
    """Return the same as `_at_once`, and the coverage penalty (B, 1), which needs each step's attention weights."""
    step, state = start_decoding(models, source, mask)
    coverage = Coverage(ranking, mask.sum(1))
    columns = []
    for place in range(target_in.shape[1]):
        log_probs, state, weights = step(target_in[:, place], state)
        columns.append(log_probs.gather(-1, target_out[:, place, None]))
        inside = (place < lengths)[:, None, None]
        coverage.add(None if weights is None else (weights * inside)[:, None])
    only = torch.zeros_like(target_in[:, :1])
    return torch.cat(columns, 1), coverage.penalty(only, True)

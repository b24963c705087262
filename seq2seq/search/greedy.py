"""Greedy search, and the loop that it shares with sampling: chains of tokens, each extended by one choice per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor

from seq2seq.interfaces import BOS, EOS, Hypothesis, Step
from seq2seq.search.candidates import best_tokens
from seq2seq.search.options import NEVER, Constraints, Options
from seq2seq.search.penalties import Coverage
from seq2seq.search.trace import Ending, Trace

LEAVE = 4
"""Finished sentences leave the batch once they are at least one in LEAVE, since leaving copies the others' cache."""

Choose = Callable[[Tensor, int, Tensor], Tensor]
"""Choice of tokens (A, K) from log-probabilities (A, K, V), length of the outputs so far, sentences' indices (A,)."""


@dataclass(frozen=True)
class GreedySearch(Options):
    """Greedy search: the most probable token at each step, until EOS. It equals a beam of 1.

    Length normalization and coverage penalty change the reported score only.
    """

    def __call__(
        self,
        step: Step,
        state: Any,
        source_lengths: Tensor,
        *,
        prefix: Sequence[Sequence[int]] | None = None,
        numbers: Sequence[int] | None = None,
        longest: int | None = None,
        with_weights: bool = False,
    ) -> list[list[Hypothesis]]:
        def choose(log_probs: Tensor, length: int, active: Tensor) -> Tensor:
            return best_tokens(log_probs)

        return run_chains(step, state, Constraints(self, source_lengths, prefix, longest), 1, choose, with_weights)


def run_chains(
    step: Step,
    state: Any,
    constraints: Constraints,
    chains: int,
    choose: Choose,
    with_weights: bool,
) -> list[list[Hypothesis]]:
    """Extend `chains` independent outputs of each of B sentences; return finished ones first, then best score first."""
    options, source_lengths = constraints.options, constraints.source_lengths
    sentences, device = len(source_lengths), source_lengths.device
    ranking = options.ranking
    coverage = Coverage(ranking, source_lengths)
    trace = Trace(sentences, source_lengths.tolist(), with_weights)
    endings: list[Ending] = []
    active = torch.arange(sentences, device=device)
    same = torch.arange(chains, device=device).expand(sentences, chains)
    if chains > 1:
        state = state.select(active[:, None].expand(sentences, chains))
    tokens = torch.full((sentences, chains), BOS, device=device)
    scores = torch.zeros(sentences, chains, dtype=torch.float64, device=device)
    alive = torch.ones(sentences, chains, dtype=torch.bool, device=device)
    history = tokens.new_empty(*tokens.shape, 0) if options.no_repeat_ngram else None
    for length in count() if sentences else ():
        log_probs, state, weights = step(tokens.flatten(), state)
        log_probs = log_probs.view(len(active), chains, -1)
        if weights is not None:
            weights = weights.view(len(active), chains, *weights.shape[1:])
        constraints.apply(log_probs, length, history)
        coverage.add(weights)
        tokens = choose(log_probs, length, active)
        totals = scores + log_probs.gather(-1, tokens[..., None]).squeeze(-1)
        trace.add(active, tokens, same, weights)
        possible = totals > NEVER
        finished = possible & (tokens == EOS)
        ended = alive & (finished | ~possible | constraints.at_limit(length)[:, None])
        if ended.any():
            steps = length + finished.long()
            sums = torch.where(finished, totals, scores)
            values = ranking.score(sums, steps, coverage.penalty(same, finished))
            for row, chain in ended.nonzero().tolist():
                place, last = (row, chain), int(steps[row, chain]) - 1
                endings.append(
                    Ending(
                        int(active[row]), last, chain, float(sums[place]), float(values[place]), bool(finished[place])
                    )
                )
            alive &= ~ended
        scores = totals
        coverage.advance(same)
        history = torch.cat([history, tokens[..., None]], -1) if history is not None else None
        if ended.any():
            kept = staying(alive.any(-1))
            if kept is None:
                continue
            if not len(kept):
                break
            same = same[: len(kept)]
            state = state.select(kept[:, None] * chains + same)
            constraints.keep(kept)
            coverage.keep(kept)
            active, alive, scores, tokens = active[kept], alive[kept], scores[kept], tokens[kept]
            history = history[kept] if history is not None else None
    endings.sort(key=lambda ending: (not ending.finished, -ending.score, ending.slot))
    return trace.hypotheses(endings)


def staying(live: Tensor) -> Tensor | None:
    """live (A,) -> indices of the sentences to keep, or None while too few have finished to copy the others' state."""
    remaining = int(live.sum())
    if remaining and (len(live) - remaining) * LEAVE < len(live):
        return None
    return live.nonzero().squeeze(1)

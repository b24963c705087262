"""Beam search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.interfaces import BOS, EOS, Hypothesis, Step
from seq2seq.search.candidates import best_candidates, best_tokens, diverse_candidates
from seq2seq.search.greedy import run_chains, staying
from seq2seq.search.options import NEVER, WIDEST, Constraints, Options, at_least, whole
from seq2seq.search.penalties import Coverage, Ranking, select_beams
from seq2seq.search.trace import Ending, Trace


@dataclass(frozen=True)
class BeamSearch(Options):
    """Beam search with a pool of finished hypotheses.

    At each step the beam_size best continuations of a sentence's live hypotheses are kept, by log-probability (all
    have the same length). Those that end in EOS move to the pool and are ranked by score (see `Ranking`); the others
    stay alive. So a beam of 1 is greedy search. A sentence's search ends when no hypothesis is alive, when the pool
    holds n_best hypotheses whose scores no live hypothesis can still exceed (`Ranking.bound`), or at the length limit.
    Unfinished hypotheses are returned only where finished ones are missing, after them. A greater n_best searches
    longer but never changes the hypotheses before it.

    diverse_groups > 1 splits the beam into groups that diversity_strength, which must then be above 0, keeps apart
    (see `diverse_candidates`); a hypothesis found by two groups is returned once.
    """

    beam_size: int = 5
    n_best: int = 1
    diverse_groups: int = 1
    diversity_strength: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beam_size", "n_best", "diverse_groups"):
            whole(name, getattr(self, name), 1, WIDEST)
        at_least("diversity_strength", self.diversity_strength, 0)
        if self.n_best > self.beam_size:
            raise UserError(f"search.n_best={self.n_best} exceeds search.beam_size={self.beam_size}; raise beam_size")
        if self.beam_size % self.diverse_groups:
            raise UserError(f"search.diverse_groups={self.diverse_groups} must divide beam_size={self.beam_size}")
        if (self.diverse_groups > 1) != (self.diversity_strength > 0):
            raise UserError(
                f"search.diverse_groups={self.diverse_groups} and diversity_strength={self.diversity_strength} "
                "go together: give more than one group and a strength above 0, or neither"
            )

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
        constraints = Constraints(self, source_lengths, prefix, longest)
        if self.beam_size == 1:
            return run_chains(step, state, constraints, 1, lambda scores, *_: best_tokens(scores), with_weights)
        return self.search(step, state, constraints, with_weights)

    def search(self, step: Step, state: Any, constraints: Constraints, with_weights: bool) -> list[list[Hypothesis]]:
        """Search with any beam_size (`__call__` uses the faster loop of greedy search for 1, with the same result)."""
        source_lengths = constraints.source_lengths
        sentences, device = len(source_lengths), source_lengths.device
        ranking = self.ranking
        coverage = Coverage(ranking, source_lengths)
        trace = Trace(sentences, source_lengths.tolist(), with_weights)
        pool = Pool.empty(sentences, self.n_best * self.diverse_groups, device)
        endings: list[Ending] = []
        active = torch.arange(sentences, device=device)
        searching = torch.ones(sentences, dtype=torch.bool, device=device)
        tokens = torch.full((sentences, 1), BOS, device=device)
        scores = torch.zeros(sentences, 1, dtype=torch.float64, device=device)
        history = tokens.new_empty(*tokens.shape, 0) if self.no_repeat_ngram else None
        for length in count() if sentences else ():
            log_probs, state, weights = step(tokens.flatten(), state)
            log_probs = log_probs.view(*scores.shape, -1)
            if weights is not None:
                weights = weights.view(*scores.shape, *weights.shape[1:])
            constraints.apply(log_probs, length, history)
            coverage.add(weights)
            totals, parents, tokens = self._candidates(log_probs, scores)
            trace.add(active, tokens, parents, weights)
            finished = (tokens == EOS) & (totals > NEVER)
            if finished.any():
                values = ranking.score(totals, length + 1, coverage.penalty(parents, True))
                pool = pool.add(values.masked_fill(~finished, NEVER), totals, length)
            live = totals.masked_fill(finished, NEVER)
            best = live.amax(-1)
            done = (
                (best == NEVER) | constraints.at_limit(length) | pool.beats(ranking.bound(best, constraints.limit + 1))
            )
            done &= searching
            if done.any():
                cut = Pool.cut(ranking, coverage, scores, parents, finished, length)
                for row in done.nonzero().flatten().tolist():
                    sentence = int(active[row])
                    endings += pool.endings(row, sentence, True) + cut.endings(row, sentence, False)
                searching &= ~done
                live[done] = NEVER
            coverage.advance(parents)
            history = self._extend(history, parents, tokens)
            kept = staying(searching) if done.any() else None
            if kept is None:
                rows = torch.arange(len(active), device=device)[:, None] * scores.shape[1] + parents
                scores = live
            elif not len(kept):
                break
            else:
                rows = kept[:, None] * scores.shape[1] + parents[kept]
                constraints.keep(kept)
                coverage.keep(kept)
                pool = pool.keep(kept)
                active, searching, scores, tokens = active[kept], searching[kept], live[kept], tokens[kept]
                history = history[kept] if history is not None else None
            state = state.select(rows)
        return [unique(found, self.n_best) for found in trace.hypotheses(endings)]

    def _candidates(self, log_probs: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.diverse_groups == 1:
            return best_candidates(log_probs, scores, self.beam_size)
        return diverse_candidates(log_probs, scores, self.beam_size, self.diverse_groups, self.diversity_strength)

    def _extend(self, history: Tensor | None, parents: Tensor, tokens: Tensor) -> Tensor | None:
        if history is None:
            return None
        return torch.cat([select_beams(history, parents), tokens[..., None]], -1)


class Pool(NamedTuple):
    """Best endings of A sentences so far, P each, best first; places not yet taken have score -inf.

    step is the step of an ending's last choice, slot the rank of that choice among the step's candidates.
    """

    score: Tensor  # (A, P) float64
    log_probability: Tensor  # (A, P) float64
    step: Tensor  # (A, P)
    slot: Tensor  # (A, P)

    @classmethod
    def empty(cls, sentences: int, size: int, device: torch.device) -> Pool:
        numbers = torch.zeros(sentences, size, dtype=torch.float64, device=device)
        return cls(numbers + NEVER, numbers, numbers.long(), numbers.long())

    @classmethod
    def cut(
        cls, ranking: Ranking, coverage: Coverage, scores: Tensor, parents: Tensor, finished: Tensor, length: int
    ) -> Pool:
        """Pool live hypotheses of `length` tokens, scores (A, K), that did not end at this step, best first."""
        sentences, beams = scores.shape
        slots = torch.arange(beams, device=scores.device).expand(sentences, beams)
        ended = torch.zeros_like(scores).scatter_add(1, parents, finished.double()) > 0
        values = ranking.score(scores, length, coverage.penalty(slots, False)).masked_fill(ended, NEVER)
        return cls.empty(sentences, 0, scores.device)._merge(values, scores, length - 1, slots, beams)

    def add(self, values: Tensor, log_probabilities: Tensor, step: int) -> Pool:
        """Add the K candidates of a step: values (A, K), -inf for those that have not finished."""
        slots = torch.arange(values.shape[1], device=values.device).expand_as(values)
        return self._merge(values, log_probabilities, step, slots, self.score.shape[1])

    def _merge(self, values: Tensor, log_probabilities: Tensor, step: int, slots: Tensor, size: int) -> Pool:
        score = torch.cat([self.score, values], 1)
        order = score.argsort(dim=1, descending=True, stable=True)[:, :size]
        return Pool(
            score.gather(1, order),
            torch.cat([self.log_probability, log_probabilities], 1).gather(1, order),
            torch.cat([self.step, torch.full_like(slots, step)], 1).gather(1, order),
            torch.cat([self.slot, slots], 1).gather(1, order),
        )

    def beats(self, bound: Tensor) -> Tensor:
        """bound (A,) -> (A,), True where all places are taken by scores of at least the bound."""
        return (self.score[:, -1] > NEVER) & (self.score[:, -1] >= bound)

    def keep(self, sentences: Tensor) -> Pool:
        return Pool(*(column[sentences] for column in self))

    def endings(self, row: int, sentence: int, finished: bool) -> list[Ending]:
        columns = (column[row].tolist() for column in (self.step, self.slot, self.log_probability, self.score))
        return [
            Ending(sentence, step, slot, log_probability, score, finished)
            for step, slot, log_probability, score in zip(*columns, strict=True)
            if score > NEVER
        ]


def unique(hypotheses: list[Hypothesis], count: int) -> list[Hypothesis]:
    """Return the first `count` hypotheses with different tokens."""
    found: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in hypotheses:
        found.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(found.values())[:count]

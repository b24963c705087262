"""Record of a search, from which hypotheses are read back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seq2seq.interfaces import EOS, Hypothesis


class Ending(NamedTuple):
    """End of a hypothesis of `sentence`, whose last choice was made at `step` (-1: none) and stored in `slot`."""

    sentence: int
    step: int
    slot: int
    log_probability: float
    score: float
    finished: bool


class Trace:
    """Choices of each step, as back-pointers.

    Nothing is copied while the search runs: tokens and parents stay as the step returned them, and weights are kept on
    request only.
    """

    def __init__(self, sentences: int, source_lengths: list[int], with_weights: bool) -> None:
        self.sentences = sentences
        self.source_lengths = source_lengths
        self.with_weights = with_weights
        self.active: list[Tensor] = []
        self.tokens: list[Tensor] = []
        self.parents: list[Tensor] = []
        self.weights: list[Tensor | None] = []

    def add(self, active: Tensor, tokens: Tensor, parents: Tensor, weights: Tensor | None) -> None:
        """Add a step. active (A,): indices of the sentences; tokens, parents (A, K): each choice and the slot of the
        step before that it continues; weights (A, K of the step before, H, S).
        """
        self.active.append(active)
        self.tokens.append(tokens)
        self.parents.append(parents)
        self.weights.append(weights if self.with_weights else None)

    def hypotheses(self, endings: list[Ending]) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, in the order of `endings`."""
        found: list[list[Hypothesis]] = [[] for _ in range(self.sentences)]
        if not endings:
            return found
        sentence = np.array([ending.sentence for ending in endings])
        last = np.array([ending.step for ending in endings])
        slot = np.array([ending.slot for ending in endings])
        steps = int(last.max()) + 1
        tokens = np.zeros((len(endings), steps), dtype=np.int64)
        rows = np.zeros((len(endings), steps), dtype=np.int64)
        slots = np.zeros((len(endings), steps), dtype=np.int64)
        place = np.zeros(self.sentences, dtype=np.int64)
        active: Tensor | None = None
        for step in reversed(range(steps)):
            if self.active[step] is not active:
                active = self.active[step]
                place[active.cpu().numpy()] = np.arange(len(active))
            inside = last >= step
            row, now = place[sentence[inside]], slot[inside]
            tokens[inside, step] = self.tokens[step].cpu().numpy()[row, now]
            before = self.parents[step].cpu().numpy()[row, now]
            slot[inside] = slots[inside, step] = before
            rows[inside, step] = row
        for number, ending in enumerate(endings):
            path = tokens[number, : ending.step + 1].tolist()
            if ending.finished and path[-1] == EOS:
                path.pop()
            weights = self._weights(rows[number], slots[number], ending) if self.with_weights else None
            found[ending.sentence].append(
                Hypothesis(path, ending.log_probability, ending.score, ending.finished, weights)
            )
        return found

    def _weights(self, rows: np.ndarray, slots: np.ndarray, ending: Ending) -> Tensor | None:
        size = self.source_lengths[ending.sentence]
        taken = []
        for step in range(ending.step + 1):
            weights = self.weights[step]
            if weights is None:
                return None
            taken.append(weights[rows[step], slots[step], :, :size])
        return torch.stack(taken).float().cpu() if taken else None

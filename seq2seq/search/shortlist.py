"""Shortlists: the tokens that the translation of each sentence may contain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from seq2seq.interfaces import EOS, PAD, Model


@dataclass(frozen=True)
class Shortlist:
    """Likely translations of each source token, from which the shortlist of a sentence is put together.

    candidates (source vocabulary, n) int32: most probable first, filled up with PAD. frequent (F,) int32: tokens that
    any translation may contain.
    """

    candidates: Tensor
    frequent: Tensor

    def first(self, count: int) -> Shortlist:
        """Return the shortlist of only `count` translations of each source token."""
        return Shortlist(self.candidates[:, :count], self.frequent)

    def tokens(self, source: Tensor, vocabulary: int, prefix: Sequence[Sequence[int]] | None = None) -> Tensor:
        """source (B, S) -> ids (B, L) of the tokens that each sentence's translation may contain, ascending.

        Rows begin with PAD, UNK, BOS and EOS, so that these stand at their own ids, hold the tokens of a forced prefix,
        and are filled up with PAD.
        """
        device = source.device
        allowed = torch.zeros(len(source), vocabulary, dtype=torch.bool, device=device)
        allowed[:, : EOS + 1] = True
        allowed[:, self.frequent.to(device).long()] = True
        likely = self.candidates.to(device)[source].long().masked_fill((source == PAD)[..., None], PAD)
        allowed.scatter_(1, likely.flatten(1), True)
        for row, forced in zip(allowed, prefix or (), strict=False):
            row[list(forced)] = True
        sizes = allowed.sum(1, keepdim=True)
        ids = torch.full((len(source), int(sizes.max())), PAD, device=device)
        ids[torch.arange(ids.shape[1], device=device) < sizes] = allowed.nonzero()[:, 1]
        return ids


@dataclass(frozen=True)
class Columns:
    """Columns of a restricted search: those of a sentence stand for the tokens of its own list.

    tokens (A, L): the token of each column, see `Shortlist.tokens`. union (U,): all of these. places (A, L): where each
    stands in the union, U at the end of shorter lists.
    """

    tokens: Tensor
    union: Tensor
    places: Tensor

    @classmethod
    def of(cls, tokens: Tensor) -> Columns:
        union, places = tokens.unique(return_inverse=True)
        after = tokens == PAD
        after[:, PAD] = False
        return cls(tokens, union, places.masked_fill(after, len(union)))

    def keep(self, sentences: Tensor) -> Columns:
        return Columns(self.tokens[sentences], self.union, self.places[sentences])

    def find(self, prefix: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the columns of tokens, sentence by sentence."""
        return [
            (torch.tensor(list(own)).to(row)[:, None] == row).int().argmax(1).tolist()
            for row, own in zip(self.tokens, prefix, strict=True)
        ]


@dataclass(frozen=True)
class ListedState:
    """State of a `ListedModel` with `beams` rows a sentence. state: the model's own."""

    state: Any
    columns: Columns
    beams: int = 1

    def select(self, rows: Tensor) -> ListedState:
        left = len(rows) < len(self.columns.tokens)
        columns = self.columns.keep(rows[:, 0] // self.beams) if left else self.columns
        return ListedState(self.state.select(rows), columns, rows.shape[1])


class ListedModel:
    """Steps of a model in a search over `columns`: its tokens are columns, its features already logits (N, L).

    One product with the union's weights serves all sentences; each then takes those of its own list. Its memory is used
    again in each step.
    """

    def __init__(self, model: Model, columns: Columns) -> None:
        self.model = model
        self.weight = pad(model.output.weight[columns.union], (0, 0, 0, 1)).t()
        self.bias = pad(model.output.bias[columns.union], (0, 1), value=-torch.inf)
        self._memory = self.bias.new_empty(0, len(self.bias))

    def step(self, tokens: Tensor, state: ListedState) -> tuple[Tensor, ListedState, Tensor | None]:
        columns = state.columns
        sentences = len(columns.tokens)
        ids = columns.tokens.gather(1, tokens.view(sentences, -1)).flatten()
        features, own, weights = self.model.step(ids, state.state)
        if len(self._memory) < len(features):
            self._memory = features.new_empty(len(features), len(self.bias))
        logits = torch.addmm(self.bias, features, self.weight, out=self._memory[: len(features)])
        logits = logits.view(sentences, -1, len(self.bias))
        logits = logits.gather(2, columns.places[:, None].expand(-1, logits.shape[1], -1))
        return logits.flatten(0, 1), ListedState(own, columns, state.beams), weights

    def logits(self, features: Tensor, out: Tensor | None = None) -> Tensor:
        return features

"""Parts of the recurrent models: source reader, initial state, further inputs, readout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.interfaces import AttentionOutput, SampledAttention
from seq2seq.kernels.dropout import Dropout
from seq2seq.kernels.product import Linear, linear
from seq2seq.layers.embedding import Embedding
from seq2seq.layers.recurrent import LayerState, RecurrentEncoder, RecurrentLayer

LayerStates = tuple[LayerState, ...]
"""One `LayerState` for each layer, from the bottom up."""


@dataclass(frozen=True)
class RecurrentMemory:
    """values (B, S, D), unspecified but finite at padding; each layer's final state; mask (B, S)."""

    values: Tensor
    final: LayerStates
    mask: Tensor


class SourceReader(nn.Module):
    """Embedding and encoder: source (B, S), mask (B, S) -> `RecurrentMemory`. Dropout acts on embeddings."""

    def __init__(self, embedding: Embedding, encoder: RecurrentEncoder, dropout: float) -> None:
        super().__init__()
        self.embedding = embedding
        self.dropout = Dropout(dropout)
        self.encoder = encoder

    def forward(self, source: Tensor, mask: Tensor) -> RecurrentMemory:
        values, final = self.encoder(self.dropout(self.embedding(source)), mask)
        return RecurrentMemory(values, final, mask)


class InitialState(nn.Module):
    """Decoder's first state from a summary c of the source: tanh(W c + b), one W for each tensor of each layer's state.

    summary (B, C) -> `LayerStates` (Cho et al. 2014, appendix; Bahdanau et al. 2015, appendix A.2.2).
    """

    def __init__(self, summary_width: int, width: int, layers: int, tensors: int) -> None:
        super().__init__()
        self.layers, self.tensors = layers, tensors
        self.projection = Linear(summary_width, layers * tensors * width)

    def forward(self, summary: Tensor) -> LayerStates:
        parts = torch.tanh(self.projection(summary)).chunk(self.layers * self.tensors, dim=-1)
        return tuple(parts[i : i + self.tensors] for i in range(0, len(parts), self.tensors))


class Readout(nn.Module):
    """Features for the output layer: the activation of U s + V c + W e + b.

    s is the decoder's state, c the context, e the previous word's embedding. activation: "tanh", or "maxout", the
    larger of two candidates per feature, with matrices twice as large (Bahdanau et al. 2015, appendix A.2.2).
    """

    def __init__(self, width: int, context_width: int, embedding_width: int, features: int, activation: str) -> None:
        super().__init__()
        if activation not in ("maxout", "tanh"):
            raise UserError(f"readout={activation!r} is unknown; choose maxout or tanh.")
        self.maxout = activation == "maxout"
        self.projection = Linear(width + context_width + embedding_width, 2 * features if self.maxout else features)

    def forward(self, state: Tensor, context: Tensor, embedding: Tensor) -> Tensor:
        """state (..., D), context (..., C), embedding (..., E) -> (..., features)."""
        return self._activate(self.projection(torch.cat([state, context, embedding], dim=-1)))

    def each(self, state: Tensor, contexts: Tensor, embedding: Tensor) -> Tensor:
        """state (B, T, D), embedding (B, T, E), each with every one of contexts (B, S, C) -> (B, T, S, features)."""
        first, second = state.shape[-1], state.shape[-1] + contexts.shape[-1]
        of_state, of_context, of_embedding = self.projection.weight.tensor_split((first, second), dim=1)
        own = linear(state, of_state, self.projection.bias) + linear(embedding, of_embedding)
        return self._activate(own.unsqueeze(2) + linear(contexts, of_context).unsqueeze(1))

    def _activate(self, candidates: Tensor) -> Tensor:
        if not self.maxout:
            return torch.tanh(candidates)
        first, second = candidates.chunk(2, dim=-1)
        return torch.where(first > second, first, second)


def further_input(width: int, layer: RecurrentLayer) -> nn.Linear:
    """Create W of the term W x that an input x of `width` features adds to a layer's gates, Xavier uniform per gate."""
    feed = nn.Linear(width, layer.gate_width, bias=False)
    for gate in feed.weight.data.chunk(layer.gate_width // layer.width):
        nn.init.xavier_uniform_(gate)
    return feed


def select_layers(layers: LayerStates, rows: Tensor) -> LayerStates:
    """Pick the states of `rows`, of any shape, in that order."""
    rows = rows.flatten()
    return tuple(tuple(tensor.index_select(0, rows) for tensor in layer) for layer in layers)


def join_sampling(steps: Sequence[AttentionOutput]) -> SampledAttention | None:
    """Join the sampling records of successive steps, entries (B, 1), to one with entries (B, T), if there are any."""
    records = [step.sampling for step in steps if step.sampling is not None]
    if not records:
        return None
    return SampledAttention(
        torch.cat([record.log_probability for record in records], dim=1),
        torch.cat([record.entropy for record in records], dim=1),
    )


def join_log_weights(steps: Sequence[AttentionOutput]) -> Tensor | None:
    """Join the log_weights of successive steps, (B, 1, S), to (B, T, S), if there are any."""
    parts = [step.log_weights for step in steps if step.log_weights is not None]
    return torch.cat(parts, dim=1) if parts else None

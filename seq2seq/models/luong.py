"""Luong, Pham and Manning 2015: recur, then attend from the new state.

The attentional vector h~ predicts the word, and with input feeding it also enters the next step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seq2seq.attention import Attention, AttentionMemory
from seq2seq.interfaces import AttentionOutput, DecoderOutput, PositionMixture
from seq2seq.kernels.dropout import Dropout
from seq2seq.kernels.product import Linear
from seq2seq.layers.embedding import Embedding
from seq2seq.layers.recurrent import RecurrentEncoder, RecurrentStack
from seq2seq.models.encoder_decoder import EncoderDecoder, create_vocabulary_layers, remaining_memory
from seq2seq.models.recurrent_parts import (
    LayerStates,
    RecurrentMemory,
    SourceReader,
    further_input,
    join_log_weights,
    join_sampling,
    select_layers,
)


@dataclass(frozen=True)
class LuongState:
    """layers: tensors (N, D). attentional (N, D): the last h~. position: () int64."""

    layers: LayerStates
    attentional: Tensor
    memory: AttentionMemory
    position: Tensor

    def select(self, rows: Tensor) -> LuongState:
        memory = remaining_memory(self.memory, rows, len(self.attentional))
        attentional = self.attentional.index_select(0, rows.flatten())
        return LuongState(select_layers(self.layers, rows), attentional, memory, self.position)


class Attentional(nn.Module):
    """Attentional vector h~ = tanh(W_c [c; h]) (equation 5), c the attention's context for query h."""

    def __init__(self, attention: Attention, width: int, context_width: int) -> None:
        super().__init__()
        self.attention = attention
        self.context = Linear(context_width, width, bias=False)
        self.hidden = Linear(width, width, bias=False)

    def forward(self, hidden: Tensor, memory: AttentionMemory, position: Tensor) -> tuple[Tensor, AttentionOutput]:
        """hidden (B, Q, D) -> h~ (B, Q, D), attention."""
        attended = self.attention.attend(hidden, memory, position)
        return self.combine(hidden, attended.context), attended

    def combine(self, hidden: Tensor, context: Tensor) -> Tensor:
        """hidden (B, Q, D), context (B, Q, C) -> h~ (B, Q, D)."""
        return torch.tanh(self.context(context) + self.hidden(hidden))


class LuongDecoder(nn.Module):
    """Decoder that recurs, then attends.

    h_t = layers([e(y_{t-1}); h~_{t-1}], h_{t-1}); h~_t = tanh(W_c [attention(h_t); h_t]); features = h~_t.

    Without `input_feeding`, h~_{t-1} does not enter, and a whole target takes one call of the layers and one of the
    attention.
    """

    def __init__(
        self,
        embedding: Embedding,
        stack: RecurrentStack,
        attentional: Attentional,
        width: int,
        input_feeding: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.attentional = attentional
        self.width = width
        self.feed = further_input(width, stack[0]) if input_feeding else None
        self.dropout = Dropout(dropout)

    def forward(self, target_in: Tensor, memory: RecurrentMemory, target_mask: Tensor | None = None) -> DecoderOutput:
        start = self.start(memory)
        embedded = self.dropout(self.embedding(target_in))
        positions = torch.arange(target_in.shape[1], device=target_in.device)
        if self.feed is None:
            hidden, _ = self.stack(embedded, start.layers)
            vectors, attended = self.attentional(hidden, start.memory, positions)
            return self._output([hidden], [vectors], [attended], start.memory)
        gates = self.stack[0].gates(embedded.transpose(0, 1)).unbind(0)
        layers, fed, states, vectors, steps = start.layers, start.attentional, [], [], []
        for gate, position in zip(gates, positions.unbind(0), strict=True):
            layers = self.stack.step(torch.addmm(gate, fed, self.feed.weight.t()), layers)
            hidden = layers[-1][0].unsqueeze(1)
            vector, attended = self.attentional(hidden, start.memory, position)
            fed = vector[:, 0]
            states.append(hidden)
            vectors.append(vector)
            steps.append(attended)
        return self._output(states, vectors, steps, start.memory)

    def _output(
        self, states: list[Tensor], vectors: list[Tensor], steps: list[AttentionOutput], memory: AttentionMemory
    ) -> DecoderOutput:
        """h and h~ of successive steps, each (B, Q, D), and their attention -> features, and what the loss needs of
        attention that chooses.
        """
        combine = self.attentional.combine
        pairs = list(zip(states, steps, strict=True))
        if best := [combine(hidden, step.best) for hidden, step in pairs if step.best is not None]:
            vectors = best
        features = self.dropout(torch.cat(vectors, dim=1))
        expected = [combine(hidden, step.expected) for hidden, step in pairs if step.expected is not None]
        mixture = None
        if (log_weights := join_log_weights(steps)) is not None:
            each = combine(torch.cat(states, dim=1).unsqueeze(2), memory.values.unsqueeze(1))  # (B, T, S, D)
            mixture = PositionMixture(self.dropout(each), log_weights, memory.query_mask)
        return DecoderOutput(
            features, join_sampling(steps), self.dropout(torch.cat(expected, dim=1)) if expected else None, mixture
        )

    def start(self, memory: RecurrentMemory) -> LuongState:
        hidden = memory.final[-1][0]
        return LuongState(
            memory.final,
            torch.zeros_like(hidden),
            self.attentional.attention.prepare(memory.values, memory.mask),
            torch.zeros((), dtype=torch.int64, device=hidden.device),
        )

    def step(self, tokens: Tensor, state: LuongState) -> tuple[Tensor, LuongState, Tensor]:
        gates = self.stack[0].gates(self.dropout(self.embedding(tokens)))
        if self.feed is not None:
            gates = torch.addmm(gates, state.attentional, self.feed.weight.t())
        layers = self.stack.step(gates, state.layers)
        hidden = layers[-1][0].view(state.memory.mask.shape[0], -1, self.width)  # (N, D) -> (B, K, D)
        vector, attended = self.attentional(hidden, state.memory, state.position)
        features = vector if attended.best is None else self.attentional.combine(hidden, attended.best)
        state = LuongState(layers, vector.flatten(0, 1), state.memory, state.position + 1)
        return self.dropout(features.flatten(0, 1)), state, attended.weights.flatten(0, 1).unsqueeze(1)


def create_luong(
    source_vocabulary: int,
    target_vocabulary: int,
    joint_vocabulary: bool,
    attention: Attention,
    width: int = 256,
    embedding_width: int | None = None,
    layers: int = 1,
    cell: str = "lstm",
    bidirectional: bool = True,
    input_feeding: bool = True,
    dropout: float = 0.2,
    word_dropout: float = 0.0,
    tie_embeddings: bool = True,
) -> EncoderDecoder:
    """Create encoder and decoder of `layers` layers each; a decoder layer starts from its encoder layer's final state.

    attention: queries (top decoder states) and keys (top encoder states) both have `width` features. embedding_width:
    None for `width`. cell: "gru" or "lstm". The paper's encoder reads in one direction (bidirectional=false).
    """
    embedding_width = width if embedding_width is None else embedding_width
    source_embedding, target_embedding, output = create_vocabulary_layers(
        source_vocabulary, target_vocabulary, joint_vocabulary, tie_embeddings, embedding_width, width, word_dropout
    )
    encoder = RecurrentEncoder(cell, embedding_width, width, layers, bidirectional, dropout)
    decoder = LuongDecoder(
        target_embedding,
        RecurrentStack(cell, embedding_width, width, layers, dropout),
        Attentional(attention, width, width),
        width,
        input_feeding,
        dropout,
    )
    return EncoderDecoder(SourceReader(source_embedding, encoder, dropout), decoder, output, attends=True)

"""Bahdanau, Cho and Bengio 2015: attend from the previous state, then recur.

The attention's query is the state before the step, so the context is known before the recurrence and enters it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seq2seq.attention import AdditiveScore, Attention, AttentionMemory, SoftAlignment
from seq2seq.errors import UserError
from seq2seq.interfaces import AttentionOutput, DecoderOutput, PositionMixture
from seq2seq.kernels.attentive_gru import AttentiveGRUWeights, attentive_gru
from seq2seq.kernels.dropout import Dropout
from seq2seq.layers.embedding import Embedding
from seq2seq.layers.recurrent import (
    LAYERS,
    GRULayer,
    LayerState,
    RecurrentEncoder,
    RecurrentLayer,
    RecurrentStack,
    create_layer,
)
from seq2seq.models.encoder_decoder import EncoderDecoder, create_vocabulary_layers, remaining_memory
from seq2seq.models.recurrent_parts import (
    InitialState,
    LayerStates,
    Readout,
    RecurrentMemory,
    SourceReader,
    further_input,
    join_log_weights,
    join_sampling,
    select_layers,
)


@dataclass(frozen=True)
class BahdanauState:
    """first: the attending layer's state, tensors (N, D). upper: states of the layers above. position: () int64."""

    first: LayerState
    upper: LayerStates
    memory: AttentionMemory
    position: Tensor

    def select(self, rows: Tensor) -> BahdanauState:
        memory = remaining_memory(self.memory, rows, len(self.first[0]))
        first, *upper = select_layers((self.first, *self.upper), rows)
        return BahdanauState(first, tuple(upper), memory, self.position)


class BahdanauDecoder(nn.Module):
    """Decoder that attends, then recurs.

    c_t = attention(s_{t-1}); s_t = cell([e(y_{t-1}); c_t], s_{t-1}); features = readout(s_t, c_t, e(y_{t-1})).

    With several layers, the first one attends and takes the context; the others are an ordinary stack on top of it
    (as in GNMT, Wu et al. 2016), and s_t in the readout is the top layer's.
    """

    def __init__(
        self,
        embedding: Embedding,
        initial: InitialState,
        cell: str,
        width: int,
        layers: int,
        attention: Attention,
        context_width: int,
        readout: Readout,
        embedding_width: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.initial = initial
        self.attention = attention
        self.first = create_layer(cell, embedding_width, width)
        self.feed = further_input(context_width, self.first)
        self.upper = RecurrentStack(cell, width, width, layers - 1, dropout)
        self.readout = readout
        self.dropout = Dropout(dropout)

    def forward(self, target_in: Tensor, memory: RecurrentMemory, target_mask: Tensor | None = None) -> DecoderOutput:
        start = self.start(memory)
        embedded = self.dropout(self.embedding(target_in.t()))  # (T, B, E): steps first
        gates = self.first.gates(embedded)
        fused = attentive_gru_weights(self.attention, self.first, self.feed)
        if fused is None or torch.is_autocast_enabled(gates.device.type):
            return self._decode_step_by_step(gates, embedded, start)
        attended = start.memory
        outputs, contexts = attentive_gru(gates, start.first[0], attended.keys, attended.values, attended.mask, fused)
        return DecoderOutput(self._features(self._above(outputs, start), contexts, embedded))

    def _above(self, outputs: Tensor, start: BahdanauState) -> Tensor:
        """outputs of the first layer (T, B, D) -> outputs of the top layer (T, B, D)."""
        if not len(self.upper):
            return outputs
        above: Tensor = self.upper(self.dropout(outputs).transpose(0, 1), start.upper)[0]
        return above.transpose(0, 1)

    def _features(self, outputs: Tensor, contexts: Tensor, embedded: Tensor) -> Tensor:
        """outputs of the top layer (T, B, D), contexts (T, B, C), embedded words (T, B, E) -> features (B, T, D)."""
        features: Tensor = self.dropout(self.readout(outputs, contexts, embedded))
        return features.transpose(0, 1)

    def _decode_step_by_step(self, gates: Tensor, embedded: Tensor, start: BahdanauState) -> DecoderOutput:
        """gates (T, B, G), embedded words (T, B, E) -> features, and what the loss needs of choosing attention."""
        positions = torch.arange(len(gates), device=gates.device).unbind(0)
        first, hidden, steps, means = start.first, [], [], []
        for gate, position in zip(gates.unbind(0), positions, strict=True):
            attended = self._attend(first, start.memory, position)
            if attended.expected is not None:
                means.append(self._recur(gate, attended.expected, first)[0])
            first = self._recur(gate, attended.context, first)
            hidden.append(first[0])
            steps.append(attended)
        outputs = self._above(torch.stack(hidden), start)
        features = self._features(outputs, torch.stack([step.predicting[:, 0] for step in steps]), embedded)
        expected = mixture = None
        if means:
            contexts = torch.stack([step.expected[:, 0] for step in steps if step.expected is not None])
            expected = self._features(self._above(torch.stack(means), start), contexts, embedded)
        if (log_weights := join_log_weights(steps)) is not None:
            each = self.readout.each(outputs.transpose(0, 1), start.memory.values, embedded.transpose(0, 1))
            mixture = PositionMixture(self.dropout(each), log_weights, start.memory.query_mask)
        return DecoderOutput(features, join_sampling(steps), expected, mixture)

    def start(self, memory: RecurrentMemory) -> BahdanauState:
        backward = memory.final[-1][0].chunk(2, dim=-1)[1]
        first, *upper = self.initial(backward)
        prepared = self.attention.prepare(memory.values, memory.mask)
        return BahdanauState(first, tuple(upper), prepared, torch.zeros((), dtype=torch.int64, device=backward.device))

    def step(self, tokens: Tensor, state: BahdanauState) -> tuple[Tensor, BahdanauState, Tensor]:
        embedded = self.dropout(self.embedding(tokens))
        attended = self._attend(state.first, state.memory, state.position)
        first = self._recur(self.first.gates(embedded), attended.context, state.first)
        outputs, upper = first[0], state.upper
        if len(self.upper):
            outputs, upper = self.upper(self.dropout(outputs).unsqueeze(1), upper)
            outputs = outputs[:, 0]
        features = self.dropout(self.readout(outputs, attended.predicting.flatten(0, 1), embedded))
        state = BahdanauState(first, upper, state.memory, state.position + 1)
        return features, state, attended.weights.flatten(0, 1).unsqueeze(1)

    def _attend(self, first: LayerState, memory: AttentionMemory, position: Tensor) -> AttentionOutput:
        """Attend from the states of N rows to B sentences, with K queries each."""
        query = first[0].view(memory.mask.shape[0], -1, self.first.width)  # (N, D) -> (B, K, D)
        return self.attention.attend(query, memory, position)

    def _recur(self, gates: Tensor, context: Tensor, first: LayerState) -> LayerState:
        """Advance by one step: embedding half of the gates (N, G), context (B, K, C), state -> next state."""
        return self.first.step(torch.addmm(gates, context.flatten(0, 1), self.feed.weight.t()), first)


def attentive_gru_weights(attention: Attention, layer: RecurrentLayer, feed: nn.Linear) -> AttentiveGRUWeights | None:
    """Return the weights of `attentive_gru` for a GRU that attends softly with the additive score, else None."""
    score = attention.score
    if not (
        isinstance(layer, GRULayer) and type(score) is AdditiveScore and type(attention.alignment) is SoftAlignment
    ):
        return None
    _, recurrent, _, bias = layer.rnn.all_weights[0]
    return AttentiveGRUWeights(recurrent, bias, feed.weight, score.query.weight, score.vector)


def create_bahdanau(
    source_vocabulary: int,
    target_vocabulary: int,
    joint_vocabulary: bool,
    attention: Attention,
    width: int = 256,
    embedding_width: int | None = None,
    layers: int = 1,
    cell: str = "gru",
    readout: str = "tanh",
    dropout: float = 0.2,
    word_dropout: float = 0.0,
    tie_embeddings: bool = True,
    encoder_width: int | None = None,
) -> EncoderDecoder:
    """Create a bidirectional encoder (encoder_width / 2 each way) and an attention decoder of `layers` layers each.

    attention: queries (decoder states) have `width` features, keys (encoder states) encoder_width. The decoder starts
    from tanh(W h), h the right-to-left encoder state at the first word (appendix A.2.2). encoder_width,
    embedding_width: None for `width`. cell: "gru" or "lstm". readout: "tanh" (faster) or "maxout" (the paper's).
    """
    embedding_width = width if embedding_width is None else embedding_width
    source_embedding, target_embedding, output = create_vocabulary_layers(
        source_vocabulary, target_vocabulary, joint_vocabulary, tie_embeddings, embedding_width, width, word_dropout
    )
    context_width = width if encoder_width is None else encoder_width
    if context_width % 2:
        raise UserError(f"encoder_width={context_width} must be even: half of it goes to each direction.")
    encoder = RecurrentEncoder(cell, embedding_width, context_width, layers, bidirectional=True, dropout=dropout)
    decoder = BahdanauDecoder(
        target_embedding,
        InitialState(context_width // 2, width, layers, LAYERS[cell].state_tensors),
        cell,
        width,
        layers,
        attention,
        context_width,
        Readout(width, context_width, embedding_width, width, readout),
        embedding_width,
        dropout,
    )
    return EncoderDecoder(SourceReader(source_embedding, encoder, dropout), decoder, output, attends=True)

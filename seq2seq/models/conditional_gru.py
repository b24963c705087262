"""The conditional GRU (Sennrich et al. 2017, Nematus, section 2): two cells per step, with attention between them.

The first cell reads the previous word, so that the attention's query knows it; the second one reads the context.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seq2seq.attention import AdditiveScore, Attention, AttentionMemory, SoftAlignment
from seq2seq.errors import UserError
from seq2seq.interfaces import AttentionOutput, DecoderOutput, PositionMixture
from seq2seq.kernels.attentive_gru import AttentiveGRUWeights, ConditionalWeights, conditional_gru
from seq2seq.kernels.dropout import Dropout
from seq2seq.kernels.layer_norm import LayerNorm
from seq2seq.layers.embedding import Embedding
from seq2seq.layers.recurrent import GRULayer, RecurrentEncoder, real_lengths
from seq2seq.models.encoder_decoder import EncoderDecoder, create_vocabulary_layers, remaining_memory
from seq2seq.models.recurrent_parts import (
    InitialState,
    Readout,
    RecurrentMemory,
    SourceReader,
    join_log_weights,
    join_sampling,
)


@dataclass(frozen=True)
class ConditionalGRUState:
    """hidden (N, D): the second cell's last state. position: () int64."""

    hidden: Tensor
    memory: AttentionMemory
    position: Tensor

    def select(self, rows: Tensor) -> ConditionalGRUState:
        memory = remaining_memory(self.memory, rows, len(self.hidden))
        return ConditionalGRUState(self.hidden.index_select(0, rows.flatten()), memory, self.position)


class NormalizedReader(nn.Module):
    """`SourceReader`, then layer normalization and dropout of the annotations."""

    def __init__(self, reader: SourceReader, width: int, dropout: float) -> None:
        super().__init__()
        self.reader = reader
        self.norm = LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, source: Tensor, mask: Tensor) -> RecurrentMemory:
        memory = self.reader(source, mask)
        return RecurrentMemory(self.dropout(self.norm(memory.values)), memory.final, mask)


class ConditionalGRUDecoder(nn.Module):
    """s'_t = first(e(y_{t-1}), s_{t-1}); c_t = attention(s'_t); s_t = second(c_t, s'_t);
    features = tanh(U s_t + V c_t + W e(y_{t-1}) + b). s_0 = tanh(W' m + b'), m the mean of the annotations.
    """

    def __init__(
        self,
        embedding: Embedding,
        initial: InitialState,
        attention: Attention,
        first: GRULayer,
        second: GRULayer,
        readout: Readout,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.initial = initial
        self.attention = attention
        self.first = first
        self.second = second
        self.readout = readout
        self.dropout = Dropout(dropout)

    def forward(self, target_in: Tensor, memory: RecurrentMemory, target_mask: Tensor | None = None) -> DecoderOutput:
        start = self.start(memory)
        embedded = self.embedding(target_in.t())
        gates = self.first.gates(embedded)
        fused = self._fused_weights()
        if fused is None or torch.is_autocast_enabled(gates.device.type):
            return self._decode_step_by_step(gates, embedded, start)
        attended = start.memory
        states, contexts = conditional_gru(gates, start.hidden, attended.keys, attended.values, attended.mask, *fused)
        return DecoderOutput(self._features(states, contexts, embedded))

    def _features(self, states: Tensor, contexts: Tensor, embedded: Tensor) -> Tensor:
        """States (T, B, D), contexts (T, B, C), embedded words (T, B, E) -> (B, T, E)."""
        features: Tensor = self.dropout(self.readout(states, contexts, embedded))
        return features.transpose(0, 1)

    def _decode_step_by_step(self, gates: Tensor, embedded: Tensor, start: ConditionalGRUState) -> DecoderOutput:
        """gates (T, B, 3 D), embedded words (T, B, E) -> features, and what the loss needs of choosing attention."""
        positions = torch.arange(len(gates), device=gates.device).unbind(0)
        hidden, states, steps, means = start.hidden, [], [], []
        for gate, position in zip(gates.unbind(0), positions, strict=True):
            between, attended = self._attend(gate, hidden, start.memory, position)
            if attended.expected is not None:
                means.append(self._recur(attended.expected, between))
            hidden = self._recur(attended.context, between)
            states.append(hidden)
            steps.append(attended)
        outputs = torch.stack(states)
        features = self._features(outputs, torch.stack([step.predicting[:, 0] for step in steps]), embedded)
        expected = mixture = None
        if means:
            contexts = torch.stack([step.expected[:, 0] for step in steps if step.expected is not None])
            expected = self._features(torch.stack(means), contexts, embedded)
        if (log_weights := join_log_weights(steps)) is not None:
            each = self.readout.each(outputs.transpose(0, 1), start.memory.values, embedded.transpose(0, 1))
            mixture = PositionMixture(self.dropout(each), log_weights, start.memory.query_mask)
        return DecoderOutput(features, join_sampling(steps), expected, mixture)

    def start(self, memory: RecurrentMemory) -> ConditionalGRUState:
        total = torch.where(memory.mask.unsqueeze(-1), memory.values, 0.0).sum(1)
        ((hidden,),) = self.initial(total / real_lengths(memory.mask).unsqueeze(-1))
        prepared = self.attention.prepare(memory.values, memory.mask)
        return ConditionalGRUState(hidden, prepared, torch.zeros((), dtype=torch.int64, device=hidden.device))

    def step(self, tokens: Tensor, state: ConditionalGRUState) -> tuple[Tensor, ConditionalGRUState, Tensor]:
        embedded = self.embedding(tokens)
        between, attended = self._attend(self.first.gates(embedded), state.hidden, state.memory, state.position)
        hidden = self._recur(attended.context, between)
        features = self.dropout(self.readout(hidden, attended.predicting.flatten(0, 1), embedded))
        state = ConditionalGRUState(hidden, state.memory, state.position + 1)
        return features, state, attended.weights.flatten(0, 1).unsqueeze(1)

    def _attend(
        self, gates: Tensor, hidden: Tensor, memory: AttentionMemory, position: Tensor
    ) -> tuple[Tensor, AttentionOutput]:
        """gates of the first cell (N, 3 D), state (N, D) -> its result (N, D), and attention from there over B
        sentences, N / B queries each.
        """
        (between,) = self.first.step(gates, (hidden,))
        query = between.view(memory.mask.shape[0], -1, self.first.width)
        return between, self.attention.attend(query, memory, position)

    def _recur(self, context: Tensor, between: Tensor) -> Tensor:
        """context (B, N / B, C), the first cell's result (N, D) -> state (N, D)."""
        (hidden,) = self.second.step(self.second.gates(context.flatten(0, 1)), (between,))
        return hidden

    def _fused_weights(self) -> tuple[AttentiveGRUWeights, ConditionalWeights] | None:
        """Return the weights of `conditional_gru` for soft attention with the additive score, else None."""
        score = self.attention.score
        if not (type(score) is AdditiveScore and type(self.attention.alignment) is SoftAlignment):
            return None
        _, first, _, first_bias = self.first.rnn.all_weights[0]
        feed, recurrent, feed_bias, bias = self.second.rnn.all_weights[0]
        weights = AttentiveGRUWeights(recurrent, bias, feed, score.query.weight, score.vector)
        return weights, ConditionalWeights(feed_bias, first, first_bias)


def create_conditional_gru(
    source_vocabulary: int,
    target_vocabulary: int,
    joint_vocabulary: bool,
    attention: Attention,
    width: int = 256,
    encoder_width: int = 512,
    embedding_width: int = 128,
    dropout: float = 0.3,
    context_dropout: float = 0.3,
    output_dropout: float = 0.3,
    word_dropout: float = 0.0,
    tie_embeddings: bool = False,
) -> EncoderDecoder:
    """Create a bidirectional GRU encoder (encoder_width / 2 each way) and a conditional GRU decoder.

    The encoder's states, the annotations, are layer-normalized; the decoder starts from tanh(W m), m their mean.

    attention: queries (the first cell's states) have `width` features, keys (annotations) encoder_width. Features have
    embedding_width, so that the output layer can be tied. dropout acts on source embeddings, context_dropout on
    annotations, output_dropout on features.
    """
    source_embedding, target_embedding, output = create_vocabulary_layers(
        *(source_vocabulary, target_vocabulary, joint_vocabulary, tie_embeddings),
        *(embedding_width, embedding_width, word_dropout),
    )
    if encoder_width % 2:
        raise UserError(f"encoder_width={encoder_width} must be even: half of it goes to each direction.")
    encoder = RecurrentEncoder("gru", embedding_width, encoder_width, 1, bidirectional=True)
    decoder = ConditionalGRUDecoder(
        target_embedding,
        InitialState(encoder_width, width, layers=1, tensors=1),
        attention,
        GRULayer(embedding_width, width),
        GRULayer(encoder_width, width),
        Readout(width, encoder_width, embedding_width, embedding_width, "tanh"),
        output_dropout,
    )
    reader = NormalizedReader(SourceReader(source_embedding, encoder, dropout), encoder_width, context_dropout)
    return EncoderDecoder(reader, decoder, output, attends=True)

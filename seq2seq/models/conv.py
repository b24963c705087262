"""The convolutional encoder-decoder of Gehring et al. 2017."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from seq2seq.attention import Attention, AttentionMemory, DotScore, SoftAlignment
from seq2seq.errors import UserError
from seq2seq.interfaces import DecoderOutput
from seq2seq.kernels.dropout import Dropout
from seq2seq.kernels.product import Linear
from seq2seq.layers.convolution import GatedConvolution
from seq2seq.layers.embedding import PositionedEmbedding, create_positions
from seq2seq.models.encoder_decoder import EncoderDecoder, create_vocabulary_layers, remaining_memory

SQRT_HALF = math.sqrt(0.5)
"""Scale of a sum of two terms of equal variance, which keeps that variance (section 3.5)."""

INPUT_SCALE = 0.1
"""Scale of words and positions: they start with a standard deviation of about 0.1, as in the paper, so that the dot
products of attention, which are not scaled, start near zero.
"""


class ConvolutionalEncoder(nn.Module):
    """Encoder: source (B, S) -> AttentionMemory of keys z (B, S, E) and values (z + e) sqrt(1/2), e the embedded words.

    Padding is zeroed before each convolution, so that every window sees it as the end of the sentence.
    """

    def __init__(
        self,
        embed: PositionedEmbedding,
        attention: Attention,
        embedding_width: int,
        width: int,
        layers: int,
        kernel: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embed = embed
        self.attention = attention
        self.widen = _linear(embedding_width, width, dropout)
        self.layers = nn.ModuleList(GatedConvolution(width, kernel, False, dropout) for _ in range(layers))
        self.narrow = _linear(width, embedding_width, 0.0)

    def forward(self, source: Tensor, mask: Tensor) -> AttentionMemory:
        embedded = self.embed(source, mask=mask) * INPUT_SCALE
        padding = ~mask.unsqueeze(-1)
        hidden = self.widen(embedded)
        for layer in self.layers:
            hidden = hidden.masked_fill(padding, 0.0)
            hidden = (layer(hidden) + hidden) * SQRT_HALF
        keys = self.narrow(hidden)
        return self.attention.prepare((keys + embedded) * SQRT_HALF, mask, keys=keys)


class ConvolutionalDecoderLayer(nn.Module):
    """Gated causal convolution, then attention, then the residual (sections 3.2 and 3.3).

    d = (W h + b + g) sqrt(1/2) with g the embedded previous word, a = softmax(d^T z), and the context
    sum_j a_j (z_j + e_j) is scaled by sqrt(m) for a source of m tokens, whose uniform average has variance 1/m.
    """

    def __init__(self, embedding_width: int, width: int, kernel: int, dropout: float, attention: Attention) -> None:
        super().__init__()
        self.convolution = GatedConvolution(width, kernel, True, dropout)
        self.query = _linear(width, embedding_width, 0.0)
        self.attention = attention
        self.context = _linear(embedding_width, width, 0.0)

    def forward(self, inputs: Tensor, embedded: Tensor, memory: AttentionMemory) -> Tensor:
        """inputs (B, T, D), embedded (B, T, E) -> outputs (B, T, D)."""
        return self.attend(self.convolution(inputs), inputs, embedded, memory)[0]

    def step(
        self, inputs: Tensor, embedded: Tensor, memory: AttentionMemory, earlier: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run one position: inputs (B, K, D), embedded (B, K, E), earlier inputs (B, K, D, kernel - 1) -> outputs
        (B, K, D), weights (B, K, S), and the earlier inputs of the next step.
        """
        window = torch.cat([earlier, self.convolution.dropout(inputs).unsqueeze(-1)], dim=-1)  # (B, K, D, kernel)
        outputs, weights = self.attend(self.convolution.window(window), inputs, embedded, memory)
        return outputs, weights, window[..., 1:]

    def attend(
        self, hidden: Tensor, inputs: Tensor, embedded: Tensor, memory: AttentionMemory
    ) -> tuple[Tensor, Tensor]:
        attended = self.attention.attend((self.query(hidden) + embedded) * SQRT_HALF, memory)
        context = self.context(attended.context * memory.lengths.sqrt().unsqueeze(-1))
        return ((hidden + context) * SQRT_HALF + inputs) * SQRT_HALF, attended.weights


@dataclass(frozen=True)
class ConvolutionalState:
    """earlier (N, D, kernel - 1), one per layer: the last inputs of its convolution. position: steps taken."""

    memory: AttentionMemory
    earlier: tuple[Tensor, ...]
    position: int

    def select(self, rows: Tensor) -> ConvolutionalState:
        memory, flat = remaining_memory(self.memory, rows, len(self.earlier[0])), rows.flatten()
        return ConvolutionalState(memory, tuple(e.index_select(0, flat) for e in self.earlier), self.position)


class ConvolutionalDecoder(nn.Module):
    """Decoder (`encoder_decoder.Decoder`) of causal convolutions over the previous words; every layer attends."""

    def __init__(
        self,
        embed: PositionedEmbedding,
        attention: Attention,
        embedding_width: int,
        width: int,
        layers: int,
        kernel: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embed = embed
        self.widen = _linear(embedding_width, width, dropout)
        self.layers = nn.ModuleList(
            ConvolutionalDecoderLayer(embedding_width, width, kernel, dropout, attention) for _ in range(layers)
        )
        self.narrow = _linear(width, embedding_width, 0.0)
        self.dropout = Dropout(dropout)
        self.history = (width, kernel - 1)

    def forward(self, target_in: Tensor, memory: AttentionMemory, target_mask: Tensor | None = None) -> DecoderOutput:
        embedded = self.embed(target_in, mask=target_mask) * INPUT_SCALE
        hidden = self.widen(embedded)
        for layer in self.layers:
            hidden = layer(hidden, embedded, memory)
        return DecoderOutput(self.dropout(self.narrow(hidden)))

    def start(self, memory: AttentionMemory) -> ConvolutionalState:
        zeros = memory.values.new_zeros(memory.values.shape[0], *self.history)
        return ConvolutionalState(memory, (zeros,) * len(self.layers), 0)

    def step(self, tokens: Tensor, state: ConvolutionalState) -> tuple[Tensor, ConvolutionalState, Tensor]:
        sentences = state.memory.mask.shape[0]
        embedded = self.embed(tokens.unsqueeze(1), state.position) * INPUT_SCALE  # (N, 1, E)
        embedded = embedded.view(sentences, -1, embedded.shape[-1])  # (B, K, E)
        hidden = self.widen(embedded)
        all_weights, all_earlier = [], []
        layers = cast("Iterable[ConvolutionalDecoderLayer]", self.layers)
        for layer, earlier in zip(layers, state.earlier, strict=True):
            earlier = earlier.view(*hidden.shape, earlier.shape[-1])  # (N, D, kernel - 1) -> (B, K, D, kernel - 1)
            hidden, weights, earlier = layer.step(hidden, embedded, state.memory, earlier)
            all_weights.append(weights.flatten(0, 1))  # (N, S)
            all_earlier.append(earlier.flatten(0, 1))
        features = self.dropout(self.narrow(hidden)).flatten(0, 1)  # (N, E)
        next_state = ConvolutionalState(state.memory, tuple(all_earlier), state.position + 1)
        return features, next_state, torch.stack(all_weights, dim=1)  # (N, layers, S): each layer as a head


def create_conv(
    source_vocabulary: int,
    target_vocabulary: int,
    joint_vocabulary: bool,
    width: int = 128,
    embedding_width: int = 128,
    layers: int = 5,
    encoder_layers: int | None = None,
    decoder_layers: int | None = None,
    kernel: int = 3,
    dropout: float = 0.2,
    word_dropout: float = 0.0,
    positions: str = "sinusoidal",
    maximum_positions: int = 1024,
    tie_embeddings: bool = True,
) -> EncoderDecoder:
    """Create a convolutional model.

    encoder_layers, decoder_layers: None for `layers`. kernel: odd. dropout: on embedded tokens, on each convolution's
    inputs and on the features. positions: "learned" (the first maximum_positions, as in the paper), "sinusoidal"
    (without limit) or "none".

    Two parts of the paper are left out: scaling the gradients of the encoder's layers by the number of decoder layers
    (section 3.4), and weight normalization (Salimans and Kingma 2016).
    """
    encoder_layers = layers if encoder_layers is None else encoder_layers
    decoder_layers = layers if decoder_layers is None else decoder_layers
    if min(encoder_layers, decoder_layers) < 1:
        raise UserError(f"a convolutional model needs at least one layer, got {encoder_layers} and {decoder_layers}")
    if min(width, embedding_width) < 1:
        raise UserError(f"widths must be positive, got width={width} and embedding_width={embedding_width}")
    if positions == "rotary":
        raise UserError("positions='rotary' needs self-attention; choose sinusoidal, learned or none")
    source_positions, target_positions = (
        create_positions(positions, embedding_width, None, maximum_positions) for _ in range(2)
    )
    for vectors in (*source_positions.parameters(), *target_positions.parameters()):
        nn.init.normal_(vectors)  # learned positions start with the variance of words
    source, target, output = create_vocabulary_layers(
        source_vocabulary,
        target_vocabulary,
        joint_vocabulary,
        tie_embeddings,
        embedding_width,
        embedding_width,
        word_dropout,
    )
    attention = Attention(DotScore(), SoftAlignment())
    source_embed = PositionedEmbedding(source, source_positions, dropout)
    target_embed = PositionedEmbedding(target, target_positions, dropout)
    encoder = ConvolutionalEncoder(source_embed, attention, embedding_width, width, encoder_layers, kernel, dropout)
    decoder = ConvolutionalDecoder(target_embed, attention, embedding_width, width, decoder_layers, kernel, dropout)
    return EncoderDecoder(encoder, decoder, output, attends=True)


def _linear(inputs: int, outputs: int, dropout: float) -> Linear:
    """Create a linear layer with weights N(0, sqrt((1 - dropout) / inputs)), for dropout on inputs (section 3.5)."""
    linear = Linear(inputs, outputs)
    nn.init.normal_(linear.weight, std=math.sqrt((1 - dropout) / inputs))
    nn.init.zeros_(linear.bias)
    return linear

"""The Transformer (Vaswani et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import cast

from torch import Tensor, nn

from seq2seq.attention.key_value_cache import KeyValueCache
from seq2seq.errors import UserError
from seq2seq.interfaces import DecoderOutput
from seq2seq.kernels.layer_norm import LayerNorm
from seq2seq.layers.embedding import PositionedEmbedding, create_positions
from seq2seq.layers.positions import RotaryPositions
from seq2seq.models.encoder_decoder import EncoderDecoder, create_vocabulary_layers, remaining_sentences
from seq2seq.models.transformer_layers import RESIDUALS, TransformerDecoderLayer, TransformerEncoderLayer


@dataclass(frozen=True)
class TransformerMemory:
    """values (B, S, D), unspecified but finite at padding; mask (B, S)."""

    values: Tensor
    mask: Tensor


@dataclass(frozen=True)
class TransformerState:
    """cache: past keys and values. source: each layer's keys and values (B, H, S, d) of the source. mask (B, S)."""

    cache: KeyValueCache
    source: tuple[tuple[Tensor, Tensor], ...]
    mask: Tensor

    def select(self, rows: Tensor) -> TransformerState:
        cache = self.cache.select(rows)
        stay = remaining_sentences(rows, self.mask.shape[0], self.cache.rows)
        if stay is None:
            return TransformerState(cache, self.source, self.mask)
        source = tuple((keys.index_select(0, stay), values.index_select(0, stay)) for keys, values in self.source)
        return TransformerState(cache, source, self.mask.index_select(0, stay))


class TransformerEncoder(nn.Module):
    """Encoder: source (B, S), mask (B, S) -> TransformerMemory.

    norm: applied to the last layer's output; the identity after post-norm layers.
    """

    def __init__(
        self,
        embed: PositionedEmbedding,
        rotary: RotaryPositions | None,
        layers: list[TransformerEncoderLayer],
        norm: nn.Module,
    ) -> None:
        super().__init__()
        self.embed = embed
        self.rotary = rotary
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(self, source: Tensor, mask: Tensor) -> TransformerMemory:
        hidden = self.embed(source, mask=mask)
        rotation = None if self.rotary is None else self.rotary(source.shape[1])
        for layer in self.layers:
            hidden = layer(hidden, mask, rotation)
        return TransformerMemory(self.norm(hidden), mask)


class TransformerDecoder(nn.Module):
    """Decoder (`encoder_decoder.Decoder`) whose `step` returns the weights of every head of layer `alignment_layer`."""

    def __init__(
        self,
        embed: PositionedEmbedding,
        rotary: RotaryPositions | None,
        layers: list[TransformerDecoderLayer],
        norm: nn.Module,
        alignment_layer: int,
    ) -> None:
        super().__init__()
        self.embed = embed
        self.rotary = rotary
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.alignment_layer = alignment_layer

    def forward(self, target_in: Tensor, memory: TransformerMemory, target_mask: Tensor | None = None) -> DecoderOutput:
        hidden = self.embed(target_in, mask=target_mask)
        rotation = None if self.rotary is None else self.rotary(target_in.shape[1])
        for layer in self.layers:
            hidden = layer(hidden, memory.values, memory.mask, rotation)
        return DecoderOutput(self.norm(hidden))

    def start(self, memory: TransformerMemory) -> TransformerState:
        layers = cast("Iterable[TransformerDecoderLayer]", self.layers)
        projected = (layer.cross_attention.project_memory(memory.values) for layer in layers)
        source = tuple((keys.contiguous(), values.contiguous()) for keys, values in projected)
        batch, heads, _, head_width = source[0][0].shape
        cache = KeyValueCache.start(len(self.layers), batch, heads, head_width, like=memory.values)
        return TransformerState(cache, source, memory.mask)

    def step(self, tokens: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState, Tensor | None]:
        offset, sentences = state.cache.steps, state.mask.shape[0]
        cache = state.cache.extend()
        rotation = None if self.rotary is None else self.rotary(1, offset)
        hidden = self.embed(tokens.unsqueeze(1), offset)  # (N, 1, D)
        hidden = hidden.view(sentences, -1, hidden.shape[-1])  # (B, K, D)
        weights = None
        layers = cast("Iterable[TransformerDecoderLayer]", self.layers)
        for number, (layer, (keys, values)) in enumerate(zip(layers, state.source, strict=True)):
            shown = number == self.alignment_layer
            hidden, seen = layer.step(hidden, cache, number, keys, values, state.mask, rotation, shown)
            weights = seen if shown else weights
        if weights is not None:
            weights = weights.transpose(1, 2).flatten(0, 1)  # (B, H, K, S) -> (N, H, S)
        return self.norm(hidden).flatten(0, 1), TransformerState(cache, state.source, state.mask), weights


def create_transformer(
    source_vocabulary: int,
    target_vocabulary: int,
    joint_vocabulary: bool,
    width: int = 128,
    layers: int = 4,
    encoder_layers: int | None = None,
    decoder_layers: int | None = None,
    heads: int = 4,
    feedforward_width: int = 256,
    dropout: float = 0.3,
    word_dropout: float = 0.0,
    attention_dropout: float = 0.0,
    activation_dropout: float = 0.0,
    norm: str = "pre",
    positions: str = "sinusoidal",
    position_width: int | None = None,
    maximum_positions: int = 1024,
    window: int | None = None,
    alignment_layer: int = -1,
    tie_embeddings: bool = True,
) -> EncoderDecoder:
    """Create a Transformer.

    encoder_layers, decoder_layers: None for `layers`. dropout: on sublayers' results and on embedded tokens (section
    5.4). norm: "pre" (with a last norm on both sides) or "post", as in the paper. positions: "sinusoidal", "learned"
    (the first maximum_positions), "rotary" or "none". position_width: None adds positions to embeddings, a number gives
    that many of the features to them. window: radius of restricted self-attention, None for full. alignment_layer: the
    decoder layer whose attention is returned; -1 is the last.
    """
    encoder_layers = layers if encoder_layers is None else encoder_layers
    decoder_layers = layers if decoder_layers is None else decoder_layers
    if min(encoder_layers, decoder_layers) < 1:
        raise UserError(f"a transformer needs at least one layer, got {encoder_layers} and {decoder_layers}")
    if norm not in RESIDUALS:
        raise UserError(f"norm={norm!r} is unknown; choose pre or post")
    if not -decoder_layers <= alignment_layer < decoder_layers:
        raise UserError(f"alignment_layer={alignment_layer} does not exist among {decoder_layers} decoder layers")
    source_positions, target_positions = (
        create_positions(positions, width, position_width, maximum_positions) for _ in range(2)
    )
    rotary = RotaryPositions(width // heads) if positions == "rotary" else None
    source, target, output = create_vocabulary_layers(
        source_vocabulary,
        target_vocabulary,
        joint_vocabulary,
        tie_embeddings,
        source_positions.embedding_width,
        width,
        word_dropout,
    )
    dropouts = (dropout, attention_dropout, activation_dropout)
    encoder_layer = partial(TransformerEncoderLayer, width, heads, feedforward_width, norm, *dropouts, window)
    decoder_layer = partial(TransformerDecoderLayer, width, heads, feedforward_width, norm, *dropouts, window)
    last_norm = partial(LayerNorm, width) if norm == "pre" else nn.Identity
    encoder = TransformerEncoder(
        PositionedEmbedding(source, source_positions, dropout),
        rotary,
        [encoder_layer() for _ in range(encoder_layers)],
        last_norm(),
    )
    decoder = TransformerDecoder(
        PositionedEmbedding(target, target_positions, dropout),
        rotary,
        [decoder_layer() for _ in range(decoder_layers)],
        last_norm(),
        alignment_layer % decoder_layers,
    )
    return EncoderDecoder(encoder, decoder, output, attends=True)

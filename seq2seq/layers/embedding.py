"""Token embeddings, with and without positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.interfaces import PAD
from seq2seq.kernels.dropout import Dropout
from seq2seq.layers.positions import (
    AddedPositions,
    ConcatenatedPositions,
    LearnedPositions,
    NoPositions,
    SinusoidalPositions,
)

POSITIONS = ("sinusoidal", "learned", "rotary", "none")


class Embedding(nn.Module):
    """Rows of `weight` (V, D) times `scale`: tokens (...) -> (..., D).

    PAD's row starts at zero and receives no gradient from here. `weight` may be another layer's parameter (tied
    embeddings). A new one is N(0, D^-1/2): times `scale` = sqrt(D) (Vaswani et al. 2017, section 3.4) its features
    have unit variance, and as a tied output layer it gives logits of unit variance for such features.

    word_dropout: probability that a token's whole vector is zeroed in training (Gal and Ghahramani 2016; for little
    data, Sennrich and Zhang 2019); the others are divided by the probability of being kept.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        scale: float = 1.0,
        weight: nn.Parameter | None = None,
        word_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if vocabulary <= PAD + 1 or width < 1:
            raise UserError(f"an embedding needs vocabulary > {PAD + 1} and width > 0, got {vocabulary} and {width}")
        if not 0 <= word_dropout < 1:
            raise UserError(f"word_dropout must be at least 0 and less than 1, got {word_dropout}")
        if weight is None:
            weight = nn.Parameter(torch.empty(vocabulary, width).normal_(std=width**-0.5))
            with torch.no_grad():
                weight[PAD] = 0
        elif weight.shape != (vocabulary, width):
            raise UserError(f"tied weight has shape {tuple(weight.shape)}, the embedding needs {(vocabulary, width)}")
        self.weight = weight
        self.scale = scale
        self.word_dropout = Dropout(word_dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = F.embedding(tokens, self.weight, padding_idx=PAD)
        if self.training and self.word_dropout.rate:
            scales: Tensor = self.word_dropout(embedded.new_full((*tokens.shape, 1), self.scale))
            return embedded * scales
        return embedded if self.scale == 1.0 else embedded * self.scale


class PositionedEmbedding(nn.Module):
    """Input of an encoder or decoder without recurrence: dropout(positions(embedding(tokens))).

    positions: a module that joins positions to embeddings, see `layers.positions`.
    """

    def __init__(self, embedding: Embedding, positions: nn.Module, dropout: float) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, offset: int = 0, mask: Tensor | None = None) -> Tensor:
        """tokens (B, T) at positions offset .. offset + T - 1, mask (B, T) -> (B, T, D)."""
        embedded: Tensor = self.dropout(self.positions(self.embedding(tokens), offset, mask))
        return embedded


def create_positions(
    kind: str, width: int, position_width: int | None, maximum: int
) -> AddedPositions | ConcatenatedPositions | NoPositions:
    """Create the module that joins positions to embeddings in a model of `width` features.

    position_width: None adds positions to embeddings, a number gives that many of the features to them. maximum: how
    many positions are learned. Rotary positions act inside attention, so embeddings stay as they are.
    """
    if kind not in POSITIONS:
        raise UserError(f"positions={kind!r} is unknown; choose one of {', '.join(POSITIONS)}")
    if kind in ("rotary", "none"):
        if position_width is not None:
            raise UserError(f"position_width={position_width} needs positions=sinusoidal or learned, not {kind}")
        return NoPositions(width)
    vectors_width = width if position_width is None else position_width
    vectors = SinusoidalPositions(vectors_width) if kind == "sinusoidal" else LearnedPositions(vectors_width, maximum)
    return AddedPositions(vectors) if position_width is None else ConcatenatedPositions(vectors, width)

"""Positions, by which a model without recurrence knows the order of words.

`SinusoidalPositions` and `LearnedPositions` make one vector per position; `AddedPositions` and `ConcatenatedPositions`
join them to embeddings, and `NoPositions` returns embeddings unchanged. Each of these three has `embedding_width`, the
width of the embeddings that it takes, and `forward(embedded (B, T, embedding_width), offset, mask) -> (B, T, D)`, where
`offset` is the index of the first position (incremental decoding). `RotaryPositions` act inside attention instead, on
queries and keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.kernels.precision import widened

BASE = 10000.0
"""Ratio of the longest wavelength to the shortest, 2 pi."""


class PositionError(UserError):
    """Segment with more tokens than learned positions. row: its index in the batch; length: its tokens."""

    def __init__(self, row: int, length: int, maximum: int):
        super().__init__(
            f"segment {row + 1} of the batch has {length} tokens, but only {maximum} positions are learned; "
            "shorten it, train with a larger maximum, or use sinusoidal positions"
        )
        self.row, self.length, self.maximum = row, length, maximum


class Positions(nn.Module):
    """Base of modules that make position vectors of `width` features."""

    width: int

    def vectors(self, length: int, offset: int) -> Tensor:
        """Return the vectors of positions offset .. offset + length - 1: (length, width)."""
        raise NotImplementedError

    def forward(self, length: int, offset: int = 0, mask: Tensor | None = None) -> Tensor:
        """Return `vectors`. mask (B, length) marks real tokens, so that an error can name the segment."""
        return self.vectors(length, offset)


class SinusoidalPositions(Positions):
    """Fixed sinusoids (Vaswani et al. 2017, section 3.5).

    PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(p / 10000^(2i/D)), so that PE(p + k) = R(k) PE(p) for a
    rotation R(k). They are computed on demand, so no position is too far.
    """

    def __init__(self, width: int):
        super().__init__()
        self.width = _even(width, "SinusoidalPositions: width")
        self.register_buffer("frequencies", _frequencies(width), persistent=False)
        self.frequencies: Tensor

    def vectors(self, length: int, offset: int) -> Tensor:
        angles = _angles(self.frequencies, length, offset)
        pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (length, width / 2, 2)
        return pairs.flatten(1).to(self.frequencies.dtype)


class LearnedPositions(Positions):
    """Learned vectors for the first `maximum` positions (Gehring et al. 2017, section 3.1)."""

    def __init__(self, width: int, maximum: int):
        super().__init__()
        if width < 1:
            raise UserError(f"LearnedPositions: width must be positive, got {width}")
        if maximum < 2:
            raise UserError(f"maximum_positions={maximum} must be at least 2: one token and the end of the sentence")
        self.width = width
        self.weight = nn.Parameter(torch.empty(maximum, width).normal_(std=width**-0.5))

    @property
    def maximum(self) -> int:
        return self.weight.shape[0]

    def vectors(self, length: int, offset: int) -> Tensor:
        return self.weight[offset : offset + length]

    def forward(self, length: int, offset: int = 0, mask: Tensor | None = None) -> Tensor:
        """Return `vectors`, zeros past `maximum` in columns that hold only padding.

        Raises:
            PositionError: a segment has a token past `maximum`.
        """
        if offset + length > self.maximum:
            lengths = [length] if mask is None else (mask.long().cumsum(1).argmax(1) + mask.any(1).long()).tolist()
            for row, tokens in enumerate(lengths):
                if offset + tokens > self.maximum:
                    raise PositionError(row, offset + tokens, self.maximum)
            missing = self.weight.new_zeros(offset + length - max(offset, self.maximum), self.width)
            return torch.cat([self.vectors(length, offset), missing])
        return self.vectors(length, offset)


class NoPositions(nn.Module):
    """Embeddings without positions: self-attention then treats a sentence as a bag of words."""

    def __init__(self, width: int):
        super().__init__()
        self.embedding_width = width

    def forward(self, embedded: Tensor, offset: int = 0, mask: Tensor | None = None) -> Tensor:
        return embedded


class AddedPositions(nn.Module):
    """Sum of embeddings and positions, both of the model's width."""

    def __init__(self, positions: Positions):
        super().__init__()
        self.positions = positions
        self.embedding_width = positions.width

    def forward(self, embedded: Tensor, offset: int = 0, mask: Tensor | None = None) -> Tensor:
        vectors: Tensor = self.positions(embedded.shape[1], offset, mask)
        return embedded + vectors.to(embedded.dtype)


class ConcatenatedPositions(nn.Module):
    """Embeddings and positions side by side: of the model's `width` features, embeddings get what positions leave."""

    def __init__(self, positions: Positions, width: int):
        super().__init__()
        if positions.width >= width:
            raise UserError(f"ConcatenatedPositions: {positions.width} of {width} features leave none for embeddings")
        self.positions = positions
        self.embedding_width = width - positions.width

    def forward(self, embedded: Tensor, offset: int = 0, mask: Tensor | None = None) -> Tensor:
        vectors: Tensor = self.positions(embedded.shape[1], offset, mask)
        return torch.cat([embedded, vectors.to(embedded.dtype).expand(embedded.shape[0], -1, -1)], dim=-1)


@dataclass(frozen=True)
class Rotation:
    """Rotation by the angles of T positions: cosines and sines (T, d/2), computed once for all layers and heads."""

    cosine: Tensor
    sine: Tensor

    def __call__(self, heads: Tensor) -> Tensor:
        """Turn each pair of features (i, i + d/2) by the angle of its position: (B, H, T, d) -> (B, H, T, d)."""
        first, second = heads.chunk(2, dim=-1)
        cosine, sine = self.cosine.to(heads.dtype), self.sine.to(heads.dtype)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


class RotaryPositions(nn.Module):
    """Rotary positions (Su et al. 2021) for attention heads of `width` features.

    Queries and keys are rotated by p / 10000^(2i/d), so that their dot product depends only on contents and distance.
    """

    def __init__(self, width: int):
        super().__init__()
        _even(width, "RotaryPositions: width")
        self.register_buffer("frequencies", _frequencies(width), persistent=False)
        self.frequencies: Tensor

    def forward(self, length: int, offset: int = 0) -> Rotation:
        """Return the rotation of positions offset .. offset + length - 1."""
        angles = _angles(self.frequencies, length, offset)
        return Rotation(angles.cos(), angles.sin())


def _even(width: int, name: str) -> int:
    if width < 2 or width % 2:
        raise UserError(f"{name} must be even and positive, got {width}")
    return width


def _frequencies(width: int) -> Tensor:
    return torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(BASE) / width)).float()


def _angles(frequencies: Tensor, length: int, offset: int) -> Tensor:
    """(length, width / 2), in float32 or wider: half precision cannot tell far positions apart."""
    wide = widened(frequencies)
    positions = torch.arange(offset, offset + length, device=wide.device, dtype=wide.dtype)
    return torch.outer(positions, wide)

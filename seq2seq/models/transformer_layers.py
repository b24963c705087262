"""Transformer layers (Vaswani et al. 2017), with layer normalization before or after each sublayer."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from seq2seq.attention.key_value_cache import KeyValueCache
from seq2seq.attention.multihead import MultiHeadAttention
from seq2seq.errors import UserError
from seq2seq.kernels.dropout import Dropout, add_dropout
from seq2seq.kernels.layer_norm import LayerNorm
from seq2seq.kernels.product import Linear
from seq2seq.layers.positions import Rotation


class FeedForward(nn.Module):
    """Feed-forward sublayer, W_2 relu(W_1 x + b_1) + b_2 (equation 2), dropout after the relu: (..., D) -> (..., D)."""

    def __init__(self, width: int, hidden_width: int, dropout: float = 0.0) -> None:
        super().__init__()
        if min(width, hidden_width) < 1:
            raise UserError(f"a feed-forward layer needs positive widths, got {width} and {hidden_width}")
        self.hidden = Linear(width, hidden_width)
        self.output = Linear(hidden_width, width)
        self.dropout = Dropout(dropout)
        for linear in (self.hidden, self.output):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self.hidden(inputs.flatten(0, -2))  # (N, F), no view, so that autograd lets the relu change it in place
        outputs: Tensor = self.output(self.dropout(F.relu(rows, inplace=True)))
        return outputs.view(inputs.shape)  # (..., D)


class PreNorm(nn.Module):
    """Residual connection x + dropout(sublayer(norm(x))): the sublayer reads `before(x)`, `after(x, its result)` is the
    sum.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = LayerNorm(width)
        self.rate = Dropout(dropout).rate

    def before(self, inputs: Tensor) -> Tensor:
        normalized: Tensor = self.norm(inputs)
        return normalized

    def after(self, inputs: Tensor, result: Tensor) -> Tensor:
        return add_dropout(inputs, result, self.rate, self.training)


class PostNorm(nn.Module):
    """Residual connection norm(x + dropout(sublayer(x))), as in the paper; used like `PreNorm`."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = LayerNorm(width)
        self.rate = Dropout(dropout).rate

    def before(self, inputs: Tensor) -> Tensor:
        return inputs

    def after(self, inputs: Tensor, result: Tensor) -> Tensor:
        normalized: Tensor = self.norm(add_dropout(inputs, result, self.rate, self.training))
        return normalized


RESIDUALS: dict[str, type[PreNorm] | type[PostNorm]] = {"pre": PreNorm, "post": PostNorm}


class TransformerEncoderLayer(nn.Module):
    """Self-attention and a feed-forward layer (section 3.1).

    norm: "pre" or "post", see `PreNorm` and `PostNorm`. dropout: on the sublayers' results; attention_dropout: on
    attention weights; activation_dropout: inside the feed-forward layer. window: radius of restricted self-attention
    (None: the whole sentence).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        feedforward_width: int,
        norm: str = "pre",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        window: int | None = None,
    ) -> None:
        super().__init__()
        residual = RESIDUALS[norm]
        self.self_attention = MultiHeadAttention(width, heads, attention_dropout, window)
        self.self_attention_residual = residual(width, dropout)
        self.feed_forward = FeedForward(width, feedforward_width, activation_dropout)
        self.feed_forward_residual = residual(width, dropout)

    def forward(self, inputs: Tensor, mask: Tensor | None = None, rotation: Rotation | None = None) -> Tensor:
        """inputs (B, S, D), mask (B, S) -> (B, S, D)."""
        attended, _ = self.self_attention(self.self_attention_residual.before(inputs), mask=mask, rotation=rotation)
        hidden = self.self_attention_residual.after(inputs, attended)
        result = self.feed_forward(self.feed_forward_residual.before(hidden))
        outputs: Tensor = self.feed_forward_residual.after(hidden, result)
        return outputs


class TransformerDecoderLayer(nn.Module):
    """Causal self-attention, attention over the memory and a feed-forward layer (section 3.1).

    Arguments are those of `TransformerEncoderLayer`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        feedforward_width: int,
        norm: str = "pre",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        window: int | None = None,
    ) -> None:
        super().__init__()
        residual = RESIDUALS[norm]
        self.self_attention = MultiHeadAttention(width, heads, attention_dropout, window)
        self.self_attention_residual = residual(width, dropout)
        self.cross_attention = MultiHeadAttention(width, heads, attention_dropout)
        self.cross_attention_residual = residual(width, dropout)
        self.feed_forward = FeedForward(width, feedforward_width, activation_dropout)
        self.feed_forward_residual = residual(width, dropout)

    def forward(
        self, inputs: Tensor, memory: Tensor, memory_mask: Tensor | None = None, rotation: Rotation | None = None
    ) -> Tensor:
        """inputs (B, T, D), padded on the right if at all; memory (B, S, D), memory_mask (B, S) -> (B, T, D)."""
        attended, _ = self.self_attention(self.self_attention_residual.before(inputs), causal=True, rotation=rotation)
        hidden = self.self_attention_residual.after(inputs, attended)
        keys, values = self.cross_attention.project_memory(memory)
        return self._finish(hidden, keys, values, memory_mask, False)[0]

    def step(
        self,
        inputs: Tensor,
        cache: KeyValueCache,
        layer: int,
        keys: Tensor,
        values: Tensor,
        memory_mask: Tensor,
        rotation: Rotation | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Run the next position of K rows of each sentence: inputs (B, K, D) -> (B, K, D), weights over the memory
        (B, H, K, S) if needed.

        cache: just extended; layer: this layer's number in it. keys, values (B, H, S, d): those of
        `cross_attention.project_memory`.
        """
        attended = self.self_attention.step(self.self_attention_residual.before(inputs), cache, layer, rotation)
        hidden = self.self_attention_residual.after(inputs, attended)
        return self._finish(hidden, keys, values, memory_mask, need_weights)

    def _finish(
        self, hidden: Tensor, keys: Tensor, values: Tensor, memory_mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        query = self.cross_attention_residual.before(hidden)
        attended, weights = self.cross_attention.attend(query, keys, values, memory_mask, need_weights)
        hidden = self.cross_attention_residual.after(hidden, attended)
        result = self.feed_forward(self.feed_forward_residual.before(hidden))
        return self.feed_forward_residual.after(hidden, result), weights

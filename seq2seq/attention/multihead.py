"""Multi-head attention (Vaswani et al. 2017, section 3.2.2)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seq2seq.attention.key_value_cache import KeyValueCache
from seq2seq.attention.masks import band_mask, causal_mask, masked_softmax
from seq2seq.attention.windows import Windows
from seq2seq.errors import UserError
from seq2seq.kernels.dropout import dropout
from seq2seq.kernels.product import Linear, Shape, linear
from seq2seq.kernels.split_heads import split_heads
from seq2seq.layers.positions import Rotation

FEW_QUERIES = 8
"""Up to this many queries, plain matrix products are faster on a CPU than torch's own attention."""


class MultiHeadAttention(nn.Module):
    """head_i = softmax(Q W_i^Q (K W_i^K)^T / sqrt(d)) V W_i^V, output = [head_1; ..; head_H] W^O, d = D / H.

    One module serves self-attention (`forward` without memory, and `step`) and attention over a memory (`forward` with
    one, or `project_memory` once and then `attend`). Parameters are laid out as in torch.nn.MultiheadAttention:
    `in_weight` (3D, D) holds W^Q, W^K, W^V. A query with nothing to attend yields the output layer's bias, and
    passes no gradient to queries, keys or values.

    dropout: on the weights. window: restricts self-attention to this many positions on either side (to the left, when
    causal), in time and memory O(S window). Weights are returned on request only.
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0, window: int | None = None):
        super().__init__()
        if min(width, heads) < 1 or width % heads:
            raise UserError(f"attention: heads must divide the width, got {heads} heads and width {width}")
        if not 0 <= dropout < 1:
            raise UserError(f"attention: dropout must be at least 0 and less than 1, got {dropout}")
        if window is not None and window < 0:
            raise UserError(f"attention: window must be 0 or more, or none, got {window}")
        self.width, self.heads, self.dropout, self.window = width, heads, dropout, window
        self.in_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_bias = nn.Parameter(torch.zeros(3 * width))
        self.output = Linear(width, width)
        nn.init.xavier_uniform_(self.in_weight)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(
        self,
        query: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        rotation: Rotation | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """query (B, Q, D), memory (B, S, D) (None: self-attention, S = Q), mask (B, S) or (B, Q, S) -> output
        (B, Q, D), weights (B, H, Q, S) or None.

        `causal` and `rotation`, that of the S positions, belong to self-attention. Causal self-attention over sequences
        padded on the right needs no mask: only padding attends padding.
        """
        if memory is not None:
            keys, values = self.project_memory(memory)
            return self.attend(query, keys, values, mask, need_weights)
        packed = linear(query, self.in_weight, self.in_bias)
        if self.window is not None:
            if not need_weights and (mask is None or mask.dim() == 2) and not torch.compiler.is_compiling():
                return self._attend_windows(packed, mask, causal, rotation), None
            mask = _both(mask, band_mask(query.shape[1], self.window, causal, query.device))
            causal = False
        queries, keys, values = split_heads(packed, 3, self.heads)
        if rotation is not None:
            queries, keys = rotation(queries), rotation(keys)
        return self._finish(queries, keys, values, mask, causal, need_weights)

    def weight_shapes(self) -> list[Shape]:
        return [(parts * self.width, self.width) for parts in (1, 2, 3)]

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project a memory for `attend`: memory (B, S, D) -> keys, values (B, H, S, d)."""
        packed = linear(memory, self.in_weight[self.width :], self.in_bias[self.width :])
        keys, values = split_heads(packed, 2, self.heads)
        return keys, values

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to a projected memory; in search the Q queries are a sentence's K beams.

        query (B, Q, D), keys and values (B, H, S, d), mask (B, S) or (B, Q, S) -> output (B, Q, D), weights
        (B, H, Q, S) or None.
        """
        (queries,) = split_heads(linear(query, self.in_weight[: self.width], self.in_bias[: self.width]), 1, self.heads)
        return self._finish(queries, keys, values, mask, False, need_weights)

    def step(self, query: Tensor, cache: KeyValueCache, layer: int, rotation: Rotation | None = None) -> Tensor:
        """Attend from one new position of K rows to their past: query (B, K, D), a cache just extended -> (B, K, D).

        The position's keys and values are appended to the cache. The rotation is that of this one position.
        """
        queries, keys, values = split_heads(linear(query, self.in_weight, self.in_bias), 3, self.heads)
        if rotation is not None:
            queries, keys = rotation(queries), rotation(keys)
        keys, values, bias = cache.append(layer, keys, values, self.window)
        rate = self.dropout if self.training else 0.0
        if _on_cpu(queries) and queries.shape[2] <= FEW_QUERIES:
            heads = self._explicit(queries, keys, values, bias, rate)
        else:
            heads = F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias, dropout_p=rate)
        output: Tensor = self.output(_merge(heads))
        return output

    def _attend_windows(self, packed: Tensor, mask: Tensor | None, causal: bool, rotation: Rotation | None) -> Tensor:
        assert self.window is not None
        if rotation is not None:
            queries, keys, values = split_heads(packed, 3, self.heads)
            packed = torch.cat([_merge(rotation(queries)), _merge(rotation(keys)), _merge(values)], dim=-1)
        windows = Windows.of(packed.shape[1], self.window, causal)
        (queries,) = split_heads(windows.queries(packed[..., : self.width]), 1, self.heads)
        keys, values = split_heads(windows.keys(packed[..., self.width :]), 2, self.heads)
        allowed = windows.mask(packed.shape[0], mask, packed.device)
        output: Tensor = self.output(windows.merge(self._heads(queries, keys, values, allowed, False)))
        return output

    def _finish(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        if not need_weights:
            return self.output(self._heads(queries, keys, values, mask, causal)), None
        if causal:
            mask = _both(mask, causal_mask(queries.shape[2], queries.device))
        scores = torch.matmul(queries * self._scale, keys.transpose(-1, -2))
        weights = masked_softmax(scores, None if mask is None else _for_heads(mask))
        heads = torch.matmul(dropout(weights, self.dropout, self.training), values)
        return self.output(_merge(heads)), weights

    def _heads(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """queries (B, H, Q, d), keys and values (B, H, S, d), mask (B, S) or (B, Q, S) -> heads side by side (B, Q, D).

        A query with nothing to attend yields zeros.
        """
        if causal and mask is not None:
            mask, causal = _both(mask, causal_mask(queries.shape[2], queries.device)), False
        bias = None if mask is None else _bias(_for_heads(mask), queries.dtype)
        rate = self.dropout if self.training else 0.0
        if _on_cpu(queries) and (rate > 0 or queries.shape[2] <= FEW_QUERIES):
            # On a CPU torch's own attention takes twice as long for few queries, and with dropout.
            if causal:
                bias = _bias(causal_mask(queries.shape[2], queries.device), queries.dtype)
            heads = self._explicit(queries, keys, values, bias, rate)
        else:
            heads = F.scaled_dot_product_attention(
                queries, keys, values, attn_mask=bias, dropout_p=rate, is_causal=causal, scale=self._scale
            )
        merged = _merge(heads)
        if mask is None:
            return merged
        allowed = mask.any(-1)
        if _on_cpu(allowed) and bool(allowed.all()):  # on other devices, reading the value would synchronize
            return merged
        return torch.where(allowed.view(allowed.shape[0], -1, 1), merged, 0.0)

    def _explicit(self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, rate: float) -> Tensor:
        """Attend by plain matrix products: queries (B, H, Q, d), keys and values (B, H, S, d), bias as in `_bias` ->
        (B, H, Q, d).
        """
        batch, heads, length, width = queries.shape
        size = keys.shape[2]
        queries, keys, values = (part.reshape(batch * heads, -1, width) for part in (queries, keys, values))
        if bias is None:
            scores = torch.bmm(queries * self._scale, keys.transpose(1, 2))  # (B * H, Q, S)
        else:
            if bias.dim() == 4:
                bias = bias.expand(batch, heads, -1, size).reshape(batch * heads, -1, size)
            scores = torch.baddbmm(bias, queries, keys.transpose(1, 2), alpha=self._scale)
        weights = dropout(torch.softmax(scores, dim=-1), rate, True)
        return torch.bmm(weights, values).view(batch, heads, length, width)

    @property
    def _scale(self) -> float:
        return 1 / math.sqrt(self.width // self.heads)


def _merge(heads: Tensor) -> Tensor:
    """heads (B, H, Q, d) -> side by side (B, Q, D)."""
    return heads.transpose(1, 2).flatten(2)


def _for_heads(mask: Tensor) -> Tensor:
    """mask (B, S) -> (B, 1, 1, S); (B, Q, S) -> (B, 1, Q, S)."""
    return mask[:, None, None] if mask.dim() == 2 else mask[:, None]


def _both(mask: Tensor | None, square: Tensor) -> Tensor:
    """Intersect mask (B, S) or (B, S, S) with square (S, S) -> (B or 1, S, S)."""
    if mask is None:
        return square.unsqueeze(0)
    return square & (mask.unsqueeze(1) if mask.dim() == 2 else mask)


def _bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """mask -> numbers to add to scores: 0 where it allows, elsewhere so low that the weight is exactly 0.

    They are finite, so that the weights of a query with nothing to attend stay finite until they are zeroed.
    """
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min / 2)


def _on_cpu(tensor: Tensor) -> bool:
    """Report if shortcuts for a CPU apply: they read sizes and values, which compiled and exported graphs cannot."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()

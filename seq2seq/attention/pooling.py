"""Attention pooling, where attention began: regression as a weighted average of observed values.

Each takes queries (B, Q, Dq), keys (B, S, Dk), values (B, S, Dv) and a mask (B, S) or (B, Q, S), and gives the
prediction (B, Q, Dv) and the weights (B, Q, S). Both are `Attention` with a particular score.

Unprojected self-attention, softmax(X X^T / sqrt(d)) X, needs no class: it is
`Attention(ScaledDotScore(d), SoftAlignment())(X, X, X)`.
"""

from __future__ import annotations

from seq2seq.attention.alignments import SoftAlignment
from seq2seq.attention.attention import Attention
from seq2seq.attention.scores import GaussianScore, UniformScore


class AveragePooling(Attention):
    """f(q) = 1/S sum_s v_s, whatever the query."""

    def __init__(self) -> None:
        super().__init__(UniformScore(), SoftAlignment())


class NadarayaWatson(Attention):
    """f(q) = sum_s softmax_s(-|q - k_s|^2 / (2 width^2)) v_s: kernel regression (Nadaraya 1964, Watson 1964).

    Non-parametric, or with a width that is `learned`, starting from `width`.
    """

    def __init__(self, width: float = 1.0, learned: bool = False):
        super().__init__(GaussianScore(width, learned), SoftAlignment())

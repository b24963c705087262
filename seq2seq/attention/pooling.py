"""Attention pooling, the origin of attention: regression as a weighted average of observed values.

Both classes are `Attention` with a particular score: they take queries (B, Q, Dq), keys (B, S, Dk), values (B, S, Dv)
and a mask (B, S) or (B, Q, S), and return the prediction (B, Q, Dv) and the weights (B, Q, S).

Unprojected self-attention, softmax(X X^T / sqrt(d)) X, needs no class: it is
`Attention(ScaledDotScore(d), SoftAlignment())(X, X, X)`.
"""

from __future__ import annotations

from seq2seq.attention.alignments import SoftAlignment
from seq2seq.attention.attention import Attention
from seq2seq.attention.scores import GaussianScore, UniformScore


class AveragePooling(Attention):
    """Mean of the values, f(q) = 1/S sum_s v_s, whatever the query."""

    def __init__(self) -> None:
        super().__init__(UniformScore(), SoftAlignment())


class NadarayaWatson(Attention):
    """Kernel regression, f(q) = sum_s softmax_s(-|q - k_s|^2 / (2 width^2)) v_s (Nadaraya 1964, Watson 1964).

    The width is fixed, or a parameter with `width` as its initial value (`learned`).
    """

    def __init__(self, width: float = 1.0, learned: bool = False):
        super().__init__(GaussianScore(width, learned), SoftAlignment())

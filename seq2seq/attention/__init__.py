"""Attention: scores, alignments, pooling and multi-head attention, as plain torch modules."""

from seq2seq.attention.alignments import (
    Alignment,
    HardAlignment,
    HardMarginalAlignment,
    LocalMonotonicAlignment,
    LocalPredictiveAlignment,
    SoftAlignment,
    UnnormalizedAlignment,
)
from seq2seq.attention.attention import Attention
from seq2seq.attention.key_value_cache import KeyValueCache
from seq2seq.attention.masks import band_mask, causal_mask, lengths_to_mask, masked_log_softmax, masked_softmax
from seq2seq.attention.memory import AttentionMemory
from seq2seq.attention.multihead import MultiHeadAttention
from seq2seq.attention.pooling import AveragePooling, NadarayaWatson
from seq2seq.attention.reinforce import reinforce_loss
from seq2seq.attention.scores import (
    AdditiveScore,
    DotScore,
    GaussianScore,
    GeneralScore,
    ScaledDotScore,
    Score,
    UniformScore,
)
from seq2seq.attention.windows import Windows

__all__ = [
    "AdditiveScore",
    "Alignment",
    "Attention",
    "AttentionMemory",
    "AveragePooling",
    "DotScore",
    "GaussianScore",
    "GeneralScore",
    "HardAlignment",
    "HardMarginalAlignment",
    "KeyValueCache",
    "LocalMonotonicAlignment",
    "LocalPredictiveAlignment",
    "MultiHeadAttention",
    "NadarayaWatson",
    "ScaledDotScore",
    "Score",
    "SoftAlignment",
    "UniformScore",
    "UnnormalizedAlignment",
    "Windows",
    "band_mask",
    "causal_mask",
    "lengths_to_mask",
    "masked_log_softmax",
    "masked_softmax",
    "reinforce_loss",
]

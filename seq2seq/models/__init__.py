"""Translation models (`seq2seq.interfaces.Model`), each built by one function from plain values."""

from seq2seq.models.bahdanau import create_bahdanau
from seq2seq.models.conditional_gru import create_conditional_gru
from seq2seq.models.conv import create_conv
from seq2seq.models.luong import create_luong
from seq2seq.models.rnn import create_rnn
from seq2seq.models.transformer import create_transformer

__all__ = [
    "create_bahdanau",
    "create_conditional_gru",
    "create_conv",
    "create_luong",
    "create_rnn",
    "create_transformer",
]

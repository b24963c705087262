"""Parts of every model: an encoder, a decoder and an output layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor, nn

from seq2seq.attention import AttentionMemory
from seq2seq.errors import UserError
from seq2seq.interfaces import DecoderOutput
from seq2seq.layers.embedding import Embedding
from seq2seq.layers.output import OutputLayer
from seq2seq.layers.positions import LearnedPositions


class Decoder(Protocol):
    """Decoder's half of `interfaces.Model`, with the same contract."""

    def __call__(self, target_in: Tensor, memory: Any, target_mask: Tensor | None = None) -> DecoderOutput: ...

    def start(self, memory: Any) -> Any: ...

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor | None]: ...


class EncoderDecoder(nn.Module):
    """Model (`interfaces.Model`) composed of its parts, each a module.

    encoder: source (B, S), mask (B, S) -> memory. decoder: see `Decoder`. attends: True if `step` returns weights.
    """

    def __init__(
        self, encoder: Callable[[Tensor, Tensor], Any], decoder: Decoder, output: OutputLayer, attends: bool
    ) -> None:
        super().__init__()
        self.encoder: Callable[[Tensor, Tensor], Any] = encoder
        self.decoder: Decoder = decoder
        self.output = output
        self.attends = attends
        self.longest_source = _learned_positions(encoder)
        self.longest_output = _learned_positions(decoder)

    def encode(self, source: Tensor, mask: Tensor) -> Any:
        return self.encoder(source, mask)

    def decode(self, target_in: Tensor, memory: Any, target_mask: Tensor | None = None) -> DecoderOutput:
        return self.decoder(target_in, memory, target_mask)

    def start(self, memory: Any) -> Any:
        return self.decoder.start(memory)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor | None]:
        return self.decoder.step(tokens, state)

    def logits(self, features: Tensor, out: Tensor | None = None) -> Tensor:
        logits: Tensor = self.output(features, out)
        return logits


def _learned_positions(part: Any) -> int | None:
    """Most tokens, without EOS, for which `part` has learned positions; None where it has no such limit."""
    learned = [layer.maximum for layer in part.modules() if isinstance(layer, LearnedPositions)]
    return min(learned) - 1 if learned else None


def create_vocabulary_layers(
    source_vocabulary: int,
    target_vocabulary: int,
    joint_vocabulary: bool,
    tie_embeddings: bool,
    embedding_width: int,
    width: int,
    word_dropout: float,
) -> tuple[Embedding, Embedding, OutputLayer]:
    """Create source embedding, target embedding, and an output layer over features of `width`.

    With tie_embeddings, target embedding and output layer share one matrix, and with a joint vocabulary the source
    embedding shares it too (Press and Wolf 2017; Vaswani et al. 2017, section 3.4). Embedded tokens have unit variance.
    word_dropout: see `Embedding`.
    """
    if tie_embeddings and embedding_width != width:
        raise UserError(
            f"tie_embeddings=true needs embedding_width = width, got {embedding_width} and {width}; "
            "make them equal or set model.tie_embeddings=false"
        )
    if tie_embeddings and joint_vocabulary and source_vocabulary != target_vocabulary:
        raise UserError(
            f"joint_vocabulary=true needs one vocabulary, got source_vocabulary={source_vocabulary} and "
            f"target_vocabulary={target_vocabulary}"
        )
    if embedding_width < 1:
        raise UserError(f"widths must be positive, got {embedding_width}")
    scale = math.sqrt(embedding_width)
    target = Embedding(target_vocabulary, embedding_width, scale, None, word_dropout)
    shared = target.weight if tie_embeddings and joint_vocabulary else None
    source = Embedding(source_vocabulary, embedding_width, scale, shared, word_dropout)
    output = OutputLayer(width, target_vocabulary, target.weight if tie_embeddings else None)
    return source, target, output


def remaining_sentences(rows: Tensor, sentences: int, beams: int) -> Tensor | None:
    """Return the sentences (B',) of the lines of `State.select`'s rows (B', K'), or None if none has left.

    sentences and beams are the old B and K.
    """
    return None if rows.shape[0] == sentences else rows[:, 0] // beams


def remaining_memory(memory: AttentionMemory, rows: Tensor, count: int) -> AttentionMemory:
    """Return the memory of the sentences that rows (B', K') belong to, `count` being the old number of rows."""
    sentences = len(memory.mask)
    remaining = remaining_sentences(rows, sentences, count // sentences)
    return memory if remaining is None else memory.select(remaining)

"""The fixed-context encoder-decoder, in which the source reaches the decoder only as a vector of fixed size.

This is the bottleneck that attention removed. Cho et al. 2014 give the vector to the decoder at every step, Sutskever
et al. 2014 only as the initial state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.interfaces import DecoderOutput
from seq2seq.kernels.dropout import Dropout
from seq2seq.layers.embedding import Embedding
from seq2seq.layers.recurrent import LAYERS, RecurrentEncoder, RecurrentStack, reversal
from seq2seq.models.encoder_decoder import EncoderDecoder, create_vocabulary_layers, remaining_sentences
from seq2seq.models.recurrent_parts import (
    InitialState,
    LayerStates,
    Readout,
    SourceReader,
    select_layers,
)


@dataclass(frozen=True)
class FixedContext:
    """final: each encoder layer's final state, tensors (B, D). mask (B, S) is kept only to count tokens."""

    final: LayerStates
    mask: Tensor


@dataclass(frozen=True)
class FixedContextState:
    """layers: tensors (N, D). context (B, D), shared by a sentence's rows."""

    layers: LayerStates
    context: Tensor

    def select(self, rows: Tensor) -> FixedContextState:
        sentences = len(self.context)
        stay = remaining_sentences(rows, sentences, len(self.layers[0][0]) // sentences)
        context = self.context if stay is None else self.context.index_select(0, stay)
        return FixedContextState(select_layers(self.layers, rows), context)


class FixedContextEncoder(nn.Module):
    """Encoder that keeps only final states. reverse: read each sentence's real tokens backwards."""

    def __init__(self, reader: SourceReader, reverse: bool) -> None:
        super().__init__()
        self.reader = reader
        self.reverse = reverse

    def forward(self, source: Tensor, mask: Tensor) -> FixedContext:
        if self.reverse:
            source = source.gather(1, reversal(mask))
        return FixedContext(self.reader(source, mask).final, mask)


class EveryStepDecoder(nn.Module):
    """Decoder that sees the context at every step (Cho et al. 2014).

    The context c, the encoder's top final hidden state, sets the initial state, tanh(V c), enters the first layer's
    gates beside the previous word's embedding at every step, and enters the readout.
    """

    def __init__(
        self, embedding: Embedding, initial: InitialState, stack: RecurrentStack, readout: Readout, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.initial = initial
        self.stack = stack
        self.readout = readout
        self.dropout = Dropout(dropout)

    def forward(self, target_in: Tensor, memory: FixedContext, target_mask: Tensor | None = None) -> DecoderOutput:
        state = self.start(memory)
        return DecoderOutput(self._run(target_in, state.context, state.layers)[0])

    def start(self, memory: FixedContext) -> FixedContextState:
        context = memory.final[-1][0]
        return FixedContextState(self.initial(context), context)

    def step(self, tokens: Tensor, state: FixedContextState) -> tuple[Tensor, FixedContextState, None]:
        sentences, beams = state.context.shape[0], tokens.shape[0] // state.context.shape[0]
        context = state.context.unsqueeze(1).expand(sentences, beams, -1).flatten(0, 1)  # (B, D) -> (N, D)
        features, layers = self._run(tokens.unsqueeze(1), context, state.layers)
        return features[:, 0], replace(state, layers=layers), None

    def _run(self, tokens: Tensor, context: Tensor, layers: LayerStates) -> tuple[Tensor, LayerStates]:
        """tokens (N, T), context (N, D) -> features (N, T, D), states after the last step."""
        embedded = self.dropout(self.embedding(tokens))
        context = context.unsqueeze(1).expand(-1, tokens.shape[1], -1)  # (N, T, D)
        outputs, layers = self.stack(torch.cat([embedded, context], dim=-1), layers)
        return self.dropout(self.readout(outputs, context, embedded)), layers


class InitialStateDecoder(nn.Module):
    """Decoder whose layers start from the encoder's final states and see no more of the source (Sutskever et al. 2014).

    Features are the top layer's hidden states.
    """

    def __init__(self, embedding: Embedding, stack: RecurrentStack, dropout: float) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.dropout = Dropout(dropout)

    def forward(self, target_in: Tensor, memory: FixedContext, target_mask: Tensor | None = None) -> DecoderOutput:
        return DecoderOutput(self._run(target_in, memory.final)[0])

    def start(self, memory: FixedContext) -> FixedContextState:
        return FixedContextState(memory.final, memory.final[-1][0])

    def step(self, tokens: Tensor, state: FixedContextState) -> tuple[Tensor, FixedContextState, None]:
        features, layers = self._run(tokens.unsqueeze(1), state.layers)
        return features[:, 0], replace(state, layers=layers), None

    def _run(self, tokens: Tensor, layers: LayerStates) -> tuple[Tensor, LayerStates]:
        """tokens (N, T) -> features (N, T, D), states after the last step."""
        outputs, layers = self.stack(self.dropout(self.embedding(tokens)), layers)
        return self.dropout(outputs), layers


def create_rnn(
    source_vocabulary: int,
    target_vocabulary: int,
    joint_vocabulary: bool,
    width: int = 256,
    embedding_width: int | None = None,
    layers: int = 1,
    cell: str = "gru",
    bidirectional: bool = True,
    reverse_source: bool = False,
    context: str = "every_step",
    readout: str = "tanh",
    dropout: float = 0.2,
    word_dropout: float = 0.0,
    tie_embeddings: bool = True,
) -> EncoderDecoder:
    """Create a fixed-context model.

    embedding_width: None for `width`. cell: "gru" or "lstm". context: "every_step" (Cho et al. 2014) or "initial_state"
    (Sutskever et al. 2014, whose model also has reverse_source=true, bidirectional=false, cell="lstm", layers=4).
    readout: "tanh" or "maxout"; context="initial_state" has no readout and needs "tanh", the default.
    """
    embedding_width = width if embedding_width is None else embedding_width
    source_embedding, target_embedding, output = create_vocabulary_layers(
        source_vocabulary, target_vocabulary, joint_vocabulary, tie_embeddings, embedding_width, width, word_dropout
    )
    reader = SourceReader(
        source_embedding,
        RecurrentEncoder(cell, embedding_width, width, layers, bidirectional, dropout),
        dropout,
    )
    decoder: EveryStepDecoder | InitialStateDecoder
    if context == "every_step":
        decoder = EveryStepDecoder(
            target_embedding,
            InitialState(width, width, layers, LAYERS[cell].state_tensors),
            RecurrentStack(cell, embedding_width + width, width, layers, dropout),
            Readout(width, width, embedding_width, width, readout),
            dropout,
        )
    elif context == "initial_state":
        if readout != "tanh":
            raise UserError(f"readout={readout!r} needs context=every_step; leave it at tanh with initial_state.")
        decoder = InitialStateDecoder(
            target_embedding, RecurrentStack(cell, embedding_width, width, layers, dropout), dropout
        )
    else:
        raise UserError(f"context={context!r} is unknown; choose every_step or initial_state.")
    return EncoderDecoder(FixedContextEncoder(reader, reverse_source), decoder, output, attends=False)

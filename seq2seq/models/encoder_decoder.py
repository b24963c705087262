"""What every model is made of: an encoder, a decoder and an output layer."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from seq2seq.interfaces import DecoderOutput
from seq2seq.layers.output import OutputLayer


class Decoder(Protocol):
    """The decoder's half of `interfaces.Model`, same contract."""

    def __call__(self, target_in: Tensor, memory: Any, target_mask: Tensor | None = None) -> DecoderOutput: ...

    def start(self, memory: Any) -> Any: ...

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor | None]: ...


class EncoderDecoder(nn.Module):
    """A model (`interfaces.Model`) from its parts.

    encoder(source (B, S), mask (B, S)) -> memory; decoder as in `Decoder`. attends: whether `step` returns weights.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module, output: OutputLayer, attends: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.output = output
        self.attends = attends

    def encode(self, source: Tensor, mask: Tensor) -> Any:
        return self.encoder(source, mask)

    def decode(self, target_in: Tensor, memory: Any, target_mask: Tensor | None = None) -> DecoderOutput:
        return self.decoder(target_in, memory, target_mask)

    def start(self, memory: Any) -> Any:
        return self.decoder.start(memory)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor | None]:
        return self.decoder.step(tokens, state)

    def logits(self, features: Tensor) -> Tensor:
        return self.output(features)


def remaining_sentences(rows: Tensor, sentences: int, beams: int) -> Tensor | None:
    """Which sentences the lines of `State.select`'s rows (B', K') belong to: (B',), or None if none has left.

    sentences and beams are the old B and K.
    """
    return None if rows.shape[0] == sentences else rows[:, 0] // beams


def unchanged(rows: Tensor, count: int) -> bool:
    """Whether rows (B', K') name all `count` old rows in their old order, so that a state need not be touched."""
    return rows.numel() == count and bool(torch.equal(rows.flatten(), torch.arange(count, device=rows.device)))

"""Attention as a score combined with an alignment."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seq2seq.attention.alignments import Alignment
from seq2seq.attention.memory import AttentionMemory
from seq2seq.attention.scores import Score
from seq2seq.errors import UserError
from seq2seq.interfaces import AttentionOutput


class Attention(nn.Module):
    """Map from queries to contexts: `score` rates keys, `alignment` turns scores into weights over values.

    A model calls `prepare` once per source, then `attend` at each step. The Q queries of a sentence share its memory;
    they may be T target positions in training or K beams in search. `forward` does both at once.
    """

    def __init__(self, score: Score, alignment: Alignment):
        super().__init__()
        self.score = score
        self.alignment = alignment

    def prepare(self, values: Tensor, mask: Tensor | None = None, keys: Tensor | None = None) -> AttentionMemory:
        """Project the keys, once per source.

        values (B, S, Dv), mask (B, S) or (B, Q, S) (None: all may be attended), keys (B, S, Dk) (None: the values).
        """
        if mask is None:
            mask = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
        if mask.dtype != torch.bool or mask.shape[-1] != values.shape[1] or mask.dim() not in (2, 3):
            raise UserError(
                f"a mask over {values.shape[1]} values must be bool (B, S) or (B, Q, S), got {mask.dtype} "
                f"{tuple(mask.shape)}"
            )
        size = mask.shape[-1]
        lengths = torch.where(mask, torch.arange(1, size + 1, device=mask.device), 0).amax(-1)  # (B,) or (B, Q)
        projected = self.score.project(values if keys is None else keys)
        return AttentionMemory(projected, values, mask, lengths if mask.dim() == 3 else lengths.unsqueeze(1))

    def attend(self, query: Tensor, memory: AttentionMemory, position: Tensor | None = None) -> AttentionOutput:
        """query (B, Q, Dq), memory from `prepare` -> context (B, Q, Dv), weights (B, Q, S).

        position: int64, broadcastable to (B, Q), each query's index in the target (None: 0 .. Q - 1).
        """
        if position is None:
            position = torch.arange(query.shape[1], device=query.device)
        output: AttentionOutput = self.alignment(self.score, query, memory, position.expand(query.shape[:2]))
        return output

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, position: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Prepare and attend: query (B, Q, Dq), keys (B, S, Dk), values (B, S, Dv), mask (B, S) or (B, Q, S) ->
        context (B, Q, Dv), weights (B, Q, S).
        """
        output = self.attend(query, self.prepare(values, mask, keys), position)
        return output.context, output.weights

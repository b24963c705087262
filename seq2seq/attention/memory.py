"""What attention reads: one source's keys, values and mask, made ready once."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class AttentionMemory:
    """keys (B, S, A) as projected by the score, values (B, S, Dv), mask (B, S) or (B, Q, S).

    lengths (B, 1) or (B, Q), int64: one more than the last position that the mask allows.
    """

    keys: Tensor
    values: Tensor
    mask: Tensor
    lengths: Tensor

    @property
    def query_mask(self) -> Tensor:
        """The mask with an axis for queries: (B, 1, S) or (B, Q, S)."""
        return self.mask.unsqueeze(1) if self.mask.dim() == 2 else self.mask

    def select(self, sentences: Tensor) -> AttentionMemory:
        """Memory of the given sentences (B',), in that order."""
        return AttentionMemory(
            self.keys.index_select(0, sentences),
            self.values.index_select(0, sentences),
            self.mask.index_select(0, sentences),
            self.lengths.index_select(0, sentences),
        )

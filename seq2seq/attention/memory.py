"""Memory that attention reads: a source's projected keys, values and mask."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class AttentionMemory:
    """keys (B, S, A) as projected by the score, values (B, S, Dv), mask (B, S) or (B, Q, S).

    lengths (B, 1) or (B, Q), int64: one more than the last position that the mask allows, 0 where it allows none.
    """

    keys: Tensor
    values: Tensor
    mask: Tensor
    lengths: Tensor

    @property
    def query_mask(self) -> Tensor:
        """Mask with an axis for queries: (B, 1, S) or (B, Q, S)."""
        return self.mask.unsqueeze(1) if self.mask.dim() == 2 else self.mask

    def select(self, sentences: Tensor) -> AttentionMemory:
        """Return the memory of the given sentences (B',), in that order."""
        return AttentionMemory(
            self.keys.index_select(0, sentences),
            self.values.index_select(0, sentences),
            self.mask.index_select(0, sentences),
            self.lengths.index_select(0, sentences),
        )

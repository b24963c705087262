"""A long text's translation from those of the parts that went through the model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seq2seq.interfaces import Hypothesis
from seq2seq.search import Search


def one_line(text: str) -> str:
    """Line ends, which byte pieces can spell, become spaces: a translation is one line everywhere."""
    return text.replace("\n", " ").replace("\r", " ")


def joint_score(hypotheses: Sequence[Hypothesis], search: Search) -> float:
    """Of the translations of a text's parts taken as one: summed log-probability by summed length (no coverage)."""
    total = torch.tensor(sum(one.log_probability for one in hypotheses), dtype=torch.float64)
    return float(search.ranking.score(total, sum(len(one.tokens) + one.finished for one in hypotheses), 0.0))


def joint_attention(hypotheses: Sequence[Hypothesis]) -> Tensor | None:
    """(H, tokens, source tokens), the parts' attention along the diagonal, without the rows of EOS."""
    blocks = [one.weights[: len(one.tokens)].transpose(0, 1) for one in hypotheses if one.weights is not None]
    if len(blocks) < len(hypotheses):
        return None
    rows, columns = (sum(block.shape[axis] for block in blocks) for axis in (1, 2))
    joint = torch.zeros(blocks[0].shape[0], rows, columns)
    row = column = 0
    for block in blocks:
        joint[:, row : row + block.shape[1], column : column + block.shape[2]] = block
        row, column = row + block.shape[1], column + block.shape[2]
    return joint

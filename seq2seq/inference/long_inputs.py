"""Sources that are too long for one pass: where to cut them, and the translation of the whole from its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.interfaces import WORD_START, Hypothesis
from seq2seq.search import Search

SENTENCE_ENDS = tuple(".!?\u2026\u3002\uff01\uff1f\u0964\u061f")
CLAUSE_ENDS = tuple(",;:\u060c\u3001\uff0c\uff1b")


def cut_points(pieces: Sequence[str], longest: int) -> list[int]:
    """Places to cut `pieces` so that no part has more than `longest`; the last entry is len(pieces).

    A cut is after the last end of a sentence in the second half of what fits, else after the last end of a clause, else
    before the last beginning of a word, else as late as possible.

    Raises:
        UserError: no token fits.
    """
    if longest < 1:
        raise UserError(f"a model that takes sources of at most {longest} tokens cannot translate text")
    points = []
    start = 0
    while len(pieces) - start > longest:
        window = range(start + longest, start + longest // 2, -1)
        start = next(
            (
                place
                for fits in (_after(SENTENCE_ENDS), _after(CLAUSE_ENDS), _before_word)
                for place in window
                if fits(pieces, place)
            ),
            start + longest,
        )
        points.append(start)
    return [*points, len(pieces)]


def _before_word(pieces: Sequence[str], place: int) -> bool:
    return pieces[place].startswith(WORD_START)


def _after(marks: tuple[str, ...]) -> Callable[[Sequence[str], int], bool]:
    def fits(pieces: Sequence[str], place: int) -> bool:
        before = pieces[place - 1]
        wide = before.endswith(tuple(mark for mark in marks if ord(mark) > 0x3000))
        return before.endswith(marks) and (wide or _before_word(pieces, place))

    return fits


def one_line(text: str) -> str:
    """The text with spaces for line ends, which byte pieces can spell: a translation is always one line."""
    return text.replace("\n", " ").replace("\r", " ")


def joint_score(hypotheses: Sequence[Hypothesis], search: Search) -> float:
    """The score of the translations of a text's parts taken as one: summed log-probability by summed length, without
    coverage."""
    total = torch.tensor(sum(one.log_probability for one in hypotheses), dtype=torch.float64)
    return float(search.ranking.score(total, sum(len(one.tokens) + one.finished for one in hypotheses), 0.0))


def joint_attention(hypotheses: Sequence[Hypothesis]) -> Tensor | None:
    """Attention (H, tokens, source tokens), the parts' attention along the diagonal, without the rows of EOS."""
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

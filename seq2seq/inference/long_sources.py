"""Cutting sources that are too long for one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seq2seq.errors import UserError
from seq2seq.interfaces import WORD_START

SENTENCE_ENDS = tuple(".!?\u2026\u3002\uff01\uff1f\u0964\u061f")
CLAUSE_ENDS = tuple(",;:\u060c\u3001\uff0c\uff1b")


def cut_points(pieces: Sequence[str], longest: int) -> list[int]:
    """Where to cut `pieces` so that no part has more than `longest`; the last entry is len(pieces).

    In the last half of what fits, the last place after a sentence's end is taken, else after a clause's, else before a
    word, else the text is cut where it must be.

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

"""Texts in windows, which are read, sorted by length and translated together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, TypeVar

from seq2seq.errors import UserError

FIRST_WINDOW = 64
"""Texts in the first window."""

Item = TypeVar("Item")
Other = TypeVar("Other")


@dataclass(frozen=True)
class Batching:
    """Settings of batches; translations do not depend on the first two.

    max_tokens: source tokens in a batch, padding included. window: texts that are read and sorted by length together.
    max_source_length: sources of more tokens are, by long_lines, "split" (at the end of a sentence where there is one)
    or "truncate"d.
    """

    max_tokens: int = 4096
    window: int = 2000
    max_source_length: int = 512
    long_lines: str = "split"

    def __post_init__(self) -> None:
        for name in ("max_tokens", "window", "max_source_length"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(f"{name}={value!r} must be a whole number of at least 1")
        if self.long_lines not in ("split", "truncate"):
            raise UserError(f"long_lines={self.long_lines!r} is unknown; choose split or truncate")


def growing_windows(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of items, each twice as long as the one before, up to `size`. An error of `items` is raised after the
    items before it have been yielded."""
    iterator, now, failure = iter(items), min(FIRST_WINDOW, size), None
    while failure is None:
        window: list[Item] = []
        try:
            for item in islice(iterator, now):
                window.append(item)
        except Exception as error:
            failure = error
        if window:
            yield window
        elif failure is None:
            return
        now = min(2 * now, size)
    raise failure


def strings(texts: Iterable[Any], what: str, first: int = 0) -> Iterator[str]:
    """The same texts. Raises TypeError that names the first of them that is no string by its row, from `first` + 1."""
    for row, text in enumerate(texts, first + 1):
        if not isinstance(text, str):
            raise TypeError(f"{what} {row} is {text!r:.40}, not a string")
        yield text


def paired(texts: Iterable[Item], others: Iterable[Other], what: str) -> Iterator[tuple[Item, Other]]:
    """Pairs, one by one. Raises UserError, which says that `others` are `what`, where one side ends first."""
    end: Any = object()
    for text, other in zip_longest(texts, others, fillvalue=end):
        if text is end or other is end:
            raise UserError(f"{what}: {'more' if text is end else 'fewer'} than texts; give one for each")
        yield text, other

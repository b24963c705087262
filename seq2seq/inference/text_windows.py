"""Texts by windows: what is read, sorted by length and translated together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from typing import Any, TypeVar

from seq2seq.errors import UserError

FIRST_WINDOW = 64

Item = TypeVar("Item")
Other = TypeVar("Other")


def growing_windows(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of items, each twice as long as the one before, up to `size`. An error of `items` is raised once those
    before it have been handed out."""
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


def paired(texts: Iterable[Item], others: Iterable[Other], what: str) -> Iterator[tuple[Item, Other]]:
    """Pairs, one by one. Raises UserError, which says that `others` are `what`, where one side ends first."""
    end: Any = object()
    for text, other in zip_longest(texts, others, fillvalue=end):
        if text is end or other is end:
            raise UserError(f"{what}: {'more' if text is end else 'fewer'} than texts; give one for each")
        yield text, other

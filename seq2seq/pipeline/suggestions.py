"""Suggestions for misspelled names."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, choices: Iterable[str]) -> str:
    """` (did you mean 'x' or 'y'?)`, or an empty string where nothing is near."""
    close = get_close_matches(word, list(dict.fromkeys(choices)), n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(repr(match) for match in close)}?)" if close else ""

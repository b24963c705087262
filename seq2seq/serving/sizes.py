"""Upper bounds of the memory that the translation of a text takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from seq2seq.inference.translator import Translator
from seq2seq.search import BeamSearch, Sampling

WIDTHS = {BeamSearch: "beam_size", Sampling: "n_best"}
"""The option with the number of hypotheses of a text that are kept at once; other searches keep one."""


class Source(NamedTuple):
    """A text as the model sees it. tokens: with EOS for each part. parts: number of parts that it is cut into."""

    tokens: int
    parts: int


def measure(translator: Translator, texts: Sequence[str]) -> list[Source]:
    """Sizes of the texts, or upper bounds of them."""
    longest = translator.longest_part
    found = []
    for ids in translator.tokenizers.source.encode(list(texts)):
        tokens = len(ids) if translator.batching.long_lines == "split" else min(len(ids), longest)
        parts = most_parts(tokens, longest)
        found.append(Source(tokens + parts, parts))
    return found


def most_parts(tokens: int, longest: int) -> int:
    """Most parts from `cut_points`: all parts except the last have more than longest // 2 tokens."""
    return 1 if tokens <= longest else math.ceil(tokens / (longest // 2 + 1))


def longest_output(search: Any, source: Source) -> int:
    """Tokens of one translation: a part of s tokens is given max(1, floor(a * s + b))."""
    tokens: float = search.max_length_a * source.tokens + source.parts * max(1, search.max_length_b)
    return math.floor(tokens)


def search_size(search: Any, source: Source) -> int:
    """Tokens of all hypotheses together; the memory of the decoder is proportional to it."""
    width = WIDTHS.get(type(search))
    return (getattr(search, width) if width else 1) * longest_output(search, source)


def attention_size(search: Any, source: Source, heads: int) -> int:
    """Attention weights of all candidates."""
    return int(getattr(search, "n_best", 1)) * heads * source.tokens * longest_output(search, source)

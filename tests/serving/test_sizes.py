"""Upper bounds of what a text takes, against what really becomes of it."""

from __future__ import annotations

import math
import random

import pytest

from seq2seq.errors import UserError
from seq2seq.inference.long_inputs import cut_points
from seq2seq.interfaces import WORD_START
from seq2seq.search import BeamSearch, GreedySearch, Sampling
from seq2seq.serving.messages import SearchOptions, resolve_search
from seq2seq.serving.request_limits import Limits
from seq2seq.serving.sizes import Source, attention_size, longest_output, measure, most_parts


@pytest.mark.parametrize("longest", [1, 2, 5, 8, 512])
def test_sizes_are_upper_bounds(longest):
    draw = random.Random(1)
    for _ in range(300):
        pieces = [draw.choice([WORD_START, "a", ".", ","]) for _ in range(draw.randint(1, 3 * longest))]
        cuts = cut_points(pieces, longest)
        parts = [high - low + 1 for low, high in zip([0, *cuts], cuts, strict=False)]
        most = most_parts(len(pieces), longest)
        assert len(parts) <= most
        source = Source(len(pieces) + most, most)
        for a, b in ((2.0, 10), (0.1, 0), (0, 7), (1.5, 0.5)):
            search = BeamSearch(max_length_a=a, max_length_b=b, n_best=2)
            tokens = sum(max(1, math.floor(a * part + b)) for part in parts)
            assert tokens <= longest_output(search, source)
            assert 2 * 4 * tokens * sum(parts) <= attention_size(search, source, heads=4)


def test_most_parts_is_reached():
    """Every cut comes as early as it may: after 5 of 8 tokens."""
    pieces = ([*"aaaa", "。"] * 9)[:-1]
    assert len(cut_points(pieces, 8)) == most_parts(len(pieces), 8) == 9
    assert most_parts(8, 8) == 1


def test_attention_size_of_a_long_text_is_an_upper_bound(models):
    """Each part may give its own max_length_b tokens."""
    translator = models[0].translator
    text = "the cat sees a dog. " * 150
    (source,) = measure(translator, [text])
    search = GreedySearch(max_length_a=0, max_length_b=40, min_length_b=40)
    (found,) = translator.translate(text, search=search, alignment=True)
    assert source.parts >= found.parts > 1
    assert found.nbest[0].heads.numel() > 40 * len(found.source_tokens)
    assert found.nbest[0].heads.numel() <= attention_size(search, source, heads=1)


def test_resolve_search_bounds_products_and_accepts_ordinary_searches():
    own, longest = BeamSearch(), [Source(513, 1)]
    assert resolve_search(SearchOptions(), None, own, Limits(search=1), 512, longest) == own
    for options, n_best in ((SearchOptions(beam_size=20), None), (SearchOptions(method="sampling"), 20)):
        resolve_search(options, n_best, own, Limits(), 512, longest)
    for options in (
        SearchOptions(beam_size=20, max_length_a=0, max_length_b=2000),
        SearchOptions(method="sampling", max_length_b=900),
    ):
        with pytest.raises(UserError, match="at most 30000 are allowed"):
            resolve_search(options, 20, own, Limits(), 512, longest)
    assert resolve_search(SearchOptions(method="sampling"), 1, own, Limits(), 512, longest) == Sampling()

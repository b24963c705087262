"""Changing single options of a search."""

import pytest

from seq2seq.errors import UserError
from seq2seq.search import METHODS, BeamSearch, GreedySearch, method_name, with_options


def test_with_options_changes_given_options_only() -> None:
    own = BeamSearch(beam_size=2, length_penalty=0.0, max_length_a=1.0)
    assert with_options(own, {"beam_size": 7}) == BeamSearch(beam_size=7, length_penalty=0.0, max_length_a=1.0)
    assert with_options(own, {}) == own
    assert [method_name(kind()) for kind in METHODS.values()] == list(METHODS)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"beam_size": 2}, "search.beam_size is not an option of greedy search, but of search=beam"),
        ({"n_best": 2}, "search.n_best is not an option of greedy search, but of search=beam and search=sampling"),
        ({"beams": 2}, "search.beams is not an option of greedy search$"),
        ({"length_penalty": -1}, "length_penalty=-1"),
    ],
)
def test_with_options_the_method_lacks_is_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        with_options(GreedySearch(), options)

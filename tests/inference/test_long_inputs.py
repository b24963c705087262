import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.errors import UserError
from seq2seq.inference.long_inputs import cut_points

piece = st.sampled_from(["▁a", "b", "▁c", ".", ",", "。", "▁", "!"])


@given(st.lists(piece, min_size=1, max_size=60), st.integers(1, 20))
def test_cut_points_give_parts_that_fit_and_lose_nothing(pieces, longest):
    points = cut_points(pieces, longest)
    parts = [pieces[low:high] for low, high in zip([0, *points], points, strict=False)]
    assert [one for part in parts for one in part] == pieces
    assert all(0 < len(part) <= longest for part in parts)


def test_cut_points_prefer_the_end_of_a_sentence():
    pieces = ["▁one", "▁two", "▁three", ".", "▁four", ",", "▁five", "▁six", "▁seven"]
    assert cut_points(pieces, 7) == [4, 9]
    assert cut_points([p for p in pieces if p != "."], 6) == [5, 8]
    assert cut_points(["▁a", "▁b", "▁c", "d", "e", "▁f", "g", "h", "i"], 7) == [5, 9]


def test_cut_points_ignore_a_mark_inside_a_word():
    assert cut_points(["▁a", "▁b", "▁3", ".", "5", "▁c", "▁d"], 5) == [5, 7]


def test_cut_points_after_wide_marks_need_no_space():
    assert cut_points(["▁你", "好", "。", "我", "们", "走"], 4) == [3, 6]


def test_cut_points_of_text_without_words_are_as_late_as_possible():
    assert cut_points(["x"] * 10, 4) == [4, 8, 10]
    with pytest.raises(UserError, match="at most 0 tokens"):
        cut_points(["x"] * 10, 0)

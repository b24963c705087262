import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.evaluation.lengths import (
    LENGTH_BUCKETS,
    bucket_label,
    length_differences,
    rows_by_length,
    split_like_reference,
    spread,
)

WORDS = st.lists(st.sampled_from("abcd"), max_size=6).map(" ".join)


@given(st.lists(st.integers(min_value=0, max_value=100), max_size=40))
def test_every_segment_is_in_exactly_one_bucket(lengths):
    buckets = rows_by_length(["w " * n for n in lengths])
    assert sorted(row for _, _, rows in buckets for row in rows) == list(range(len(lengths)))
    for low, high, rows in buckets:
        assert all(low <= max(1, lengths[row]) and (high is None or lengths[row] <= high) for row in rows)


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_buckets_touch_without_overlap(unit):
    for (_, high), (low, _) in itertools.pairwise(LENGTH_BUCKETS[unit]):
        assert low == high + 1


@pytest.mark.parametrize(
    ("low", "high", "label"),
    [
        (1, 9, "1\u20139"),
        (60, None, "60+"),
        (None, -11, "≤ \u221211"),
        (0, 0, "0"),
        (-10, -6, "\u221210 to \u22126"),
        (1000, None, "1000+"),
    ],
)
def test_bucket_labels_use_typographic_signs(low, high, label):
    assert bucket_label(low, high) == label


def test_length_differences_are_of_characters_where_words_have_no_spaces():
    reference = "今天我们在公园里看到一只很大的黑狗、它在草地上跑。"
    counted = length_differences([reference[:-2], reference], [reference] * 2, "characters")
    assert {(d["low"], d["high"]) for d in counted if d["segments"]} == {(-2, -1), (0, 0)}


def test_rows_are_spread_evenly():
    assert spread(9, 3) == [0, 3, 6] and spread(14, 12) == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12]
    assert spread(3, 4) == [0, 1, 2] and spread(0, 4) == spread(4, 0) == []


def test_length_differences_by_hand():
    hypotheses = ["a b", "a b c", "", "a " * 30, "a b c d"]
    references = ["a b", "a b", "a b c", "a", "a b c d e f g h i j"]
    counted = {(d["low"], d["high"]): d["segments"] for d in length_differences(hypotheses, references)}
    assert {bucket for bucket, n in counted.items() if n} == {(0, 0), (1, 2), (-5, -3), (6, None), (None, -6)}
    assert sum(d["share"] for d in length_differences(hypotheses, references)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("hypothesis", "parts", "expected"),
    [
        ("a b c d e f", ["a b c", "d e f"], ["a b c", "d e f"]),
        ("a b d e f", ["a b c", "d e f"], ["a b", "d e f"]),
        ("a b c x y d e f", ["a b c", "d e f"], ["a b c x y", "d e f"]),
        ("d e f", ["a b c", "d e f"], ["", "d e f"]),
        ("a b c", ["a b c", "d e f", "g"], ["a b c", "", ""]),
        ("A B c D", ["a b", "c d"], ["A B", "c D"]),
        ("a . b .", ["a .", "c .", "b ."], ["a .", "", "b ."]),
        ("", ["a", "b"], ["", ""]),
        ("x y", ["", "x y"], ["", "x y"]),
        ("x y", ["x y", ""], ["x y", ""]),
        ("x y", ["x y"], ["x y"]),
    ],
)
def test_split_like_reference_by_hand(hypothesis, parts, expected):
    assert split_like_reference(hypothesis, parts) == expected


def edits(first: list[str], second: list[str]) -> int:
    """Levenshtein distance by plain recursion over rows."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        previous, row = row, [i]
        for j, b in enumerate(second, 1):
            row.append(min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a != b)))
    return row[-1]


@given(WORDS, st.lists(WORDS, min_size=1, max_size=4))
def test_the_cut_costs_no_more_edits_than_the_best_cut(hypothesis, parts):
    cut = split_like_reference(hypothesis, parts)
    assert len(cut) == len(parts)
    assert " ".join(" ".join(cut).split()) == hypothesis
    words = hypothesis.split()
    best = min(
        sum(
            edits(words[a:b], part.split())
            for (a, b), part in zip(itertools.pairwise((0, *c, len(words))), parts, strict=True)
        )
        for c in itertools.combinations_with_replacement(range(len(words) + 1), len(parts) - 1)
    )
    assert sum(edits(piece.split(), part.split()) for piece, part in zip(cut, parts, strict=True)) == best


def test_long_segments_are_cut_where_they_were_joined():
    rng = random.Random(1)
    parts = [" ".join(f"{part}_{rng.randint(0, 99)}" for _ in range(30)) for part in range(6)]
    kept = [" ".join(word for word in part.split() if rng.random() > 0.3) for part in parts]
    assert split_like_reference(" ".join(kept), parts) == kept


def test_characters_are_cut_where_the_reference_parts_meet():
    parts = ["今天我们在公园里。", "一只黑狗 在跑。"]
    assert split_like_reference("今天我们 在公园。一只白狗在跑。", parts, "characters") == [
        "今天我们 在公园。",
        "一只白狗在跑。",
    ]
    assert split_like_reference("", parts, "characters") == ["", ""]


def test_buckets_of_characters_leave_spaces_out():
    sources = ["一" * 19, "一 " * 20, "一" * 80, ""]
    assert rows_by_length(sources, "characters") == [(1, 19, [0, 3]), (20, 39, [1]), (80, 99, [2])]

"""Joined segments: every original once, exactly k in test sets, alignments moved with their words."""

import numpy as np
import pytest

from seq2seq.data import concatenation
from seq2seq.data.concatenation import ConcatenatedCorpus
from seq2seq.data.corpora import load_table
from seq2seq.errors import UserError

SIZES = {"train": 57, "valid": 11, "test": 10}


class Numbered:
    """Row i of a split is "<split>i a" and "<split>i b c", word 0 aligned to word 2 and 1 to 0."""

    source_language, target_language = "en", "de"

    def __init__(self, cache_dir):
        self.cache_dir = cache_dir

    def splits(self):
        return list(SIZES)

    def fingerprint(self):
        return "numbered"

    def load(self, split):
        columns = {
            "source": [f"{split}{row} a" for row in range(SIZES[split])],
            "target": [f"{split}{row} b  c " for row in range(SIZES[split])],
            "alignment": [[[0, 2], [1, 0]] for _ in range(SIZES[split])],
        }
        return load_table(self.cache_dir, split, "key", lambda: [columns])


def join(tmp_path, **options):
    return ConcatenatedCorpus(Numbered(tmp_path / "cache"), cache_dir=tmp_path / "cache", **options)


def numbers(text, split):
    return [int(word.removeprefix(split)) for word in text.split() if word.startswith(split)]


def test_default_settings_join_nothing(tmp_path):
    corpus = join(tmp_path)
    assert corpus.splits() == list(SIZES)
    assert corpus.load("train").read() == Numbered(tmp_path / "cache").load("train").read()


@pytest.mark.parametrize("rows", [4, 10_000])
def test_joined_training_uses_every_segment_once_per_pass(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(concatenation, "ROWS", rows)
    table = join(tmp_path, train=4, passes=3).load("train")
    groups = [numbers(text, "train") for text in table.column("source")]
    assert groups == [numbers(text, "train") for text in table.column("target")]
    flat = [number for group in groups for number in group]
    assert flat == [*range(57)] * 3
    assert {len(group) for group in groups} == {1, 2, 3, 4}
    starts = np.flatnonzero(np.array([group[0] for group in groups]) == 0)
    assert len({str(groups[a:b]) for a, b in zip(starts, [*starts[1:], len(groups)], strict=True)}) == 3


def test_joined_test_sets_have_exactly_k_segments_per_row(tmp_path):
    corpus = join(tmp_path, test=[1, 2, 3, 3])
    assert corpus.splits() == [*SIZES, "test_x2", "test_x3", "test_joined"]
    assert join(tmp_path, test=[2]).splits() == [*SIZES, "test_x2"]
    assert len(corpus.load("test")) == 10
    assert [numbers(text, "test") for text in corpus.load("test_x3").column("source")] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
    ]
    row = corpus.load("test_x2").rows([1])
    assert row["source"] == ["test2 a test3 a"] and row["target"] == ["test2 b  c test3 b  c"]
    assert row["alignment"] == [[[0, 2], [1, 0], [2, 5], [3, 3]]]


def test_fingerprint_depends_on_every_setting(tmp_path):
    options = [{}, {"train": 2}, {"train": 3}, {"train": 3, "passes": 2}, {"train": 3, "seed": 2}, {"valid": 2}]
    assert len({join(tmp_path, **option).fingerprint() for option in options}) == len(options)
    first, other = (join(tmp_path, train=3, seed=seed).load("train").column("source") for seed in (1, 2))
    assert first != other
    assert sum(len(numbers(text, "valid")) for text in join(tmp_path, valid=2).load("valid").column("source")) == 11


def test_impossible_values_are_refused(tmp_path):
    for option in ({"train": 0}, {"test": [2, 0]}, {"passes": 2}):
        with pytest.raises(UserError, match=rf"data\.concatenation\.{next(iter(option))}"):
            join(tmp_path, **option)


def test_joining_more_segments_than_a_test_set_has_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"data\.concatenation\.test: 11 is more than test has, 10 segments"):
        join(tmp_path, test=[11]).load("test_x11")


def test_joined_split_holds_all_sizes_from_short_to_long(tmp_path):
    corpus = join(tmp_path, test=[6, 1, 4])
    table = corpus.load("test_joined")
    groups = [[n] for n in range(10)] + [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3, 4, 5]]
    assert [numbers(text, "test") for text in table.column("source")] == groups
    assert corpus.origin("test_joined") == ("test", [range(group[0], group[-1] + 1) for group in groups])
    assert corpus.origin("test_x4") == ("test", [range(0, 4), range(4, 8)])
    assert corpus.origin("test") is None and corpus.origin("train") is None
    assert table.column("alignment")[10] == [[0, 2], [1, 0], [2, 5], [3, 3], [4, 8], [5, 6], [6, 11], [7, 9]]


def test_fingerprint_follows_the_joined_corpus(tmp_path):
    found = [
        join(tmp_path, **options).fingerprint() for options in ({}, {"test": [1, 2]}, {"test": [1, 3]}, {"train": 2})
    ]
    assert len(set(found)) == len(found)

import pytest

from seq2seq.evaluation import words
from seq2seq.evaluation.words import count_words, ngram_differences, ngram_matches, split_words, unlisted, word_f1


def test_split_words_keeps_punctuation_marks_apart():
    assert split_words("Der große Hund, ja!") == ["Der", "große", "Hund", ",", "ja", "!"]


@pytest.mark.parametrize(
    "word", ["हिन्दी", "தமிழ்", "cafe\u0301", "\U00011107\U00011127\U00011134\U00011107", "a\u0301b\u0301"]
)
def test_combining_marks_stay_inside_their_word(word):
    assert split_words(f"({word} {word}।") == ["(", word, word, "।"]


def test_f1_by_frequency_by_hand():
    training = count_words(["the dog the dog the", "cat"])
    assert training == {"the": 3, "dog": 2, "cat": 1}
    # 2-4: references have the, dog, the = 3; hypotheses have the, the, the = 3; matched the (1) + the (1) = 2.
    # 1: one cat wanted, none proposed. 0: zebra wanted, emu proposed.
    buckets = word_f1(["the the emu", "the"], ["the dog zebra", "the cat"], training)
    assert [(b["low"], b["high"], b["words"]) for b in buckets] == [(0, 0, 1), (1, 1, 1), (2, 4, 3)]
    assert buckets[2]["precision"] == pytest.approx(2 / 3)
    assert buckets[2]["recall"] == pytest.approx(2 / 3)
    assert buckets[2]["f1"] == pytest.approx(2 / 3)
    assert (buckets[0]["f1"], buckets[1]["f1"]) == (0, 0)


def test_words_that_the_counts_lack_are_not_called_unseen(monkeypatch):
    monkeypatch.setattr(words, "KEPT_WORDS", 3)
    counts = {"the": 1200, "dog": 7, "cat": 3}
    assert unlisted({"the": 1}) == 0
    assert unlisted(counts) == 3
    buckets = word_f1(["the dog emu cat"], ["the dog zebra cat"], counts, unlisted(counts))
    assert [(b["low"], b["high"], b["words"]) for b in buckets] == [(0, 4, 2), (5, 9, 1), (1000, None, 1)]
    assert buckets[0]["f1"] == pytest.approx(0.5)


def test_ngram_differences_list_what_one_gets_and_the_other_misses():
    references = ["a b c d", "a b c d", "x y"]
    first = ngram_matches(["a b c d", "a b c d", "x"], references)
    second = ngram_matches(["a d", "a d", "x y"], references)
    assert first[("a", "b")] == 2
    assert second[("a", "b")] == 0
    assert ngram_matches(["a a a"], ["a a b"])[("a",)] == 2
    got = ngram_differences(first, second)
    assert got == [{"ngram": "a b c d", "first": 2, "second": 0}]
    assert ngram_differences(second, first) == [{"ngram": "x y", "first": 1, "second": 0}]


def test_ngram_differences_stop_at_the_limit():
    references = ["a b", "c d", "e f"]
    assert (
        len(ngram_differences(ngram_matches(references, references), ngram_matches(["", "", ""], references), 2)) == 2
    )

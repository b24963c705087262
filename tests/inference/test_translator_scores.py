"""Scores of given translations equal those of the search."""

import pytest
import tiny
from precision import float32_approx

from seq2seq.errors import UserError
from seq2seq.inference.text_windows import Batching
from seq2seq.inference.translator import Translator
from seq2seq.search import BeamSearch

TEXTS = tiny.sentences(40, seed=9)


@pytest.mark.parametrize(
    "search", [None, BeamSearch(beam_size=2, length_penalty=0.5, normalization="gnmt", coverage_penalty=0.2)]
)
def test_score_of_a_found_translation_equals_that_of_the_search(translator, search):
    found = list(translator.translate(TEXTS, search=search))
    ended = [(text, one) for text, one in zip(TEXTS, found, strict=True) if one.finished]
    assert len(ended) > 5
    scored = translator.score([text for text, _ in ended], [one.tokens for _, one in ended], search=search)
    for (_, one), pair in zip(ended, scored, strict=True):
        assert pair.tokens == one.tokens
        assert pair.score == float32_approx(one.score)
        assert pair.log_probability == float32_approx(one.nbest[0].log_probability)


def test_score_of_texts_blank_lines_and_unknown_tokens(translator):
    pairs = list(translator.score(["the cat.", "", "a dog"], ["a cat.", "the", ""]))
    assert [len(pair.token_log_probabilities) for pair in pairs] == [len(pair.tokens) + 1 for pair in pairs]
    assert all(pair.score < 0 for pair in pairs)
    with pytest.raises(UserError, match="vocabulary"):
        list(translator.score(["a"], [["no such piece"]]))
    for piece in ("<pad>", "<s>", "</s>"):
        with pytest.raises(UserError, match=f"the target token '{piece}' is a control symbol"):
            list(translator.score(["a"], [[piece]]))


def test_score_of_a_source_that_would_be_split_warns(bundle, caplog):
    small = Translator([bundle], batching=Batching(max_source_length=20))
    list(small.score([" ".join(TEXTS[:12]), "a dog"], ["the cat", "the"]))
    assert "1 sources are longer than 20 tokens" in caplog.text


def test_score_of_a_blank_pair_equals_that_of_translate(translator):
    found = list(translator.score(["the cat.", " ", "", "a dog"], ["a cat.", "", "", "the"]))
    alone = list(translator.score(["the cat.", "a dog"], ["a cat.", "the"]))
    assert [found[0].score, found[3].score] == [float32_approx(one.score) for one in alone]
    assert [one.score for one in found[1:3]] == [0.0, 0.0] == [one.score for one in translator.translate([" ", ""])]
    blank = ["\u3000", "\xa0", "\t", "\n"]
    assert [one.score for one in translator.score(blank, [""] * 4)] == [0.0] * 4


@pytest.mark.parametrize("side", ["source", "translation"])
def test_score_of_a_pair_that_is_too_long_names_its_number(side):
    model = {**tiny.TRANSFORMER, "positions": "learned", "maximum_positions": 12}
    translator = Translator([tiny.bundle(model)], batching=Batching(window=4))
    short, long = ["the"] * 12, ["the"] * 6 + [" ".join(TEXTS)] + ["the"] * 5
    with pytest.raises(UserError, match=rf"the {side} of pair 7 has \d+ tokens, but the model has positions for 11"):
        list(translator.score(*((long, short) if side == "source" else (short, long))))

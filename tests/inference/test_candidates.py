"""Candidates of a translation: their number, order and texts."""

import pytest
import tiny
import torch
from precision import assert_float32_close

from seq2seq.inference.text_windows import Batching
from seq2seq.inference.translator import Translator
from seq2seq.interfaces import Hypothesis
from seq2seq.search import BeamSearch, Sampling

TEXTS = tiny.sentences(40, seed=9)


def test_translation_has_candidates_and_alignments(translator):
    (one,) = translator.translate(TEXTS[:1], n_best=3, alignment=True)
    assert len(one.nbest) == 3
    assert one.text == one.nbest[0].text
    assert [c.score for c in one.nbest] == sorted((c.score for c in one.nbest), reverse=True) or not one.finished
    assert one.source_tokens[-1] == "</s>"
    for candidate in one.nbest:
        assert candidate.alignment.shape == (len(candidate.tokens), len(one.source_tokens))
        assert_float32_close(candidate.alignment.sum(1), torch.ones(len(candidate.tokens)))
        pieces = translator.tokenizers.target
        assert pieces.decode([translator._vocabulary[token] for token in candidate.tokens]) == candidate.text
    assert next(translator.translate(TEXTS[:1])).alignment is None


def test_joined_candidates_come_best_first(bundle):
    small = Translator([bundle], batching=Batching(max_source_length=12))
    for seed in range(4):
        (one,) = small.translate(" ".join(TEXTS[:4]), search=Sampling(n_best=6, temperature=3.0, seed=seed))
        ranks = [(not candidate.finished, -candidate.score) for candidate in one.nbest]
        assert one.parts > 1 and ranks == sorted(ranks)


SPELLINGS = ["the cat", "the cat", "a cat", "the cat", "a cat", "the dog"]


@pytest.fixture
def spelling(translator, monkeypatch):
    """Let the beam hold these texts, best first, every other one in single letters; what it was asked for."""
    target, asked = translator.tokenizers.target, []
    pieces = target.pieces(range(len(target)))
    letters = [[pieces.index(letter) for letter in "\u2581" + text.replace(" ", "\u2581")] for text in SPELLINGS]
    tokens = [one if place % 2 else letters[place] for place, one in enumerate(target.encode(SPELLINGS))]
    rows = [Hypothesis(one, -1.0 - place, -1.0 - place, True) for place, one in enumerate(tokens)]

    def decode(sources, search, *_, **__):
        asked.append((len(sources), getattr(search, "n_best", 1)))
        return [rows[: asked[-1][1]] for _ in sources]

    monkeypatch.setattr(translator.engine, "decode", decode)
    return asked


@pytest.mark.parametrize(
    ("n_best", "texts", "scores"),
    [
        (1, ["the cat"], [-1.0]),
        (2, ["the cat", "a cat"], [-1.0, -3.0]),
        (3, ["the cat", "a cat", "the dog"], [-1.0, -3.0, -6.0]),
        (6, ["the cat", "a cat", "the dog"], [-1.0, -3.0, -6.0]),
    ],
)
def test_candidates_of_beam_search_have_different_texts(translator, spelling, n_best, texts, scores):
    found = list(translator.translate(["a dog", "", "a cat"], search=BeamSearch(beam_size=6, n_best=n_best)))
    for one in (found[0], found[2]):
        assert [candidate.text for candidate in one.nbest] == texts
        assert [candidate.score for candidate in one.nbest] == scores
    assert found[1].text == ""
    assert spelling == [(2, n_best), (2, 6)][: 1 if n_best in (1, 6) else 2]


def test_samples_are_independent_and_may_repeat_a_text(translator):
    search = Sampling(n_best=9, temperature=0.01, max_length_a=0, max_length_b=2)
    (one,) = translator.translate("the cat", search=search)
    assert len(one.nbest) == 9 > len({candidate.text for candidate in one.nbest})


def test_record_has_all_candidates(translator):
    (one,) = translator.translate(TEXTS[:1], n_best=3, alignment=True)
    record = one.record()
    assert [each["text"] for each in record["n_best"]] == [candidate.text for candidate in one.nbest]
    assert record["n_best"][0].items() <= record.items()
    assert len(next(translator.translate(TEXTS[:1], search="greedy")).record()["n_best"]) == 1

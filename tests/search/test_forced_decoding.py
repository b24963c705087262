"""Forced decoding against searches, and decoding alone against batches and ensembles."""

import math

import pytest
import torch
from precision import assert_float32_close, float32_approx
from small_models import SMALL

from seq2seq.interfaces import EOS, PAD
from seq2seq.search import BeamSearch, GreedySearch, Sampling, decode_batch, score_pairs
from seq2seq.search.steps import EnsembleState, ensemble_step, model_step

SEARCHES = [
    GreedySearch(max_length_a=1.0, max_length_b=3),
    BeamSearch(beam_size=4, n_best=3, max_length_a=1.0, max_length_b=3),
    BeamSearch(beam_size=3, n_best=2, max_length_b=4, length_penalty=0.6, normalization="gnmt", suppress_unknown=True),
    Sampling(max_length_b=20, n_best=3, temperature=2.0),
]


def small(build_model, name, seed=0):
    layers = ["model.layers=1"] if name == "transformer" else []  # with two, random weights hardly ever choose EOS
    model = build_model(name, [*SMALL[name], *layers], 13, 11, seed).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model


def sources():
    generator = torch.Generator().manual_seed(4)
    lengths = [7, 1, 4, 2, 9, 5]
    rows = [torch.cat([torch.randint(4, 13, (n,), generator=generator), torch.tensor([EOS])]) for n in lengths]
    source = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return source, source != PAD


@pytest.mark.parametrize("name", SMALL)
def test_search_scores_equal_forced_decoding(build_model, name):
    model = small(build_model, name)
    source, mask = sources()
    coverage = [BeamSearch(beam_size=3, max_length_b=4, coverage_penalty=0.3)] if model.attends else []
    checked = 0
    for search in SEARCHES + coverage:
        found = decode_batch(model, search, source, mask)
        ended = [(row, h) for row, hypotheses in enumerate(found) for h in hypotheses if h.finished]
        rows = torch.tensor([row for row, _ in ended], dtype=torch.long)
        scored = score_pairs(model, search.ranking, source[rows], mask[rows], [h.tokens for _, h in ended])
        for (_, hypothesis), one in zip(ended, scored, strict=True):
            assert one.tokens == hypothesis.tokens
            assert one.score == float32_approx(hypothesis.score)
            assert one.log_probability == float32_approx(hypothesis.log_probability)
            assert len(one.token_log_probabilities) == len(one.tokens) + 1
            assert sum(one.token_log_probabilities) == pytest.approx(one.log_probability)
            checked += 1
    assert checked > 4


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_decode_batch_of_one_sentence_equals_a_batch(build_model, name):
    model = small(build_model, name)
    source, mask = sources()
    order = torch.tensor([5, 2, 0, 1, 4, 3])
    for search in SEARCHES:
        together = decode_batch(model, search, source, mask)
        shuffled = decode_batch(model, search, source[order], mask[order], numbers=order.tolist())
        for place, row in enumerate(order.tolist()):
            length = int(mask[row].sum())
            own = slice(row, row + 1), slice(0, length)
            (alone,) = decode_batch(model, search, source[own], mask[own], numbers=[row])
            for other in (alone, shuffled[place]):
                assert [h.tokens for h in other] == [h.tokens for h in together[row]]
                assert [h.score for h in other] == float32_approx([h.score for h in together[row]])


@pytest.mark.parametrize("name", SMALL)
def test_search_weights_equal_those_of_stepping_the_tokens(build_model, name):
    """Compare with the attention of stepping the found tokens one sentence at a time."""
    model = small(build_model, name)
    source, mask = sources()
    found = decode_batch(model, SEARCHES[1], source, mask, with_weights=True)
    for row, hypotheses in enumerate(found):
        length = int(mask[row].sum())
        for hypothesis in hypotheses:
            if not model.attends:
                assert hypothesis.weights is None
                continue
            with torch.no_grad():
                state = model.start(model.encode(source[row : row + 1, :length], mask[row : row + 1, :length]))
                rows = []
                inputs = [2, *hypothesis.tokens][: len(hypothesis.tokens) + hypothesis.finished]
                for token in inputs:
                    _, state, weights = model.step(torch.tensor([token]), state)
                    rows.append(weights[0])
            assert_float32_close(hypothesis.weights, torch.stack(rows))


def test_ensemble_step_is_the_mean_of_probabilities(build_model):
    models = [small(build_model, "bahdanau", 1), small(build_model, "transformer", 2), small(build_model, "rnn", 3)]
    source, mask = sources()
    with torch.no_grad():
        starts = [model.start(model.encode(source, mask)) for model in models]
        tokens = torch.full((len(source),), 2)
        mean = sum(model_step(m)(tokens, s)[0].double().exp() for m, s in zip(models, starts, strict=True)) / 3
        starts = [model.start(model.encode(source, mask)) for model in models]
        log_probs, _, weights = ensemble_step(models)(tokens, EnsembleState(tuple(starts)))
    assert_float32_close(log_probs.double().exp(), mean)
    assert weights.shape == (len(source), 1, source.shape[1])
    assert_float32_close(weights.sum(-1), torch.ones(len(source), 1))
    search = SEARCHES[1]
    found = decode_batch(models, search, source, mask)
    for row, hypotheses in enumerate(found):
        for hypothesis in hypotheses:
            if hypothesis.finished:
                (one,) = score_pairs(models, search.ranking, source[row, None], mask[row, None], [hypothesis.tokens])
                assert one.score == float32_approx(hypothesis.score)


def test_ensemble_of_one_model_twice_equals_that_model(build_model):
    model = small(build_model, "luong")
    source, mask = sources()
    once, twice = (decode_batch(models, SEARCHES[1], source, mask) for models in (model, [model, model]))
    for one, two in zip(once, twice, strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in two]
        assert [h.score for h in one] == float32_approx([h.score for h in two])


def test_score_pairs_of_nothing_and_of_an_empty_target(build_model):
    model = small(build_model, "rnn")
    source, mask = sources()
    ranking = SEARCHES[0].ranking
    assert score_pairs(model, ranking, source[:0], mask[:0], []) == []
    (one,) = score_pairs(model, ranking, source[:1], mask[:1], [[]])
    with torch.no_grad():
        log_probs, _, _ = model_step(model)(torch.tensor([2]), model.start(model.encode(source[:1], mask[:1])))
    assert one.score == one.log_probability == float32_approx(float(log_probs[0, EOS]))
    assert math.isfinite(one.score)

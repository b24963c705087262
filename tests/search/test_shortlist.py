"""Searches with a shortlist against full vocabularies, masks and other batches."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from precision import float32_approx
from small_models import SMALL
from torch import Tensor

from seq2seq.interfaces import BOS, EOS, PAD, UNK
from seq2seq.search import BeamSearch, GreedySearch, Sampling, Shortlist, decode_batch
from seq2seq.search.shortlist import Columns

SOURCES, TARGETS = 30, 400
"""Sizes of the vocabularies; the target's is greater than one block of `candidates`, short lists are smaller."""
SEARCHES = [
    GreedySearch(max_length_a=1.0, max_length_b=3),
    BeamSearch(beam_size=4, n_best=3, max_length_a=1.0, max_length_b=3, no_repeat_ngram=2),
    BeamSearch(beam_size=4, n_best=2, max_length_b=4, diverse_groups=2, diversity_strength=0.5),
    Sampling(max_length_b=6, n_best=3, temperature=2.0),
    Sampling(max_length_b=6, n_best=2, top_k=5),
]


def model_and_sources(build_model, name, seed=0):
    model = build_model(name, SMALL[name], SOURCES, TARGETS, seed).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    generator = torch.Generator().manual_seed(4)
    rows = [
        torch.cat([torch.randint(4, SOURCES, (n,), generator=generator), torch.tensor([EOS])]) for n in (7, 1, 4, 2, 9)
    ]
    source = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return model, source, source != PAD


def shortlist(count=4, frequent=3):
    generator = torch.Generator().manual_seed(1)
    candidates = torch.randint(4, TARGETS, (SOURCES, count), generator=generator, dtype=torch.int32)
    candidates[7, 1:] = PAD
    return Shortlist(candidates, torch.arange(4, 4 + frequent, dtype=torch.int32))


def allowed(table, source):
    return [
        {PAD, UNK, BOS, EOS, *table.frequent.tolist(), *table.candidates[row[row != PAD]].flatten().tolist()}
        for row in source
    ]


@dataclass(frozen=True)
class MaskedState:
    """State of the naive reference: the model's, and the tokens (A, V) that are not allowed."""

    state: Any
    forbidden: Tensor
    beams: int = 1

    def select(self, rows: Tensor) -> "MaskedState":
        return MaskedState(self.state.select(rows), self.forbidden[rows[:, 0] // self.beams], rows.shape[1])


@torch.inference_mode()
def decode_masked(models, search, source, mask, lists, prefix=None, numbers=None):
    """Search over the whole vocabulary, in which tokens that are not on a sentence's list get no probability."""
    forbidden = torch.ones(len(source), TARGETS, dtype=torch.bool)
    for row, own in zip(forbidden, lists, strict=True):
        row[list(own)] = False

    def step(tokens, state):
        outputs = [model.step(tokens, own) for model, own in zip(models, state.state.states, strict=True)]
        total = 0.0
        for model, (features, _, _) in zip(models, outputs, strict=True):
            logits = model.logits(features).unflatten(0, (len(state.forbidden), -1))
            logits = logits.masked_fill(state.forbidden[:, None], -torch.inf).flatten(0, 1)
            total = total + torch.log_softmax(logits, -1).exp() / len(models)
        return total.log(), replace(state, state=Several(tuple(own for _, own, _ in outputs))), None

    states = Several(tuple(model.start(model.encode(source, mask)) for model in models))
    return search(step, MaskedState(states, forbidden), mask.sum(1), prefix=prefix, numbers=numbers)


@dataclass(frozen=True)
class Several:
    states: tuple[Any, ...]

    def select(self, rows: Tensor) -> "Several":
        return Several(tuple(state.select(rows) for state in self.states))


def assert_same(one, other):
    assert len(one) == len(other)
    for ours, theirs in zip(one, other, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        assert [h.score for h in ours] == float32_approx([h.score for h in theirs])
        assert [h.finished for h in ours] == [h.finished for h in theirs]


def test_lists_hold_special_tokens_frequent_ones_and_translations_in_order():
    table = Shortlist(
        torch.tensor([[0, 0], [0, 0], [0, 0], [9, 0], [5, 7], [8, 5]], dtype=torch.int32),
        torch.tensor([6], dtype=torch.int32),
    )
    source = torch.tensor([[4, 5, EOS], [5, EOS, PAD]])
    tokens = table.tokens(source, 12, [[], [11, 4]])
    assert tokens.tolist() == [[0, 1, 2, 3, 5, 6, 7, 8, 9, 0], [0, 1, 2, 3, 4, 5, 6, 8, 9, 11]]
    columns = Columns.of(tokens)
    assert columns.union.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11]
    assert columns.places[0].tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9, 11]
    assert columns.find([[], [11, 4, UNK]]) == [[], [9, 4, UNK]]
    assert table.first(1).tokens(source[1:], 12).tolist() == [[0, 1, 2, 3, 6, 8, 9]]


@pytest.mark.parametrize("name", SMALL)
def test_shortlist_of_the_whole_vocabulary_changes_nothing(build_model, name):
    model, source, mask = model_and_sources(build_model, name)
    everything = Shortlist(torch.zeros(SOURCES, 1, dtype=torch.int32), torch.arange(TARGETS, dtype=torch.int32))
    for search in SEARCHES:
        listed = decode_batch(model, search, source, mask, shortlist=everything)
        assert_same(listed, decode_batch(model, search, source, mask))


@pytest.mark.parametrize("name", ["bahdanau", "transformer"])
def test_shortlist_equals_masked_logits(build_model, name):
    model, source, mask = model_and_sources(build_model, name)
    table = shortlist()
    lists = allowed(table, source)
    for search in SEARCHES[:3]:
        found = decode_batch(model, search, source, mask, shortlist=table)
        assert_same(found, decode_masked([model], search, source, mask, lists))
        assert all(token in own for own, nbest in zip(lists, found, strict=True) for h in nbest for token in h.tokens)


def test_shortlist_of_an_ensemble_equals_masked_logits(build_model):
    models = [model_and_sources(build_model, name, seed)[0] for seed, name in enumerate(("bahdanau", "transformer"))]
    _, source, mask = model_and_sources(build_model, "rnn")
    table = shortlist()
    found = decode_batch(models, SEARCHES[1], source, mask, shortlist=table)
    assert_same(found, decode_masked(models, SEARCHES[1], source, mask, allowed(table, source)))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("search", SEARCHES)
def test_shortlisted_sentences_do_not_depend_on_their_batch(build_model, name, search):
    model, source, mask = model_and_sources(build_model, name)
    table = shortlist()
    together = decode_batch(model, search, source, mask, shortlist=table)
    for row in range(len(source)):
        own = slice(row, row + 1), slice(0, int(mask[row].sum()))
        alone = decode_batch(model, search, source[own], mask[own], numbers=[row], shortlist=table)
        assert_same(alone, [together[row]])


@pytest.mark.parametrize("search", SEARCHES)
def test_forced_prefix_need_not_be_on_the_shortlist(build_model, search):
    model, source, mask = model_and_sources(build_model, "transformer")
    table = shortlist()
    prefix = [[399, 301], [], [300], [], [5, 399, UNK]]
    found = decode_batch(model, search, source, mask, prefix=prefix, shortlist=table)
    for own, nbest in zip(prefix, found, strict=True):
        for one in nbest:
            assert one.tokens[: len(own)] == own
            assert one.log_probability > -torch.inf
    if not isinstance(search, Sampling):
        lists = [own | set(forced) for own, forced in zip(allowed(table, source), prefix, strict=True)]
        assert_same(found, decode_masked([model], search, source, mask, lists, prefix))


def test_attention_of_a_shortlisted_search_is_kept(build_model):
    model, source, mask = model_and_sources(build_model, "bahdanau")
    found = decode_batch(model, SEARCHES[1], source, mask, shortlist=shortlist(), with_weights=True)
    for row, nbest in enumerate(found):
        for one in nbest:
            assert one.weights.shape == (len(one.tokens) + one.finished, 1, int(mask[row].sum()))

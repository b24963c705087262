import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table_model import BOS, Table, rank

from seq2seq.errors import UserError
from seq2seq.interfaces import EOS, PAD, UNK
from seq2seq.search import BeamSearch, GreedySearch
from seq2seq.search.beam import Pool
from seq2seq.search.options import Constraints

fixed = {"max_length_a": 0.0}
tables = st.builds(
    Table,
    sentences=st.integers(1, 4),
    times=st.just(7),
    vocabulary=st.integers(5, 9),
    seed=st.integers(0, 10**6),
)


def same(one, two):
    return [h.tokens for h in one] == [h.tokens for h in two] and all(
        math.isclose(a.score, b.score, abs_tol=1e-9) and a.finished == b.finished for a, b in zip(one, two, strict=True)
    )


@pytest.mark.parametrize("normalization", ["power", "gnmt"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("coverage", [0.0, 0.4])
def test_beam_search_with_a_wide_beam_equals_enumeration(normalization, alpha, coverage):
    table = Table(sentences=3, times=5, vocabulary=6, seed=7)
    search = BeamSearch(
        beam_size=400,
        n_best=5,
        max_length_b=4,
        length_penalty=alpha,
        normalization=normalization,
        coverage_penalty=coverage,
        **fixed,
    )
    for sentence, found in enumerate(table.run(search)):
        ranked = sorted(
            ((rank(table, sentence, y, alpha, normalization, coverage), y) for y in table.outputs(sentence, 4)),
            reverse=True,
        )
        assert [(*h.tokens, EOS) for h in found] == [tokens for _, tokens in ranked[:5]]
        for hypothesis, (score, tokens) in zip(found, ranked, strict=False):
            assert hypothesis.score == pytest.approx(score)
            assert hypothesis.log_probability == pytest.approx(table.log_probability(sentence, tokens))
            assert hypothesis.finished


def test_beam_search_prefers_the_best_normalized_hypothesis():
    """Check a table whose first finished hypothesis (EOS at once, p = 0.5) is not the best after normalization."""
    logs = torch.full((1, 4, 6, 6), -30.0)
    logs[0, 0, BOS, EOS], logs[0, 0, BOS, 4] = math.log(0.5), math.log(0.5)
    logs[0, 1, 4, 5] = math.log(0.9)
    logs[0, 2, 5, EOS] = math.log(0.8)
    table = Table(1, 4, 6, seed=0)
    table.log_probs = logs
    (best,) = table.run(BeamSearch(beam_size=2, length_penalty=1.0, max_length_b=3, **fixed))[0]
    assert best.tokens == [4, 5]
    assert best.score == pytest.approx(math.log(0.5 * 0.9 * 0.8) / 3)
    (best,) = table.run(BeamSearch(beam_size=2, length_penalty=0.0, max_length_b=3, **fixed))[0]
    assert best.tokens == []
    assert best.score == pytest.approx(math.log(0.5))


@settings(max_examples=60, deadline=None)
@given(table=tables, alpha=st.sampled_from([0.0, 0.6, 1.0, 1.5]), data=st.data())
def test_beam_search_with_size_one_equals_greedy(table, alpha, data):
    options = {
        "length_penalty": alpha,
        "max_length_b": data.draw(st.integers(1, 6)),
        "no_repeat_ngram": data.draw(st.integers(0, 2)),
        "coverage_penalty": data.draw(st.sampled_from([0.0, 0.3])),
        "min_length_b": data.draw(st.integers(0, 2)),
        **fixed,
    }
    prefix = [[UNK] if sentence % 2 else [] for sentence in range(len(table.lengths))]
    greedy = table.run(GreedySearch(**options), prefix=prefix)
    beam = BeamSearch(beam_size=1, **options)
    for one, two, three in zip(
        greedy,
        table.run(beam, prefix=prefix),
        beam.search(table, table.start(), Constraints(beam, table.lengths, prefix), False),
        strict=True,
    ):
        assert same(one, two)
        assert same(one, three)


@settings(max_examples=60, deadline=None)
@given(
    table=tables,
    beam=st.integers(2, 6),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    normalization=st.sampled_from(["power", "gnmt"]),
    coverage=st.sampled_from([0.0, 0.5]),
)
def test_beam_search_ending_early_equals_ending_late(table, beam, alpha, normalization, coverage):
    search = BeamSearch(
        beam_size=beam,
        n_best=2,
        max_length_b=6,
        length_penalty=alpha,
        normalization=normalization,
        coverage_penalty=coverage,
        **fixed,
    )
    early = table.run(search)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "beats", lambda self, bound: torch.zeros_like(bound, dtype=torch.bool))
        late = table.run(search)
    assert all(same(one, two) for one, two in zip(early, late, strict=True))


@settings(max_examples=60, deadline=None)
@given(table=tables, beam=st.integers(2, 6), data=st.data())
def test_beam_search_ignores_batch_and_order(table, beam, data):
    search = BeamSearch(beam_size=beam, n_best=2, max_length_a=1.0, max_length_b=2)
    together = table.run(search)
    order = data.draw(st.permutations(range(len(table.lengths))))
    for sentences in ([one] for one in order):
        assert same(table.run(search, sentences)[0], together[sentences[0]])
    subset = sorted(order[: max(1, len(order) // 2)])
    for sentence, found in zip(subset, table.run(search, subset), strict=True):
        assert same(found, together[sentence])


@settings(max_examples=60, deadline=None)
@given(table=tables, groups=st.sampled_from([1, 3]))
def test_beam_search_with_greater_n_best_keeps_the_better_ones(table, groups):
    options = {"beam_size": 6, "max_length_b": 5, "diverse_groups": groups, **fixed}
    strength = 0.5 if groups > 1 else 0.0
    lists = [table.run(BeamSearch(n_best=n, diversity_strength=strength, **options)) for n in (1, 2, 6)]
    for one, two, six in zip(*lists, strict=True):
        assert same(one, two[:1])
        assert same(two, six[: len(two)])
        assert len({tuple(h.tokens) for h in six}) == len(six)


@settings(max_examples=60, deadline=None)
@given(table=tables, beam=st.integers(1, 5), coverage=st.sampled_from([0.0, 0.5]), alpha=st.sampled_from([0.0, 0.8]))
def test_beam_search_scores_and_weights_belong_to_the_tokens(table, beam, coverage, alpha):
    search = BeamSearch(
        beam_size=beam,
        n_best=beam,
        max_length_a=0.5,
        max_length_b=2,
        coverage_penalty=coverage,
        length_penalty=alpha,
    )
    for sentence, found in enumerate(table.run(search, with_weights=True)):
        limit = max(1, int(0.5 * int(table.lengths[sentence]) + 2))
        assert found
        assert [h.finished for h in found] == sorted((h.finished for h in found), reverse=True)
        for hypothesis in found:
            tokens = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
            assert len(hypothesis.tokens) == limit or hypothesis.finished
            assert not {PAD, BOS, EOS} & set(hypothesis.tokens)
            assert hypothesis.log_probability == pytest.approx(table.log_probability(sentence, tokens))
            assert hypothesis.score == pytest.approx(rank(table, sentence, tokens, alpha, "power", coverage))
            assert torch.equal(hypothesis.weights, table.attention(sentence, tokens))


def test_beam_search_returns_weights_on_request_only():
    table = Table(2, 6, 6, seed=3)
    search = BeamSearch(beam_size=3, max_length_b=5, **fixed)
    assert all(h.weights is None for found in table.run(search) for h in found)


def test_search_drops_finished_sentences_from_the_batch():
    """End half of the sentences at once: far fewer rows are stepped than all rows at every step."""
    table = Table(8, 20, 6, seed=1)
    table.log_probs[..., EOS] = -50.0
    table.log_probs[4:, 0, BOS, EOS] = 0.0
    search = BeamSearch(beam_size=2, max_length_b=19, length_penalty=0.0, **fixed)
    found = table.run(search)
    assert [h[0].tokens for h in found[4:]] == [[]] * 4
    assert table.rows <= 8 + 19 * 4 * 2
    table.rows = 0
    table.run(GreedySearch(max_length_b=19, **fixed))
    assert table.rows <= 8 + 19 * 4


def test_beam_search_ends_when_nothing_can_win():
    table = Table(1, 50, 6, seed=1)
    table.log_probs[:] = -10.0
    table.log_probs[..., EOS] = -0.01
    table.run(BeamSearch(beam_size=4, max_length_b=49, length_penalty=1.0, **fixed))
    assert table.rows == 1, "-10 / 50 is less than -0.01"
    table.rows = 0
    table.log_probs[..., EOS] = -0.3
    table.run(BeamSearch(beam_size=4, max_length_b=49, length_penalty=1.0, **fixed))
    assert table.rows == 1 + 4, "-10 / 50 may still exceed -0.3, -20 / 50 may not"


def diverse_by_hand(table, sentence, groups, width, strength, limit):
    """Diverse beam search with Python lists."""
    live = [[((), 0.0)] for _ in range(groups)]
    finished = []
    for time in range(limit + 1):
        taken = {}
        for group in range(groups):
            options = []
            for tokens, total in live[group]:
                before = tokens[-1] if tokens else BOS
                for token in range(table.log_probs.shape[-1]):
                    if token not in (PAD, BOS):
                        log = float(table.log_probs[sentence, time, before, token])
                        options.append((total + log - strength * taken.get(token, 0), (*tokens, token), total + log))
            options = sorted(options, reverse=True)[:width]
            for _, tokens, _total in options:
                taken[tokens[-1]] = taken.get(tokens[-1], 0) + 1
            finished += [(total / len(tokens), tokens) for _, tokens, total in options if tokens[-1] == EOS]
            live[group] = [(tokens, total) for _, tokens, total in options if tokens[-1] != EOS]
    return sorted(set(finished), reverse=True)


@settings(max_examples=30, deadline=None)
@given(table=tables, groups=st.sampled_from([2, 3]), width=st.sampled_from([1, 2]))
def test_diverse_beam_search_equals_lists(table, groups, width):
    search = BeamSearch(
        beam_size=groups * width, diverse_groups=groups, diversity_strength=0.7, n_best=2, max_length_b=5, **fixed
    )
    for sentence, found in enumerate(table.run(search)):
        expected = diverse_by_hand(table, sentence, groups, width, 0.7, 5)[:2]
        finished = [h for h in found if h.finished]
        assert [(*h.tokens, EOS) for h in finished] == [tokens for _, tokens in expected]
        assert [h.score for h in finished] == pytest.approx([score for score, _ in expected])


@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 0},
        {"beam_size": 2.5},
        {"beam_size": 2, "n_best": 3},
        {"n_best": 0},
        {"beam_size": 5, "diverse_groups": 2, "diversity_strength": 1.0},
        {"beam_size": 4, "diverse_groups": 2},
        {"diversity_strength": 0.5},
        {"length_penalty": -1.0},
        {"length_penalty": math.nan},
        {"normalization": "mean"},
        {"max_length_a": 0.0, "max_length_b": 0},
        {"min_length_b": -1},
        {"no_repeat_ngram": -2},
        {"coverage_penalty": "x"},
    ],
)
def test_beam_search_with_wrong_values_is_refused(options):
    with pytest.raises(UserError, match=r"search\."):
        BeamSearch(**options)


def test_coverage_penalty_without_attention_is_refused():
    table = Table(1, 4, 6, seed=0)

    def blind(tokens, state):
        return (*table(tokens, state)[:2], None)

    with pytest.raises(UserError, match="coverage_penalty"):
        BeamSearch(coverage_penalty=0.1)(blind, table.start(), table.lengths)


def test_search_of_no_sentences_is_empty():
    table = Table(1, 4, 6, seed=0)
    empty = torch.empty(0, dtype=torch.long)
    assert BeamSearch()(table, table.start([]), empty) == []
    assert GreedySearch()(table, table.start([]), empty) == []

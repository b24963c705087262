import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table_model import BOS, EOS, PAD, UNK, Table, rank

from seq2seq.errors import UserError
from seq2seq.search import BeamSearch, GreedySearch, Sampling
from seq2seq.search.candidates import best_candidates, best_tokens

SEARCHES = [GreedySearch, BeamSearch, Sampling]


def grams(tokens, size):
    return [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_repeat_ngram_forbids_repeats(search, size):
    table = Table(6, 13, 12, seed=5)
    table.log_probs[..., EOS] -= 30
    table.log_probs.copy_(table.log_probs[:, :1].expand_as(table.log_probs))
    free = table.run(search(max_length_a=0.0, max_length_b=12))
    held = table.run(search(max_length_a=0.0, max_length_b=12, no_repeat_ngram=size))

    def repeats(found):
        return any(len(set(grams(h.tokens, size))) < len(grams(h.tokens, size)) for n in found for h in n)

    assert repeats(free)
    assert not repeats(held)
    assert all(found for found in held)


def test_no_repeat_ngram_equals_enumeration():
    table = Table(2, 5, 6, seed=11)
    table.log_probs[..., EOS] -= 2
    search = BeamSearch(beam_size=400, max_length_a=0.0, max_length_b=4, no_repeat_ngram=2)
    for sentence, (best,) in enumerate(table.run(search)):
        allowed = [y for y in table.outputs(sentence, 4) if len(set(grams(y[:-1], 2))) == max(0, len(y) - 2)]
        score, tokens = max((rank(table, sentence, y), y) for y in allowed)
        assert (*best.tokens, EOS) == tokens
        assert best.score == pytest.approx(score)


@pytest.mark.parametrize("search", SEARCHES)
def test_length_limits_follow_each_source(search):
    table = Table(8, 20, 7, seed=2, source=6)
    table.log_probs[:4, ..., EOS] -= 30
    table.log_probs[4:, ..., EOS] += 30
    found = table.run(search(max_length_a=1.5, max_length_b=2, min_length_a=0.5, min_length_b=1))
    for source, (best, *_) in zip(table.lengths.tolist()[:4], found[:4], strict=True):
        assert len(best.tokens) == int(1.5 * source + 2)
        assert not best.finished
    for source, (best, *_) in zip(table.lengths.tolist()[4:], found[4:], strict=True):
        assert len(best.tokens) == int(0.5 * source + 1)
        assert best.finished


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", ["max_length_a", "max_length_b", "min_length_a", "length_penalty"])
def test_search_with_unbounded_numbers_is_refused(search, name):
    with pytest.raises(UserError, match=f"{name}=1e.308 must be a number of at least 0"):
        search(**{name: 1e308})


@pytest.mark.parametrize("search, name", [(BeamSearch, "beam_size"), (BeamSearch, "n_best"), (Sampling, "n_best")])
def test_search_with_more_hypotheses_than_memory_holds_is_refused(search, name):
    most = search(**{"beam_size": 1000, name: 1000} if search is BeamSearch else {name: 1000})
    assert getattr(most, name) == 1000
    with pytest.raises(UserError, match=f"{name}=100000 must be a whole number of at least 1 and at most 1000"):
        search(**{name: 100_000})


@pytest.mark.parametrize("search", SEARCHES)
def test_search_output_is_at_most_longest(search):
    table = Table(5, 9, 9, seed=3)
    options = {"max_length_a": 0.0, "max_length_b": 7, "min_length_b": 7}
    assert all(len(h.tokens) == 4 for found in table.run(search(**options), longest=4) for h in found)


@pytest.mark.parametrize("search", SEARCHES)
def test_minimum_length_equal_to_maximum_fixes_the_length(search):
    table = Table(5, 9, 9, seed=3)
    options = {"max_length_a": 0.0, "max_length_b": 7, "min_length_b": 7}
    assert all(len(h.tokens) == 7 for found in table.run(search(**options)) for h in found)


@pytest.mark.parametrize("search", SEARCHES)
def test_suppress_unknown_forbids_unk(search):
    table = Table(5, 9, 7, seed=4)
    table.log_probs[..., UNK] += 2
    options = {"max_length_a": 0.0, "max_length_b": 8}
    assert any(UNK in h.tokens for found in table.run(search(**options)) for h in found)
    assert not any(UNK in h.tokens for found in table.run(search(suppress_unknown=True, **options)) for h in found)


@pytest.mark.parametrize("search", SEARCHES)
def test_search_never_generates_padding_or_start(search):
    table = Table(5, 9, 7, seed=4)
    table.log_probs[..., [PAD, BOS]] = 0.0
    for found in table.run(search(max_length_a=0.0, max_length_b=8)):
        for hypothesis in found:
            assert not {PAD, BOS} & set(hypothesis.tokens)


@pytest.mark.parametrize("search", SEARCHES)
def test_prefix_is_forced_and_scored(search):
    table = Table(4, 9, 7, seed=6)
    prefix = [[], [4], [UNK, 4, 4, 4], [6, 5]]
    found = table.run(
        search(max_length_a=0.0, max_length_b=3, suppress_unknown=True, no_repeat_ngram=1, min_length_b=3),
        prefix=prefix,
    )
    for sentence, (best, *_) in enumerate(found):
        assert best.tokens[: len(prefix[sentence])] == prefix[sentence]
        assert len(best.tokens) <= max(3, len(prefix[sentence]))
        tokens = [*best.tokens, EOS] if best.finished else best.tokens
        assert best.score == pytest.approx(rank(table, sentence, tokens))


def test_beam_search_with_prefix_equals_enumeration():
    table = Table(2, 6, 6, seed=8)
    search = BeamSearch(beam_size=300, max_length_a=0.0, max_length_b=4)
    for sentence, (best,) in enumerate(table.run(search, prefix=[[5, 4], [1]])):
        start = [(5, 4), (1,)][sentence]
        outputs = [y for y in table.outputs(sentence, 4) if y[: len(start)] == start]
        score, tokens = max((rank(table, sentence, y), y) for y in outputs)
        assert (*best.tokens, EOS) == tokens
        assert best.score == pytest.approx(score)


@pytest.mark.parametrize("prefix", [[[4]], [[4], [EOS]], [[PAD], []]])
def test_prefix_of_wrong_tokens_is_refused(prefix):
    table = Table(2, 6, 6, seed=8)
    with pytest.raises(UserError, match="prefix"):
        table.run(GreedySearch(), prefix=prefix)


def test_search_at_a_dead_end_returns_an_unfinished_hypothesis():
    """Every token is forbidden after two: what there is comes back, unfinished."""
    table = Table(1, 9, 6, seed=0)
    options = {"max_length_a": 0.0, "max_length_b": 8, "min_length_b": 8, "no_repeat_ngram": 1}
    for search in (GreedySearch(**options), BeamSearch(**options), Sampling(**options)):
        (found,) = table.run(search)
        assert sorted(found[0].tokens) == [1, 4, 5]
        assert not found[0].finished


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([5, 255, 256, 257, 319, 320, 700]),
    beams=st.integers(1, 4),
    count=st.integers(1, 30),
    tied=st.booleans(),
)
def test_best_candidates_equal_a_full_sort(seed, size, beams, count, tied):
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(3, beams, size, generator=generator)
    scores = torch.randn(3, beams, dtype=torch.float64, generator=generator)
    if tied:
        log_probs, scores = log_probs.round(), scores.round()
    scores[0, 0] = -torch.inf
    log_probs[:, :, [0, 2]] = -torch.inf
    totals, parents, tokens = best_candidates(log_probs, scores, count)
    every = (log_probs.double() + scores[..., None]).flatten(1)
    expected = every.sort(-1, descending=True).values[:, :count]
    padded = torch.full((3, count), -torch.inf, dtype=torch.float64)
    padded[:, : expected.shape[1]] = expected
    assert torch.equal(totals, padded)
    rows = torch.arange(3)[:, None]
    possible = totals > -torch.inf
    assert torch.equal((log_probs[rows, parents, tokens] + scores[rows, parents])[possible], totals[possible])
    for row in range(3):
        pairs = list(zip(parents[row][possible[row]].tolist(), tokens[row][possible[row]].tolist(), strict=True))
        assert len(set(pairs)) == len(pairs)
    assert torch.equal(best_tokens(log_probs), log_probs.argmax(-1))

import pytest
import torch
from table_model import EOS, Table, rank

from seq2seq.errors import UserError
from seq2seq.search import GreedySearch, Sampling
from seq2seq.search.sampling import key, uniforms

options = {"max_length_a": 0.0, "max_length_b": 6}


def test_sampling_ignores_batch_order_and_n_best():
    table = Table(6, 8, 9, seed=1)
    search = Sampling(n_best=3, seed=5, **options)
    together = table.run(search, numbers=range(100, 106))
    for sentence in (5, 2, 0):
        (alone,) = table.run(search, [sentence], numbers=[100 + sentence])
        assert [h.tokens for h in alone] == [h.tokens for h in together[sentence]]
    fewer = table.run(Sampling(n_best=1, seed=5, **options), numbers=range(100, 106))
    assert all(one[0].tokens in [h.tokens for h in three] for one, three in zip(fewer, together, strict=True))


def test_sampling_depends_on_seed_and_sentence_number():
    table = Table(6, 8, 9, seed=1)

    def drawn(seed, first):
        found = table.run(Sampling(seed=seed, **options), numbers=range(first, first + 6))
        return [h[0].tokens for h in found]

    assert drawn(1, 0) == drawn(1, 0)
    assert drawn(1, 0) != drawn(2, 0)
    assert drawn(1, 0) != drawn(1, 6)


def test_sampling_of_long_outputs_keeps_each_sentence_draws():
    """Among sentences of other lengths."""
    table = Table(3, 160, 9, seed=1)
    table.log_probs[0, ..., EOS] -= 20
    table.log_probs[1, ..., EOS] -= 5
    search = Sampling(max_length_a=0.0, max_length_b=150)
    together = table.run(search)
    assert len(together[0][0].tokens) == 150
    for sentence in range(3):
        assert table.run(search, [sentence], numbers=[sentence])[0][0].tokens == together[sentence][0].tokens


def test_sampling_reports_the_model_s_own_scores():
    table = Table(4, 8, 9, seed=3)
    for sentence, found in enumerate(table.run(Sampling(temperature=0.5, top_k=3, n_best=4, **options))):
        assert len(found) == 4
        for hypothesis in found:
            tokens = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
            assert hypothesis.score == pytest.approx(rank(table, sentence, tokens))
        assert [h.score for h in found if h.finished] == sorted((h.score for h in found if h.finished), reverse=True)


def kept_by_hand(probabilities, temperature, top_k, top_p):
    """Plain lists, from the definition."""
    scaled = [p ** (1 / temperature) for p in probabilities]
    order = sorted(range(len(scaled)), key=lambda token: -scaled[token])[: top_k or None]
    total, reached, kept = sum(scaled[token] for token in order), 0.0, []
    for token in order:
        kept.append(token)
        reached += scaled[token] / total
        if reached >= top_p:
            break
    total = sum(scaled[token] for token in kept)
    return {token: scaled[token] / total for token in kept}


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 3, 1.0), (1.0, 0, 0.7), (1.3, 5, 0.6), (1.0, 1, 1.0), (1.0, 100, 0.01)],
)
def test_sampling_frequencies_equal_the_definition(temperature, top_k, top_p):
    probabilities = [0.0, 0.05, 0.0, 0.1, 0.3, 0.25, 0.2, 0.1]
    log_probs = torch.tensor(probabilities).log()
    draws = 20_000
    uniform = torch.rand(1, draws, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    search = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    tokens = search.draw(log_probs.expand(1, draws, -1), uniform).flatten()
    seen = torch.bincount(tokens, minlength=8).double() / draws
    expected = kept_by_hand(probabilities, temperature, top_k, top_p)
    for token in range(8):
        p = expected.get(token, 0.0)
        assert abs(float(seen[token]) - p) <= 4.5 * (p * (1 - p) / draws) ** 0.5


def test_sampling_of_extreme_draws_stays_among_kept_tokens():
    log_probs = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.6, 0.4]).log().expand(1, 2, -1)
    least, greatest = 0.0, 1 - 2**-53
    noise = [[greatest] * 4 + [least, greatest], [greatest] * 4 + [least, 0.5]]
    uniform = torch.tensor([noise], dtype=torch.float64)
    assert Sampling().draw(log_probs, uniform.clone()).tolist() == [[5, 5]]
    assert Sampling(top_p=0.5).draw(log_probs, uniform.clone()).tolist() == [[4, 4]]
    assert Sampling(top_k=1).draw(log_probs, uniform.clone()).tolist() == [[4, 4]]
    assert Sampling(temperature=1e-3).draw(log_probs, uniform.clamp(min=2**-53)).tolist() == [[4, 4]]


@pytest.mark.parametrize("truncation", [{}, {"top_k": 3}, {"top_p": 0.9}])
def test_sampling_with_tiny_temperature_equals_greedy(truncation):
    table = Table(6, 8, 9, seed=1)
    greedy = [found[0].tokens for found in table.run(GreedySearch(**options))]
    for temperature in (1e-5, 1e-7, 1e-300, 1e-320):
        found = table.run(Sampling(temperature=temperature, **truncation, **options))
        assert [best.tokens for (best,) in found] == greedy
    forbidden = torch.full((1, 1, 6), -torch.inf)
    uniform = torch.full((1, 1, 6), 0.5, dtype=torch.float64)
    drawn = Sampling().draw(forbidden, uniform.clone())
    assert Sampling(temperature=1e-320).draw(forbidden, uniform).equal(drawn)


def test_uniform_draws_are_independent():
    keys = [[key(seed, number, sample) for sample in range(8)] for seed in range(8) for number in range(8)]
    drawn = torch.stack([uniforms(keys, step, 2) for step in range(3)])
    assert len(drawn.unique()) == 512 * 6
    assert abs(float(drawn.mean()) - 0.5) < 0.025


@pytest.mark.slow
def test_sampling_with_last_digits_changed_keeps_its_draws():
    """Make 2,000 draws among 32,000 tokens of much the same probability, whose last digits depend on the batch."""
    logits = 0.1 * torch.randn(1, 200, 32_000, generator=torch.Generator().manual_seed(1))
    other = logits + 1e-6 * (torch.arange(32_000) < 16_000)
    keys, seen, changed = [[key(1, 0, sample) for sample in range(200)]], set(), 0
    for step in range(10):
        one, two = (
            Sampling().draw(one.log_softmax(-1), uniforms(keys, step, 32_000)).flatten().tolist()
            for one in (logits, other)
        )
        seen |= set(one)
        changed += sum(a != b for a, b in zip(one, two, strict=True))
    assert len(seen) > 1800
    assert changed <= 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": 0},
        {"temperature": -1},
        {"top_p": 0.0},
        {"top_p": 1.2},
        {"top_k": -1},
        {"n_best": 0},
        {"seed": -1},
    ],
)
def test_sampling_with_wrong_values_is_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        Sampling(**wrong)

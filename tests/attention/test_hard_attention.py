"""Hard attention: what is sampled, and that the Monte Carlo gradient is the gradient of the expectation."""

import itertools

import pytest
import torch
from hard_models import MODELS, SOURCE, TARGET_IN, TARGET_OUT, tiny

from seq2seq.attention import (
    Attention,
    DotScore,
    GeneralScore,
    HardAlignment,
    SoftAlignment,
    alignments,
    lengths_to_mask,
    masked_softmax,
    reinforce_loss,
)
from seq2seq.errors import UserError
from seq2seq.interfaces import PAD, SampledAttention
from seq2seq.models import create_luong
from seq2seq.training.criterion import ENTROPY_WEIGHT, EXPECTED_SHARE, Criterion


def test_positions_are_sampled_by_their_weights():
    torch.manual_seed(1)
    attention = Attention(DotScore(), HardAlignment())
    query, count = torch.randn(1, 1, 4, dtype=torch.float64), 40_000
    values = torch.randn(1, 5, 4, dtype=torch.float64)
    mask = torch.tensor([[True, True, False, True, True]])
    expected = masked_softmax(query[0] @ values[0].T, mask)[0]
    output = attention.attend(query.expand(1, count, 4), attention.prepare(values, mask))
    assert torch.all(output.weights.sum(-1) == 1) and torch.all((output.weights == 0) | (output.weights == 1))
    share = output.weights[0].mean(0)
    assert torch.all((share - expected).abs() < 5 * (expected * (1 - expected) / count).sqrt() + 1e-9)
    torch.testing.assert_close(output.context, output.weights @ values)
    logs = (output.weights[0] * expected.clamp_min(1e-30).log()).sum(-1)
    torch.testing.assert_close(output.sampling.log_probability[0], logs)
    real = expected[expected > 0]
    torch.testing.assert_close(output.sampling.entropy[0, 0], -(real * real.log()).sum())


def test_sampling_follows_the_global_generator():
    attention = Attention(DotScore(), HardAlignment())
    query, values = torch.zeros(1, 50, 4), torch.randn(1, 9, 4)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    first = attention(query, values, values)[1]
    second = attention(query, values, values)[1]
    torch.set_rng_state(state)
    assert torch.equal(attention(query, values, values)[1], first) and not torch.equal(first, second)


@pytest.mark.parametrize("estimator", ["reinforce", "straight_through"])
def test_the_best_position_at_evaluation(estimator):
    attention = Attention(DotScore(), HardAlignment(estimator)).eval()
    values = torch.tensor([[[1.0], [3.0], [2.0], [9.0]]])
    output = attention.attend(torch.ones(1, 1, 1), attention.prepare(values, lengths_to_mask(torch.tensor([3]), 4)))
    assert output.context.tolist() == [[[3.0]]] and output.weights.tolist() == [[[0.0, 1.0, 0.0, 0.0]]]
    assert output.sampling is None


@pytest.mark.parametrize("estimator", ["reinforce", "straight_through"])
def test_nothing_to_attend_in_training(estimator):
    torch.manual_seed(3)
    attention = Attention(GeneralScore(4, 4), HardAlignment(estimator))
    query, values = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 5, 4, requires_grad=True)
    output = attention.attend(query, attention.prepare(values, lengths_to_mask(torch.tensor([5, 0]), 5)))
    loss = output.context.sum()
    if output.sampling is not None:
        assert torch.all(output.sampling.log_probability[1] == 0) and torch.all(output.sampling.entropy[1] == 0)
        loss = loss + reinforce_loss(output.sampling, torch.ones(2, 3), entropy_weight=0.5)
    loss.backward()
    assert torch.all(output.context[1] == 0) and torch.all(output.weights[1] == 0)
    assert torch.all(query.grad[1] == 0) and torch.all(values.grad[1] == 0)
    assert torch.all(torch.isfinite(query.grad)) and torch.any(query.grad[0] != 0)


def test_straight_through_forwards_one_position_and_backwards_the_soft_weights():
    torch.manual_seed(4)
    attention = Attention(DotScore(), HardAlignment("straight_through")).double()
    query, values = torch.randn(1, 6, 4).double().requires_grad_(), torch.randn(1, 5, 4).double()
    pull = torch.randn(1, 6, 4).double()
    output = attention.attend(query, attention.prepare(values))
    assert output.sampling is None
    torch.testing.assert_close(output.weights.max(-1).values, torch.ones(1, 6).double())
    torch.testing.assert_close(output.weights.abs().sum(-1), torch.ones(1, 6).double())
    (own,) = torch.autograd.grad((output.context * pull).sum(), query)
    soft = torch.softmax(query @ values.transpose(1, 2), -1) @ values
    (expected,) = torch.autograd.grad((soft * pull).sum(), query)
    torch.testing.assert_close(own, expected)


def test_straight_through_does_not_return_noise_off_the_choice():
    torch.manual_seed(5)
    attention = Attention(DotScore(), HardAlignment("straight_through"))
    values = torch.randn(2, 5, 4)
    output = attention.attend(
        torch.randn(2, 50, 4), attention.prepare(values, lengths_to_mask(torch.tensor([5, 2]), 5))
    )
    assert torch.all((output.weights == 0) | (output.weights == 1))


def reward_to_go(rewards):
    """(B, T) -> (B, T), detached: each token's reward and those of all later ones."""
    return rewards.detach().flip(1).cumsum(1).flip(1)


class TwoSteps:
    """A recurrent toy: two sampled choices among three values; the second query and all rewards depend on the first.

    `log_likelihoods` (2,) are those of the two tokens given both choices; `logits` give the distribution of choices.
    """

    def __init__(self):
        generator = torch.Generator().manual_seed(6)
        self.values = torch.randn(3, 4, dtype=torch.float64, generator=generator)
        self.start = torch.randn(4, dtype=torch.float64, generator=generator)
        self.wanted = torch.randn(2, 4, dtype=torch.float64, generator=generator)
        self.score = GeneralScore(4, 4).double()
        with torch.no_grad():
            self.score.key.weight.copy_(torch.randn(4, 4, dtype=torch.float64, generator=generator))
        self.values.requires_grad_()
        self.parameters = [self.score.key.weight, self.values]

    def run(self, attend):
        """attend(query (B, 1, 4)) -> AttentionOutput; gives log-likelihoods (B, 2) and the two outputs."""
        first = attend(self.start.view(1, 1, 4))
        state = torch.tanh(self.start + 2 * first.context)
        second = attend(state)
        tokens = [(first.context * self.wanted[0]).sum(-1), ((second.context + state) * self.wanted[1]).sum(-1)]
        return torch.nn.functional.logsigmoid(torch.cat(tokens, dim=1)), (first, second)

    def exact(self):
        """Gradient of E[log p(y | choices)] by enumeration of all nine pairs of choices."""
        keys, total = self.score.project(self.values[None]), 0.0
        for a, b in itertools.product(range(3), repeat=2):
            state = torch.tanh(self.start + 2 * self.values[a])
            p_first = torch.softmax(self.score(self.start.view(1, 1, 4), keys).flatten(), 0)[a]
            p_second = torch.softmax(self.score(state.view(1, 1, 4), keys).flatten(), 0)[b]
            tokens = torch.stack([self.values[a] @ self.wanted[0], (self.values[b] + state) @ self.wanted[1]])
            total = total + p_first * p_second * torch.nn.functional.logsigmoid(tokens).sum()
        return torch.autograd.grad(total, self.parameters)


@pytest.mark.parametrize("baseline", [0.0, -0.8])
def test_expectation_of_the_estimator_is_the_exact_gradient(baseline):
    """Every pair of choices, weighted by its probability: the estimator's mean, without sampling error."""
    toy = TwoSteps()
    keys = toy.score.project(toy.values[None])
    mean = [torch.zeros_like(parameter) for parameter in toy.parameters]
    for choices in itertools.product(range(3), repeat=2):
        remaining, logs = list(choices), []

        def attend(query, remaining=remaining, logs=logs):
            choice = remaining.pop(0)
            logs.append(torch.log_softmax(toy.score(query, keys), -1)[:, :, choice])

            class Output:
                context = toy.values[choice].view(1, 1, 4)

            return Output

        tokens, _ = toy.run(attend)
        sampling = SampledAttention(torch.cat(logs, dim=1), torch.zeros(1, 2))
        loss = -tokens.sum() + reinforce_loss(sampling, reward_to_go(tokens), baseline)
        probability = sampling.log_probability.sum().exp().detach()
        for total, gradient in zip(mean, torch.autograd.grad(loss, toy.parameters, retain_graph=True), strict=True):
            total += probability * gradient
    for own, exact in zip(mean, toy.exact(), strict=True):
        torch.testing.assert_close(own, -exact)


def test_mean_of_many_samples_is_the_exact_gradient():
    """Through the module itself: batches of sampled runs, whose mean lies within its own standard error."""
    torch.manual_seed(7)
    toy, batch, batches = TwoSteps(), 500, 80
    attention = Attention(toy.score, HardAlignment()).double()
    means = []
    for _ in range(batches):
        memory = attention.prepare(toy.values.expand(batch, 3, 4))
        tokens, outputs = toy.run(lambda query, memory=memory: attention.attend(query.expand(batch, 1, 4), memory))
        sampling = SampledAttention(
            torch.cat([output.sampling.log_probability for output in outputs], dim=1),
            torch.cat([output.sampling.entropy for output in outputs], dim=1),
        )
        loss = -tokens.sum() + reinforce_loss(sampling, reward_to_go(tokens), baseline=-1.0)
        gradients = torch.autograd.grad(loss / batch, toy.parameters)
        means.append(torch.cat([gradient.flatten() for gradient in gradients]))
    means = torch.stack(means)
    exact = -torch.cat([gradient.flatten() for gradient in toy.exact()])
    error = means.std(0) / batches**0.5
    assert torch.all((means.mean(0) - exact).abs() < 4.5 * error)
    assert error.max() < 0.05 * exact.abs().max()


def test_a_baseline_lowers_the_variance():
    torch.manual_seed(8)
    attention = Attention(DotScore(), HardAlignment())
    query, values = torch.randn(1, 1, 4, requires_grad=True), torch.randn(1, 5, 4)

    def spread(baseline):
        torch.manual_seed(9)
        gradients = []
        for _ in range(300):
            output = attention.attend(query, attention.prepare(values))
            reward = -5 + 0.1 * output.context.sum(-1).detach()
            gradients.append(torch.autograd.grad(reinforce_loss(output.sampling, reward, baseline), query)[0])
        return torch.stack(gradients).var(0).sum()

    assert spread(torch.tensor([[-5.0]])) < 0.05 * spread(0.0)


def test_entropy_and_constants():
    log_probability = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    entropy = torch.tensor([[0.5, 0.7]], requires_grad=True)
    reward = torch.tensor([[3.0, 4.0]], requires_grad=True)
    baseline = torch.tensor([[1.0]], requires_grad=True)
    sampling = SampledAttention(log_probability, entropy)
    loss = reinforce_loss(sampling, reward, baseline, entropy_weight=0.1)
    assert loss.item() == pytest.approx(-(2 * -1.0 + 3 * -2.0 + 0.1 * 1.2))
    loss.backward()
    assert log_probability.grad.tolist() == [[-2.0, -3.0]]
    assert entropy.grad[0].tolist() == pytest.approx([-0.1, -0.1])
    assert reward.grad is None and baseline.grad is None


def test_mean_of_the_training_loss_s_gradient_is_exact_without_input_feeding(monkeypatch):
    """All nine pairs of choices, weighted by their probability, against the expectation written out."""
    model = tiny(create_luong, HardAlignment(), input_feeding=False)
    mask = torch.ones(1, 2, dtype=torch.bool)
    parameters = list(model.parameters())

    def decode():
        return model.decode(TARGET_IN, model.encode(SOURCE, SOURCE != PAD))

    mean, nll = [torch.zeros_like(parameter) for parameter in parameters], 0.0
    for choices in itertools.product(range(3), repeat=2):
        monkeypatch.setattr(alignments, "_sample", lambda _, choices=choices: torch.tensor(choices).view(1, 2, 1))
        decoded = decode()
        loss = Criterion(0.0)(decoded, model.output, TARGET_OUT, mask)
        probability = decoded.sampling.log_probability.sum().exp().detach()
        nll += probability * loss.nll
        for total, gradient in zip(mean, torch.autograd.grad(loss.loss, parameters), strict=True):
            total += probability * gradient

    decoder, memory = model.decoder, model.encode(SOURCE, SOURCE != PAD)
    start = decoder.start(memory)
    hidden, _ = decoder.stack(decoder.embedding(TARGET_IN), start.layers)
    attentional, values = decoder.attentional, memory.values[0]
    weights = torch.softmax(attentional.attention.score(hidden, start.memory.keys), -1)[0]  # (2, 3)
    by_position = attentional.combine(hidden[0].unsqueeze(1), values.unsqueeze(0))  # (2, 3, D)
    by_mean = attentional.combine(hidden[0], weights @ values)

    def log_likelihood(features, place):
        return torch.log_softmax(model.output(features), -1)[..., TARGET_OUT[0, place]]

    exact_nll, exact = 0.0, 0.0
    for t in range(2):
        expectation = (weights[t] * log_likelihood(by_position[t], t)).sum()
        entropy = -(weights[t] * weights[t].log()).sum()
        exact_nll = exact_nll - expectation
        sampled = -expectation - ENTROPY_WEIGHT * entropy
        exact = exact + (1 - EXPECTED_SHARE) * sampled - EXPECTED_SHARE * log_likelihood(by_mean[t], t)
    torch.testing.assert_close(nll, exact_nll.detach())
    for own, gradient in zip(mean, torch.autograd.grad(exact, parameters), strict=True):
        torch.testing.assert_close(own, gradient)


@pytest.mark.parametrize(("build", "more"), MODELS)
def test_expected_features_of_a_first_step_are_soft_attention_s(build, more):
    soft, hard = tiny(build, SoftAlignment(), **more), tiny(build, HardAlignment(), **more)
    one, other = (model.decode(TARGET_IN, model.encode(SOURCE, SOURCE != PAD)) for model in (soft, hard))
    torch.testing.assert_close(other.expected[:, 0], one.features[:, 0])
    assert not torch.allclose(other.features[:, 0], one.features[:, 0])
    assert one.sampling is None and one.expected is None


@pytest.mark.parametrize(("build", "more"), MODELS)
def test_expected_features_are_the_sampled_ones_where_there_is_no_choice(build, more):
    source = torch.tensor([[3, PAD], [3, PAD]])
    target = torch.tensor([[2, 4, 5], [2, 5, 4]])
    model = tiny(build, HardAlignment(), **more)
    decoded = model.decode(target, model.encode(source, source != PAD))
    torch.testing.assert_close(decoded.expected, decoded.features)
    assert not decoded.sampling.entropy.any()


def test_unknown_estimator():
    with pytest.raises(UserError, match="reinforce or straight_through, got 'gumbel'"):
        HardAlignment("gumbel")

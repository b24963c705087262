import math

import pytest
import torch
from attention_reference import ALIGNMENTS, SCORES, WIDTH, reference_attention
from precision import assert_float32_close

from seq2seq.attention import (
    AdditiveScore,
    Attention,
    LocalMonotonicAlignment,
    LocalPredictiveAlignment,
    ScaledDotScore,
    SoftAlignment,
    lengths_to_mask,
)
from seq2seq.errors import UserError

B, Q, S, DV = 4, 5, 7, 3
MASK = lengths_to_mask(torch.tensor([7, 3, 1, 0]), S)


def example(score, alignment, seed=1):
    torch.manual_seed(seed)
    attention = Attention(SCORES[score](), ALIGNMENTS[alignment]()).double()
    if alignment == "local_predictive":
        torch.nn.init.normal_(attention.alignment.vector.weight, std=2.0)  # centers all over the source
    query = torch.randn(B, Q, WIDTH, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(B, S, WIDTH, dtype=torch.float64, requires_grad=True)
    values = torch.randn(B, S, DV, dtype=torch.float64, requires_grad=True)
    position = torch.arange(Q).expand(B, Q) + torch.tensor([0, 1, 2, 3]).unsqueeze(1)
    return attention, query, keys, values, position


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("score", SCORES)
def test_attention_and_gradients_equal_the_equations(score, alignment):
    attention, query, keys, values, position = example(score, alignment)
    context, weights = attention(query, keys, values, MASK, position)
    expected_context, expected_weights = reference_attention(
        attention.score, attention.alignment, query, keys, values, MASK, position
    )
    torch.testing.assert_close(context, expected_context)
    torch.testing.assert_close(weights, expected_weights)
    assert torch.all(weights[expected_weights == 0] == 0)

    leaves = [query, keys, values, *attention.parameters()]
    pull = torch.randn_like(context), torch.randn_like(weights)
    loss = (context * pull[0]).sum() + (weights * pull[1]).sum()
    expected_loss = (expected_context * pull[0]).sum() + (expected_weights * pull[1]).sum()
    for own, expected in zip(
        torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True),
        torch.autograd.grad(expected_loss, leaves, allow_unused=True, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(own, expected)


@pytest.mark.parametrize("alignment", ["soft", "unnormalized", "local_monotonic", "local_predictive"])
@pytest.mark.parametrize("score", ["additive", "general", "gaussian_learned"])
def test_attention_passes_gradcheck(score, alignment):
    attention, query, keys, values, position = example(score, alignment, seed=2)
    query, keys, values = (part[:2, :4].detach().requires_grad_() for part in (query, keys, values))
    mask, position = lengths_to_mask(torch.tensor([4, 2])), position[:2, :4]
    leaves = (query, keys, values, *attention.parameters())
    assert torch.autograd.gradcheck(lambda q, k, v, *_: attention(q, k, v, mask, position), leaves)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("score", SCORES)
def test_attention_with_nothing_to_attend_gives_zeros_and_no_gradient(score, alignment):
    attention, query, keys, values, position = example(score, alignment)
    context, weights = attention(query, keys, values, MASK, position)
    assert torch.all(context[3] == 0) and torch.all(weights[3] == 0)
    gradients = torch.autograd.grad(context.sum(), (query, values), allow_unused=True, materialize_grads=True)
    assert all(torch.all(gradient[3] == 0) for gradient in gradients)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("score", SCORES)
def test_attention_with_padding_equals_attention_without(score, alignment):
    attention, query, keys, values, position = example(score, alignment)
    context, _ = attention(query, keys, values, MASK, position)
    alone, _ = attention(query[1:2], keys[1:2, :3], values[1:2, :3], None, position[1:2])
    torch.testing.assert_close(context[1:2], alone)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("score", SCORES)
def test_attend_one_query_or_selected_sentences_equals_all_at_once(score, alignment):
    attention, query, _, _, position = example(score, alignment)
    values = torch.randn(B, S, WIDTH, dtype=torch.float64)
    memory = attention.prepare(values, MASK)
    whole = attention.attend(query, memory, position)
    for t in range(Q):
        step = attention.attend(query[:, t : t + 1], memory, position[:, t : t + 1])
        torch.testing.assert_close(step.context, whole.context[:, t : t + 1])
        torch.testing.assert_close(step.weights, whole.weights[:, t : t + 1])
    rows = torch.tensor([2, 0])
    picked = attention.attend(query[rows], memory.select(rows), position[rows])
    torch.testing.assert_close(picked.context, whole.context[rows])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_attention_with_large_scores_is_finite_in_every_precision(alignment, dtype):
    attention = Attention(SCORES["dot"](), ALIGNMENTS[alignment]()).to(dtype)
    query = torch.full((2, 3, WIDTH), 50.0, dtype=dtype, requires_grad=True)
    values = torch.full((2, 6, WIDTH), 50.0, dtype=dtype)
    values[:, 1::2] *= -1
    values.requires_grad_()
    output = attention.attend(query, attention.prepare(values, lengths_to_mask(torch.tensor([5, 0]), 6)))
    output.context.sum().backward()
    assert output.weights.dtype == dtype
    assert torch.all(torch.isfinite(output.weights)) and torch.all(output.weights[:, :, 5] == 0)
    assert torch.all(output.weights[1] == 0) and torch.all(output.context[1] == 0)
    if query.grad is not None and alignment != "unnormalized":
        assert torch.all(torch.isfinite(query.grad)) and torch.all(query.grad[1] == 0)


@pytest.mark.parametrize("score", [AdditiveScore(20, 2, 8), ScaledDotScore(2)], ids=["additive", "scaled_dot"])
def test_attention_over_equal_keys_is_the_mean(score):
    """Equal keys get equal weights, so the context is the mean of the first two and of the first six values."""
    score = score.double()
    query = torch.randn(2, 1, 20 if isinstance(score, AdditiveScore) else 2, dtype=torch.float64)
    keys = torch.ones(2, 10, 2, dtype=torch.float64)
    values = torch.arange(40.0, dtype=torch.float64).reshape(1, 10, 4).repeat(2, 1, 1)
    context, weights = Attention(score, SoftAlignment())(query, keys, values, lengths_to_mask(torch.tensor([2, 6]), 10))
    expected = torch.tensor([[[2.0, 3, 4, 5]], [[10.0, 11, 12, 13]]], dtype=torch.float64)
    torch.testing.assert_close(context, expected)
    torch.testing.assert_close(weights[1, 0], torch.tensor([1 / 6] * 6 + [0.0] * 4, dtype=torch.float64))


def test_attention_with_a_mask_per_query_equals_each_query_alone():
    torch.manual_seed(3)
    attention = Attention(SCORES["dot"](), SoftAlignment())
    query, values = torch.randn(1, 2, WIDTH).double(), torch.randn(1, 4, WIDTH).double()
    mask = torch.tensor([[[True, False, True, False], [False, True, True, True]]])
    both, _ = attention(query, values, values, mask)
    for t in range(2):
        one, _ = attention(query[:, t : t + 1], values, values, mask[:, t])
        torch.testing.assert_close(both[:, t : t + 1], one)


def test_attention_without_projections_is_softmax_of_x_x():
    torch.manual_seed(4)
    x = torch.randn(5, 8, dtype=torch.float64)
    context, _ = Attention(ScaledDotScore(8), SoftAlignment())(x[None], x[None], x[None])
    torch.testing.assert_close(context[0], torch.softmax(x @ x.T / 8**0.5, dim=-1) @ x)


@pytest.mark.parametrize(
    "mask", [torch.ones(2, 5), torch.ones(2, 4, dtype=torch.bool), torch.ones(5, dtype=torch.bool)]
)
def test_prepare_with_a_mask_that_does_not_fit_is_refused(mask):
    with pytest.raises(UserError, match="a mask over 5 values must be bool"):
        Attention(SCORES["dot"](), SoftAlignment()).prepare(torch.ones(2, 5, WIDTH), mask)


def weights_of(alignment, lengths, size, position):
    attention = Attention(SCORES["uniform"](), alignment).double()
    query = torch.zeros(len(lengths), 1, WIDTH, dtype=torch.float64)
    values = torch.ones(len(lengths), size, WIDTH, dtype=torch.float64)
    memory = attention.prepare(values, lengths_to_mask(torch.tensor(lengths), size))
    return attention.attend(query, memory, torch.tensor([[position]])).weights[:, 0]


def test_local_monotonic_alignment_is_cut_at_edges_and_stays_at_the_end():
    third, half = 1 / 3, 1 / 2
    lengths, alignment = [6, 2, 1], LocalMonotonicAlignment(1)
    expected = {
        0: [[half, half, 0, 0, 0, 0], [half, half, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]],
        1: [[third, third, third, 0, 0, 0], [half, half, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]],
        5: [[0, 0, 0, 0, half, half], [half, half, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]],
        99: [[0, 0, 0, 0, half, half], [half, half, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]],
    }
    for position, weights in expected.items():
        torch.testing.assert_close(weights_of(alignment, lengths, 6, position), torch.tensor(weights).double())


def test_local_predictive_alignment_is_centered_by_each_sentence_length():
    """Query of zeros: the predicted center is p = S / 2, and the weights are uniform times the Gaussian."""
    weights = weights_of(LocalPredictiveAlignment(WIDTH, 5, 2), [6, 3, 1], 6, 0)
    bell = [math.exp(-(x**2) / 2.0) for x in (0, 0.5, 1, 1.5, 2)]
    expected = [
        [0, bell[4] / 5, bell[2] / 5, bell[0] / 5, bell[2] / 5, bell[4] / 5],  # p = 3, sigma = 1: positions 1 .. 5
        [bell[3] / 3, bell[1] / 3, bell[1] / 3, 0, 0, 0],  # p = 1.5: positions 0 .. 3, of which three are real
        [bell[1], 0, 0, 0, 0, 0],  # p = 0.5
    ]
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("make", [lambda: LocalMonotonicAlignment(2), lambda: LocalPredictiveAlignment(WIDTH, 5, 2)])
def test_local_alignments_score_only_their_window(make):
    scored = []

    class Counting(AdditiveScore):
        def forward(self, query, projected):
            scored.append(tuple(projected.shape))
            return super().forward(query, projected)

    attention = Attention(Counting(WIDTH, WIDTH, 3), make())
    attention(torch.randn(2, 1, WIDTH), torch.randn(2, 500, WIDTH), torch.randn(2, 500, WIDTH))
    assert scored == [(2, 1, 5, 3)]


def test_local_predictive_center_in_half_precision_equals_float32():
    alignment = LocalPredictiveAlignment(1, 1, 2)
    for parameter in alignment.parameters():
        torch.nn.init.constant_(parameter, 0.5)
    query, lengths = torch.full((1, 1, 1), 100.0), torch.tensor([[3001]])  # tanh is 1 and the logit 0.5 in any type
    expected = alignment.center(query, lengths)
    assert_float32_close(alignment.bfloat16().center(query.bfloat16(), lengths), expected)


def test_local_predictive_center_learns_through_the_gaussian():
    """Train with uniform scores, so that only the Gaussian can move the center, toward the one value that counts."""
    torch.manual_seed(5)
    attention = Attention(SCORES["uniform"](), LocalPredictiveAlignment(WIDTH, 8, 4))
    query, values = torch.ones(1, 1, WIDTH), torch.zeros(1, 20, 1)
    values[0, 13] = 1.0
    optimizer = torch.optim.Adam(attention.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        context, _ = attention(query, values, values)
        (-context.sum()).backward()
        optimizer.step()
    center = attention.alignment.center(query, torch.tensor([[20]]))
    assert abs(center.item() - 13) < 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LocalMonotonicAlignment(-1), "0 or more, got -1"),
        (lambda: LocalPredictiveAlignment(4, 4, 0), "1 or more, got 0"),
        (lambda: LocalPredictiveAlignment(0, 4, 2), "positive, got 0 and 4"),
        (lambda: LocalPredictiveAlignment(4, 4, 2, 0.0), "scale must be positive, got 0.0"),
    ],
)
def test_local_alignments_with_impossible_windows_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("score", SCORES)
def test_attention_under_autocast_is_close_and_has_finite_gradients(score, alignment):
    """Values arrive in bfloat16 from one layer and in float32 from another; gradients flow back in both."""
    attention, query, _, _, position = example(score, alignment)
    attention = attention.float()
    values = torch.randn(B, S, WIDTH)
    exact = attention(query.float(), values, values, MASK, position)[1]
    for dtype in (torch.float32, torch.bfloat16):
        given = values.clone().to(dtype).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = attention.attend(query.float(), attention.prepare(given, MASK), position)
        output.context.float().sum().backward()
        assert torch.all(torch.isfinite(given.grad)) and torch.all(given.grad[3] == 0)
        if alignment in ("soft", "local_monotonic"):
            torch.testing.assert_close(output.weights.float(), exact, atol=0.05, rtol=0.1)


def test_predicted_windows_start_in_the_middle():
    torch.manual_seed(0)
    alignment = LocalPredictiveAlignment(64, 64, 10)
    centers = alignment.center(torch.randn(50, 4, 64), torch.full((50, 1), 60))
    assert (centers - 30).abs().max() < 1.5


def test_scale_is_a_factor_of_the_vector():
    torch.manual_seed(0)
    plain, scaled = LocalPredictiveAlignment(WIDTH, 8, 4), LocalPredictiveAlignment(WIDTH, 8, 4, scale=0.25)
    torch.nn.init.normal_(scaled.vector.weight)
    plain.load_state_dict({**scaled.state_dict(), "vector.weight": scaled.vector.weight / 4})
    query, lengths = torch.randn(5, 3, WIDTH), torch.full((5, 1), 60)
    torch.testing.assert_close(scaled.center(query, lengths), plain.center(query, lengths))


def test_an_early_update_by_adam_hardly_moves_predicted_windows():
    """Whatever the gradient, Adam's first update moves each weight by its rate; unscaled, 64 of them move a center by
    many positions."""
    moved = []
    for scale in (1.0, 64**-0.5):
        torch.manual_seed(0)
        alignment = LocalPredictiveAlignment(64, 64, 10, scale)
        query, lengths = torch.randn(50, 1, 64), torch.full((50, 1), 60)
        before = alignment.center(query, lengths).detach()
        optimizer = torch.optim.Adam([alignment.vector.weight], lr=0.03)
        alignment.center(query, lengths)[0, 0].mul(1e-6).backward()
        optimizer.step()
        moved.append((alignment.center(query, lengths) - before).abs().max().item())
    assert moved[0] > 8 and moved[1] < 2

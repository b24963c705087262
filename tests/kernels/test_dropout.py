import math

import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.kernels.dropout import Dropout, add_dropout, add_dropout_reference, dropout, dropout_reference


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.3, 0.5, 0.9])
def test_dropout_drops_at_its_rate_and_keeps_the_expectation(rate):
    torch.manual_seed(1)
    count = 400_003  # no multiple of four: the last word is used in part
    kept = dropout(torch.ones(count, dtype=torch.float64), rate, training=True)
    share = (kept == 0).double().mean().item()
    assert abs(share - rate) < 5 * math.sqrt(rate * (1 - rate) / count) + 1 / 65536
    assert kept.unique().numel() == 2
    levels = 65536
    assert kept.max().item() == pytest.approx(levels / (levels - round(rate * levels)))
    deviation = math.sqrt(rate / (1 - rate) / count)
    assert abs(kept.mean().item() - 1) < 5 * deviation


def test_dropout_of_entries_at_any_lag_is_uncorrelated():
    torch.manual_seed(2)
    kept = (dropout(torch.ones(4_000_000), 0.3, training=True) != 0).double() - 0.7
    for lag in (1, 2, 3, 4, 5, 8, 64):  # within a word, across words
        correlation = (kept[:-lag] * kept[lag:]).mean() / 0.21
        assert abs(correlation) < 5 / math.sqrt(4_000_000)


def test_dropout_rates_of_the_four_entries_of_a_word_are_equal():
    torch.manual_seed(3)
    share = (dropout(torch.ones(500_000, 4), 0.25, training=True) == 0).double().mean(0)
    assert (share - 0.25).abs().max() < 5 * math.sqrt(0.25 * 0.75 / 500_000)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (5, 7, 3)])
def test_dropout_gradient_equals_the_scaled_mask_in_every_type_and_shape(dtype, shape):
    torch.manual_seed(4)
    values = torch.full(shape, 2.0, dtype=dtype, requires_grad=True)
    out = dropout(values, 0.5, training=True)
    out.sum().backward()
    assert out.dtype == dtype and out.shape == shape
    assert torch.equal(values.grad, out.detach() / 2)


def test_dropout_of_transposed_values_drops_the_same_entries():
    torch.manual_seed(5)
    values = torch.randn(6, 5).t()
    out = dropout(values, 0.5, training=True)
    assert torch.equal(out[out != 0], 2 * values[out != 0])
    assert 0 < (out == 0).sum() < 30


def test_dropout_passes_gradcheck():
    values = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)

    def seeded(values):
        torch.manual_seed(6)
        return dropout(values, 0.4, training=True)

    assert torch.autograd.gradcheck(seeded, values)
    assert torch.autograd.gradgradcheck(seeded, values)


def test_dropout_follows_the_global_generator():
    module = Dropout(0.5)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first, second = module(torch.ones(100)), module(torch.ones(100))
    torch.set_rng_state(state)
    assert torch.equal(module(torch.ones(100)), first)
    assert not torch.equal(first, second)


def test_dropout_in_evaluation_or_at_rate_zero_is_the_identity():
    values = torch.randn(3)
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0)(values) is values


def test_dropout_saves_one_byte_per_entry():
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        dropout(torch.ones(1000, requires_grad=True), 0.1, training=True)
    assert [tensor.untyped_storage().nbytes() for tensor in saved] == [1000]


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2])
def test_dropout_with_an_impossible_rate_is_refused(rate):
    with pytest.raises(UserError, match=f"got {rate}"):
        Dropout(rate)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("adding", [False, True])
def test_dropout_and_add_dropout_equal_their_references(dtype, adding):
    inputs, values, gradient = torch.randn(3, 5, 7, 4).to(dtype).requires_grad_().unbind(0)
    results = []
    for drop in (dropout_reference, lambda values, rate: dropout(values, rate, training=True)):
        torch.manual_seed(8)
        results.append(drop(values, 0.3))
    if adding:
        results = []
        for add in (add_dropout_reference, lambda *given: add_dropout(*given, training=True)):
            torch.manual_seed(8)
            results.append(add(inputs, values, 0.3))
    expected, actual = results
    close = 8 * torch.finfo(dtype).eps  # rounded once instead of twice
    torch.testing.assert_close(actual, expected, rtol=close, atol=close)
    leaves = (inputs, values) if adding else (values,)
    for computed, true in zip(
        torch.autograd.grad(actual, leaves, gradient), torch.autograd.grad(expected, leaves, gradient), strict=True
    ):
        torch.testing.assert_close(computed, true, rtol=close, atol=close)


def test_add_dropout_in_evaluation_is_the_sum():
    inputs, values = torch.randn(2, 5, 7).unbind(0)
    assert torch.equal(add_dropout(inputs, values, 0.3, training=False), inputs + values)

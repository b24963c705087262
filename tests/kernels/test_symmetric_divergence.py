"""The divergence of two output distributions, against a loop and against autograd through all logits."""

import math

import pytest
import torch

from seq2seq.kernels.symmetric_divergence import symmetric_divergence, symmetric_divergence_reference


def example() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(3)
    one, other, weight = (torch.randn(*size, dtype=torch.float64) for size in ((7, 4), (7, 4), (5, 4)))
    return tuple(each.requires_grad_() for each in (one, other, weight, torch.randn(5, dtype=torch.float64)))


def test_divergence_equals_a_loop_over_words() -> None:
    one, other, weight, bias = (each.detach() for each in example())
    total = 0.0
    for a, b in zip(one, other, strict=True):
        p, q = ([math.exp(float(x @ w + c)) for w, c in zip(weight, bias, strict=True)] for x in (a, b))
        for u, v in zip(p, q, strict=True):
            u, v = u / sum(p), v / sum(q)
            total += u * math.log(u / v) + v * math.log(v / u)
    assert float(symmetric_divergence(one, other, weight, bias)) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("chunk", [1, 10, 1000])
def test_chunks_give_the_gradients_of_the_whole(chunk: int) -> None:
    inputs = example()
    expected = torch.autograd.grad(symmetric_divergence_reference(*inputs), inputs)
    got = torch.autograd.grad(symmetric_divergence(*inputs, chunk=chunk), inputs)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)
    no_bias = torch.autograd.grad(symmetric_divergence(*inputs[:3], None, chunk=chunk), inputs[:3])
    torch.testing.assert_close(
        no_bias, torch.autograd.grad(symmetric_divergence_reference(*inputs[:3], None), inputs[:3]), rtol=1e-12, atol=0
    )


def test_equal_distributions_do_not_diverge() -> None:
    one, _, weight, bias = example()
    assert symmetric_divergence(one, one, weight, bias).item() == 0.0

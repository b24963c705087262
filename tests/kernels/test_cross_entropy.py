"""Fused cross-entropy against its reference, torch's own and hand-computed values."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from seq2seq.kernels.cross_entropy import cross_entropy_reference, fused_cross_entropy
from seq2seq.layers.output import OutputLayer


def problem(rows: int = 23, width: int = 7, vocabulary: int = 11, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(rows, width, generator=generator, dtype=dtype)
    weight = torch.randn(vocabulary, width, generator=generator, dtype=dtype)
    bias = torch.randn(vocabulary, generator=generator, dtype=dtype)
    target = torch.randint(vocabulary, (rows,), generator=generator)
    return features.requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), target


def gradients(loss: torch.Tensor, *parameters: torch.Tensor | None) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, [p for p in parameters if p is not None]))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("chunk", [1, 40, 11 * 23, 10**6])
def test_fused_cross_entropy_and_gradients_equal_the_reference(smoothing: float, with_bias: bool, chunk: int) -> None:
    features, weight, bias, target = problem()
    b = bias if with_bias else None
    plain, expected = cross_entropy_reference(features, weight, b, target, smoothing)
    loss, nll = fused_cross_entropy(features, weight, b, target, smoothing, chunk)
    torch.testing.assert_close(loss, plain, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(nll, expected, rtol=1e-12, atol=1e-12)
    assert not nll.requires_grad
    for ours, reference in zip(
        gradients(3 * loss, features, weight, b), gradients(3 * plain, features, weight, b), strict=True
    ):
        torch.testing.assert_close(ours, reference, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_cross_entropy_reference_equals_torch(smoothing: float) -> None:
    features, weight, bias, target = problem()
    logits = F.linear(features, weight, bias)
    loss, nll = cross_entropy_reference(features, weight, bias, target, smoothing)
    expected = F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(nll, F.cross_entropy(logits, target, reduction="none"), rtol=1e-12, atol=1e-12)


def test_fused_cross_entropy_passes_gradcheck() -> None:
    features, weight, bias, target = problem(5, 3, 4)
    assert torch.autograd.gradcheck(
        lambda x, w, b: fused_cross_entropy(x, w, b, target, 0.2, chunk=8)[0], (features, weight, bias)
    )


def test_fused_cross_entropy_with_smoothing_equals_a_hand_computed_value() -> None:
    """Two types, logits 0 and ln 3: p = (1/4, 3/4); smoothing 0.2 gives q = (0.1, 0.9) for target 1."""
    weight = torch.tensor([[0.0], [math.log(3)]], dtype=torch.float64)
    loss, nll = fused_cross_entropy(
        torch.ones(1, 1, dtype=torch.float64), weight, None, torch.tensor([1]), smoothing=0.2
    )
    assert nll.item() == pytest.approx(-math.log(0.75))
    assert loss.item() == pytest.approx(-0.1 * math.log(0.25) - 0.9 * math.log(0.75))


def test_fused_cross_entropy_of_huge_logits_is_finite() -> None:
    weight = torch.tensor([[1e4], [-1e4], [0.0]], requires_grad=True)
    features = torch.ones(3, 1, requires_grad=True)
    loss, nll = fused_cross_entropy(features, weight, None, torch.tensor([0, 1, 2]), smoothing=0.1)
    loss.backward()
    assert nll.tolist() == [0.0, 2e4, 1e4]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in (features, weight))


def test_fused_cross_entropy_of_no_rows_is_zero() -> None:
    features, weight, bias, _ = problem(rows=0)
    loss, nll = fused_cross_entropy(features, weight, bias, torch.empty(0, dtype=torch.int64), 0.1)
    assert loss.item() == 0 and nll.shape == (0,)
    assert all(not g.any() for g in gradients(loss, weight, bias))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fused_cross_entropy_under_autocast_is_close_and_keeps_gradient_types(dtype: torch.dtype) -> None:
    features, weight, bias, target = problem(64, 32, 50, torch.float32)
    plain = F.cross_entropy(F.linear(features, weight, bias), target, label_smoothing=0.1, reduction="sum")
    with torch.autocast("cpu", dtype):
        loss, nll = fused_cross_entropy(features, weight, bias, target, 0.1, chunk=500)
    assert loss.dtype == nll.dtype == torch.float32
    torch.testing.assert_close(loss, plain, rtol=1e-2, atol=0)
    for ours, reference in zip(
        gradients(loss, features, weight, bias), gradients(plain, features, weight, bias), strict=True
    ):
        assert ours.dtype == torch.float32
        assert (ours - reference).norm() < 0.02 * reference.norm()


def test_fused_cross_entropy_of_a_tied_weight_sums_both_gradients() -> None:
    _, weight, _, target = problem(6, 7, 11)
    tokens = torch.arange(6)
    loss, _ = fused_cross_entropy(F.embedding(tokens, weight), weight, None, target, 0.1)
    plain = F.cross_entropy(F.embedding(tokens, weight) @ weight.t(), target, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(gradients(loss, weight)[0], gradients(plain, weight)[0])


def logits_held(function) -> int:
    """Count the elements of the largest tensor made inside `function`."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, operator, types, arguments=(), keywords=None):
            result = operator(*arguments, **(keywords or {}))
            for tensor in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(tensor, torch.Tensor):
                    self.size = max(self.size, tensor.numel())
            return result

    with Largest() as mode:
        function()
    return mode.size


def test_fused_cross_entropy_never_holds_all_logits() -> None:
    features, weight, bias, target = problem(200, 4, 50, torch.float32)

    def step() -> None:
        fused_cross_entropy(features, weight, bias, target, 0.1, chunk=1000)[0].backward()

    assert logits_held(step) <= 1000 < 200 * 50
    assert logits_held(lambda: F.cross_entropy(F.linear(features, weight), target)) == 200 * 50


def test_fused_cross_entropy_trains_a_lookup_to_a_small_loss() -> None:
    torch.manual_seed(0)
    layer, embedding = OutputLayer(8, 5), nn.Embedding(5, 8)
    optimizer = torch.optim.Adam([*layer.parameters(), *embedding.parameters()], lr=0.1)
    tokens = torch.arange(5)
    for _ in range(60):
        optimizer.zero_grad()
        loss, nll = fused_cross_entropy(embedding(tokens), layer.weight, layer.bias, (tokens + 1) % 5)
        loss.backward()
        optimizer.step()
    assert nll.max().item() < 0.05

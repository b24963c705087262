"""The fused loss of a mixture against its reference, and the parts of it that the reference does not have."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seq2seq.kernels.cross_entropy import fused_cross_entropy
from seq2seq.kernels.mixture_cross_entropy import mixture_cross_entropy, mixture_cross_entropy_reference

ROWS, COMPONENTS, WIDTH, VOCABULARY = 6, 4, 5, 9


def problem(spread: float = 1.0) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(4)
    features = (spread * torch.randn(ROWS, COMPONENTS, WIDTH, dtype=torch.float64)).requires_grad_()
    scores = (spread * torch.randn(ROWS, COMPONENTS, dtype=torch.float64)).requires_grad_()
    mask = torch.arange(COMPONENTS) < torch.tensor([[4], [1], [3], [2], [4], [4]])
    weight = torch.randn(VOCABULARY, WIDTH, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(VOCABULARY, dtype=torch.float64, requires_grad=True)
    return features, scores, mask, weight, bias, torch.randint(VOCABULARY, (ROWS,))


def log_weights(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.where(mask, torch.where(mask, scores, -1e30).log_softmax(1), 0.0)


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("chunk", [1, 20, 10**6])
def test_value_and_gradients_equal_the_reference(spread: float, chunk: int) -> None:
    features, scores, mask, weight, bias, target = problem(spread)
    parameters = (features, scores, weight, bias)
    logs = log_weights(scores, mask)
    loss, nll = mixture_cross_entropy(features, logs, mask, weight, bias, target, chunk=chunk)
    expected, expected_nll = mixture_cross_entropy_reference(features, logs, mask, weight, bias, target)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, expected_nll)
    assert not nll.requires_grad
    for own, reference in zip(
        torch.autograd.grad(3 * loss, parameters, retain_graph=True),
        torch.autograd.grad(3 * expected, parameters),
        strict=True,
    ):
        torch.testing.assert_close(own, reference)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_one_component_equals_the_plain_loss(smoothing: float) -> None:
    features, _, _, weight, bias, target = problem()
    mask = torch.arange(COMPONENTS).expand(ROWS, -1) == 2
    logs = torch.zeros(ROWS, COMPONENTS, dtype=torch.float64)
    loss, nll = mixture_cross_entropy(features, logs, mask, weight, bias, target, smoothing)
    expected, expected_nll = fused_cross_entropy(features[:, 2], weight, bias, target, smoothing)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, expected_nll)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_shares_scale_each_row_of_the_plain_loss(smoothing: float) -> None:
    features, _, _, weight, bias, target = problem()
    rows, shares = features[:, 0], torch.rand(ROWS, dtype=torch.float64)
    parameters = (features, weight, bias)
    loss, _ = fused_cross_entropy(rows, weight, bias, target, smoothing, 20, shares)
    expected = sum(
        share * fused_cross_entropy(row[None], weight, bias, one[None], smoothing)[0]
        for share, row, one in zip(shares, rows, target, strict=True)
    )
    torch.testing.assert_close(loss, expected)
    for own, reference in zip(
        torch.autograd.grad(loss, parameters, retain_graph=True), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(own, reference)


def test_no_tensor_holds_all_logits() -> None:
    features, scores, mask, weight, bias, target = problem()

    class Watch(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                self.largest = max(self.largest, result.numel())
            return result

    with Watch() as watch:
        loss, _ = mixture_cross_entropy(features, log_weights(scores, mask), mask, weight, bias, target, chunk=18)
        loss.backward()
    assert watch.largest < ROWS * COMPONENTS * VOCABULARY

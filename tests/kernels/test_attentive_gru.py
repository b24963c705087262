"""Fused recurrences against their references, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seq2seq.kernels.attentive_gru import (
    AttentiveGRUWeights,
    ConditionalWeights,
    attentive_gru,
    attentive_gru_reference,
    conditional_gru,
    conditional_gru_reference,
)

STEPS, WIDTH, ATTENTION, VALUES = 3, 3, 5, 2
MASK = torch.arange(4) < torch.tensor([[4], [2], [0]])  # one sentence whole, one padded, one with nothing to attend


def problem(conditional: bool) -> list[Tensor]:
    """gates, hidden, keys, values, the five weights of `AttentiveGRUWeights`, and those of a conditional GRU."""
    torch.manual_seed(0)
    batch, source = MASK.shape
    shapes = [
        *[(STEPS, batch, 3 * WIDTH), (batch, WIDTH), (batch, source, ATTENTION), (batch, source, VALUES)],
        *[(3 * WIDTH, WIDTH), (3 * WIDTH,), (3 * WIDTH, VALUES), (ATTENTION, WIDTH), (ATTENTION,)],
    ]
    if conditional:
        shapes += [(3 * WIDTH,), (3 * WIDTH, WIDTH), (3 * WIDTH,)]
    return [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def run(reference: bool, *given: Tensor) -> tuple[Tensor, Tensor]:
    weights, further = AttentiveGRUWeights(*given[4:9]), given[9:]
    if further:
        kernel = conditional_gru_reference if reference else conditional_gru
        return kernel(*given[:4], MASK, weights, ConditionalWeights(*further))
    return (attentive_gru_reference if reference else attentive_gru)(*given[:4], MASK, weights)


@pytest.mark.parametrize("conditional", [False, True])
def test_attentive_gru_results_and_gradients_equal_the_reference(conditional):
    given = problem(conditional)
    results = [run(reference, *given) for reference in (False, True)]
    pulls = [torch.randn_like(part) for part in results[0]]
    gradients = [
        torch.autograd.grad(sum((part * pull).sum() for part, pull in zip(result, pulls, strict=True)), given)
        for result in results
    ]
    for actual, expected in zip((*results[0], *gradients[0]), (*results[1], *gradients[1]), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("conditional", [False, True])
def test_attentive_gru_passes_gradcheck(conditional):
    assert torch.autograd.gradcheck(lambda *given: run(False, *given), problem(conditional))

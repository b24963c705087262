import pytest
import torch
from precision import FLOAT32
from torch import nn

from seq2seq.kernels.layer_norm import SMALLEST_WEIGHT, LayerNorm, layer_norm_reference


def layers(width: int = 6) -> tuple[LayerNorm, nn.LayerNorm]:
    """Ours and torch's, with the same weights, in float64."""
    torch.manual_seed(1)
    mine, theirs = LayerNorm(width).double(), nn.LayerNorm(width).double()
    for parameter in (mine.weight, mine.bias):
        nn.init.normal_(parameter, mean=1.0)
    nn.init.constant_(mine.weight[2:3].detach(), -SMALLEST_WEIGHT)
    theirs.load_state_dict(mine.state_dict())
    return mine, theirs


@pytest.mark.parametrize("smallest", [SMALLEST_WEIGHT, 0.0])
def test_layer_norm_and_gradients_equal_the_reference_and_torch(smallest: float):
    mine, theirs = layers()
    with torch.no_grad():
        for layer in (mine, theirs):
            layer.weight[4] = smallest
    inputs = torch.randn(4, 3, 6, dtype=torch.float64) * 5 + 3
    inputs[0, 0] = 2.0  # no variance
    direction = torch.randn(4, 3, 6, dtype=torch.float64)
    gradients = []
    for layer, norm in (
        (mine, mine),
        (theirs, theirs),
        (theirs, lambda values: layer_norm_reference(values, theirs.weight, theirs.bias)),
    ):
        variable = inputs.clone().requires_grad_()
        result = norm(variable)
        gradients.append((result, *torch.autograd.grad((result * direction).sum(), (variable, *layer.parameters()))))
    for actual, *others in zip(*gradients, strict=True):
        for expected in others:
            torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def test_layer_norm_passes_gradcheck():
    mine, _ = layers()
    inputs = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    parameters = tuple(mine.parameters())
    assert torch.autograd.gradcheck(lambda inputs, *_: mine(inputs), (inputs, *parameters))


def test_layer_norm_gradient_in_float32_loses_no_digits():
    torch.manual_seed(2)
    mine = LayerNorm(64)
    with torch.no_grad():
        mine.weight.uniform_(SMALLEST_WEIGHT, 1.5)
        mine.bias.normal_(std=2.0)
    inputs, direction = torch.randn(300, 64), torch.randn(300, 64)
    found = {}
    for dtype in (torch.float32, torch.float64):
        variable = inputs.to(dtype).requires_grad_()
        result = nn.functional.layer_norm(variable, (64,), mine.weight.to(dtype), mine.bias.to(dtype))
        found[dtype] = torch.autograd.grad((result * direction.to(dtype)).sum(), variable)[0]
    variable = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((mine(variable) * direction).sum(), variable)
    exact = found[torch.float64]
    error, torchs = ((value.double() - exact).abs().max() for value in (gradient, found[torch.float32]))
    assert error < FLOAT32 * exact.abs().max() and error < 30 * torchs


def test_layer_norm_saves_its_result_instead_of_its_input():
    layer, above = LayerNorm(6), nn.Linear(6, 2)
    inputs = torch.randn(50, 6, requires_grad=True)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.data_ptr()) or tensor, lambda x: x):
        result = layer(inputs)
        above(result)
    assert inputs.data_ptr() not in kept and kept.count(result.data_ptr()) == 2

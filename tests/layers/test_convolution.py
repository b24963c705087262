import math

import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.layers.convolution import GatedConvolution


def by_loops(layer: GatedConvolution, inputs: list[list[float]], left: int) -> list[list[float]]:
    """A * sigmoid(B), [A B] = sum over the window, one number at a time."""
    weight, bias = layer.weight.tolist(), layer.bias.tolist()
    width, kernel = layer.weight.shape[1:]
    outputs = []
    for t in range(len(inputs)):
        sums = list(bias)
        for j in range(kernel):
            if 0 <= t - left + j < len(inputs):
                for o in range(2 * width):
                    sums[o] += sum(weight[o][i][j] * inputs[t - left + j][i] for i in range(width))
        outputs.append([sums[d] / (1 + math.exp(-sums[width + d])) for d in range(width)])
    return outputs


@pytest.mark.parametrize(
    ("kernel", "causal", "left"), [(3, False, 1), (3, True, 2), (2, True, 1), (1, False, 0), (5, False, 2)]
)
@pytest.mark.parametrize("length", [1, 2, 6])
def test_gated_convolution_equals_loops(kernel, causal, left, length):
    layer = GatedConvolution(3, kernel, causal).double()
    inputs = torch.randn(2, length, 3, dtype=torch.float64)
    expected = [by_loops(layer, sentence.tolist(), left) for sentence in inputs]
    torch.testing.assert_close(layer(inputs), torch.tensor(expected, dtype=torch.float64))


def test_gated_convolution_of_one_window_equals_its_position():
    layer = GatedConvolution(3, 3, causal=True).double()
    inputs = torch.randn(2, 3, 3, dtype=torch.float64)
    torch.testing.assert_close(layer.window(inputs.transpose(1, 2)), layer(inputs)[:, -1])


def test_gated_convolution_passes_gradcheck():
    layer = GatedConvolution(2, 3, causal=False).double()
    inputs = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: layer(x), (inputs, *layer.parameters()))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gated_convolution_at_initialization_keeps_the_variance(dropout):
    torch.manual_seed(0)
    layer = GatedConvolution(256, 3, True, dropout)
    assert 0.7 < layer(torch.randn(8, 200, 256))[:, 2:].var().item() < 1.6


@pytest.mark.parametrize(("kernel", "causal"), [(2, False), (0, True)])
def test_gated_convolution_with_an_impossible_kernel_is_refused(kernel, causal):
    with pytest.raises(UserError, match=f"got (3 and )?{kernel}"):
        GatedConvolution(3, kernel, causal)

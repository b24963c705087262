import pytest
import torch

from seq2seq.kernels.split_heads import split_heads, split_heads_reference


@pytest.mark.parametrize("used", [(0, 1, 2), (1, 2), (0,)])
def test_split_heads_and_gradients_equal_the_reference(used):
    torch.manual_seed(0)
    packed = torch.randn(3, 7, 3 * 8, dtype=torch.float64, requires_grad=True)
    parts, expected = split_heads(packed, 3, 2), split_heads_reference(packed, 3, 2)
    assert all(torch.equal(one, other) for one, other in zip(parts, expected, strict=True))
    assert parts[0].shape == (3, 2, 7, 4)
    gradients = [
        torch.autograd.grad(sum((split[part] ** (part + 2)).sum() for part in used), packed)[0]
        for split in (parts, expected)
    ]
    assert torch.equal(*gradients)


def test_split_heads_passes_gradgradcheck():
    packed = torch.randn(2, 3, 2 * 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda values: split_heads(values, 2, 2), packed)

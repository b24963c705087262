import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.attention import band_mask, causal_mask, lengths_to_mask, masked_log_softmax, masked_softmax
from seq2seq.errors import UserError


def test_lengths_to_mask_takes_lengths_per_sentence_and_per_query():
    assert lengths_to_mask(torch.tensor([1, 3, 0]), 3).tolist() == [[True, False, False], [True] * 3, [False] * 3]
    assert lengths_to_mask(torch.tensor([1, 2])).tolist() == [[True, False], [True, True]]
    each = lengths_to_mask(torch.tensor([[1, 2], [0, 3]]), 3)
    assert each.tolist() == [[[1, 0, 0], [1, 1, 0]], [[0, 0, 0], [1, 1, 1]]]
    assert each.dtype == torch.bool
    assert lengths_to_mask(torch.tensor([], dtype=torch.int64)).shape == (0, 0)


@pytest.mark.parametrize("lengths", [torch.tensor(3), torch.ones(2, 2, 2, dtype=torch.int64), torch.tensor([1.0])])
def test_lengths_to_mask_of_a_wrong_type_is_refused(lengths):
    with pytest.raises(UserError, match="lengths must be integers"):
        lengths_to_mask(lengths)


def test_causal_and_band_masks_equal_their_definition():
    assert causal_mask(3).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert band_mask(4, 1).tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert band_mask(3, 1, causal=True).tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(-50, 50), st.booleans()), min_size=1, max_size=9))
def test_masked_softmax_equals_softmax_of_the_allowed(entries):
    scores = torch.tensor([score for score, _ in entries], dtype=torch.float64)
    mask = torch.tensor([allowed for _, allowed in entries])
    weights = masked_softmax(scores, mask)
    assert torch.all(weights[~mask] == 0)
    if mask.any():
        torch.testing.assert_close(weights[mask], torch.softmax(scores[mask], 0))
        torch.testing.assert_close(masked_log_softmax(scores, mask)[mask], torch.log_softmax(scores[mask], 0))
    assert torch.all(masked_log_softmax(scores, mask)[~mask] == 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_masked_softmax_of_large_scores_is_finite_in_every_precision(dtype):
    scores = torch.tensor([[1e4, -1e4, 1e4, 0.0], [-1e4, -1e4, -1e4, 1e4], [1e4, 1e4, 1e4, 1e4]], dtype=dtype)
    scores.requires_grad_()
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)
    weights = masked_softmax(scores, mask)
    assert weights.dtype == dtype
    third = torch.tensor(1 / 3, dtype=dtype).item()
    assert weights.tolist() == [[0.5, 0, 0.5, 0], [third, third, third, 0], [0, 0, 0, 0]]
    (weights * torch.arange(4, dtype=dtype)).sum().backward()
    assert torch.all(torch.isfinite(scores.grad))
    assert torch.all(scores.grad[2] == 0) and torch.all(scores.grad[:, 3][1:] == 0)
    assert scores.grad[0, 0] < 0 < scores.grad[0, 2]


def test_masked_softmax_passes_gradcheck():
    torch.manual_seed(1)
    scores = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    mask = lengths_to_mask(torch.tensor([5, 2, 0]), 5).unsqueeze(1)
    assert torch.autograd.gradcheck(lambda x: masked_softmax(x, mask), scores)
    assert torch.autograd.gradcheck(lambda x: masked_log_softmax(x, mask), scores)
    assert torch.autograd.gradcheck(lambda x: masked_softmax(x, None), scores)

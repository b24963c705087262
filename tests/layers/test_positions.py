import math

import pytest
import torch
from precision import assert_float32_close, float32_approx

from seq2seq.attention import lengths_to_mask
from seq2seq.errors import UserError
from seq2seq.layers.positions import (
    AddedPositions,
    ConcatenatedPositions,
    LearnedPositions,
    NoPositions,
    PositionError,
    RotaryPositions,
    SinusoidalPositions,
)


def test_sinusoidal_positions_equal_the_equation():
    vectors = SinusoidalPositions(6)(5)
    for p in range(5):
        for i in range(3):
            angle = p / 10000 ** (2 * i / 6)
            assert vectors[p, 2 * i].item() == float32_approx(math.sin(angle))
            assert vectors[p, 2 * i + 1].item() == float32_approx(math.cos(angle))


@pytest.mark.parametrize("shift", [1, 7, 100])
def test_sinusoidal_positions_shift_by_one_rotation(shift):
    """PE(p + k) = R(k) PE(p), R(k) made of rotations by k w_i."""
    width = 8
    positions = SinusoidalPositions(width).double()
    rotation = torch.zeros(width, width, dtype=torch.float64)
    for i, frequency in enumerate(positions.frequencies.tolist()):
        sine, cosine = math.sin(shift * frequency), math.cos(shift * frequency)
        rotation[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[cosine, sine], [-sine, cosine]])
    torch.testing.assert_close(positions(50, shift), positions(50) @ rotation.T)


@pytest.mark.parametrize("positions", [SinusoidalPositions(4), LearnedPositions(4, 30)])
def test_positions_with_offset_continue_the_sequence(positions):
    assert_float32_close(positions(12)[7:], positions(5, 7))
    rotary = RotaryPositions(4)
    assert_float32_close(rotary(12).sine[7:], rotary(5, 7).sine)


def test_sinusoidal_positions_have_no_limit():
    vectors = SinusoidalPositions(16)(20_000)
    assert vectors.shape == (20_000, 16) and torch.all(torch.isfinite(vectors))
    assert not SinusoidalPositions(16).state_dict()


def test_learned_positions_past_the_last_name_the_segment():
    positions = LearnedPositions(4, 6)
    mask = lengths_to_mask(torch.tensor([6, 9, 8]), 9)
    with pytest.raises(PositionError, match=r"segment 2 of the batch has 9 tokens, but only 6 positions") as caught:
        AddedPositions(positions)(torch.zeros(3, 9, 4), mask=mask)
    assert isinstance(caught.value, UserError)
    assert (caught.value.row, caught.value.length, caught.value.maximum) == (1, 9, 6)
    with pytest.raises(PositionError, match="segment 1 of the batch has 7 tokens"):
        positions(1, offset=6)


def test_learned_positions_past_the_last_are_zero_at_padding():
    positions = LearnedPositions(4, 6)
    assert torch.equal(positions(6), positions.weight)
    padded = positions(8, mask=lengths_to_mask(torch.tensor([6, 2]), 8))
    assert padded.shape == (8, 4) and torch.equal(padded[:6], positions.weight) and torch.all(padded[6:] == 0)


def test_learned_positions_get_gradients():
    module = AddedPositions(LearnedPositions(4, 6))
    module(torch.zeros(2, 3, 4)).sum().backward()
    assert module.positions.weight.grad.tolist() == [[2.0] * 4] * 3 + [[0.0] * 4] * 3


def test_added_concatenated_and_no_positions_join_as_named():
    torch.manual_seed(1)
    positions = SinusoidalPositions(4)
    added, concatenated, none = AddedPositions(positions), ConcatenatedPositions(positions, 10), NoPositions(7)
    assert (added.embedding_width, concatenated.embedding_width, none.embedding_width) == (4, 6, 7)
    embedded = torch.randn(2, 5, 4)
    assert_float32_close(added(embedded, 3)[1, 2], embedded[1, 2] + positions(1, 5)[0])
    embedded = torch.randn(2, 5, 6)
    joined = concatenated(embedded, 3)
    assert joined.shape == (2, 5, 10)
    assert torch.equal(joined[..., :6], embedded) and torch.equal(joined[0, :, 6:], positions(5, 3))
    assert none(embedded) is embedded
    for module in (added, concatenated):
        half = torch.zeros(1, 2, module.embedding_width, dtype=torch.bfloat16)
        assert module(half).dtype == torch.bfloat16


def test_rotary_positions_rotate_each_pair_by_its_angle():
    rotary = RotaryPositions(4).double()
    heads = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    turned = rotary(5, 2)(heads)
    for p in range(5):
        for i, frequency in enumerate((1.0, 0.01)):
            angle = (p + 2) * frequency
            first, second = heads[1, 2, p, i], heads[1, 2, p, i + 2]
            expected = (
                first * math.cos(angle) - second * math.sin(angle),
                second * math.cos(angle) + first * math.sin(angle),
            )
            torch.testing.assert_close(turned[1, 2, p, i], expected[0], atol=1e-6, rtol=1e-6)
            torch.testing.assert_close(turned[1, 2, p, i + 2], expected[1], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(turned.norm(dim=-1), heads.norm(dim=-1))


def test_rotary_dot_products_depend_on_distance_only():
    rotary = RotaryPositions(6).double()
    query, key = torch.randn(1, 1, 1, 6, dtype=torch.float64), torch.randn(1, 1, 1, 6, dtype=torch.float64)

    def dot(p, q):
        return (rotary(1, p)(query) * rotary(1, q)(key)).sum()

    torch.testing.assert_close(dot(3, 10), dot(40, 47))
    torch.testing.assert_close(dot(5, 5), (query * key).sum())
    assert (dot(3, 10) - dot(3, 11)).abs() > 1e-3


def test_sinusoidal_positions_in_half_precision_are_right_far_away():
    wanted = SinusoidalPositions(8)(1, 3001)
    half = SinusoidalPositions(8).to(torch.float16)(1, 3001)
    assert half.dtype == torch.float16
    torch.testing.assert_close(half[0, :2].float(), wanted[0, :2], atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SinusoidalPositions(5), "must be even and positive, got 5"),
        (lambda: RotaryPositions(0), "must be even and positive, got 0"),
        (lambda: LearnedPositions(0, 4), "must be positive, got 0"),
        (lambda: LearnedPositions(4, 1), "maximum_positions=1 must be at least 2"),
        (lambda: ConcatenatedPositions(SinusoidalPositions(8), 8), "8 of 8 features leave none"),
    ],
)
def test_positions_of_impossible_sizes_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()

import random

import pytest
import torch

from seq2seq.attention import KeyValueCache, MultiHeadAttention
from seq2seq.layers.positions import RotaryPositions

D, H, LAYERS = 8, 2, 2


def stack(window=None, seed=1):
    torch.manual_seed(seed)
    return [MultiHeadAttention(D, H, window=window).double().eval() for _ in range(LAYERS)]


def whole(layers, inputs, rotary):
    """Causal self-attention over complete sequences (N, T, D)."""
    rotation = rotary(inputs.shape[1]) if rotary else None
    for layer in layers:
        inputs = inputs + layer(inputs, causal=True, rotation=rotation)[0]
    return inputs


def one_step(layers, inputs, cache, rotary):
    """inputs (B, K, D) -> outputs of the last layer and the next cache."""
    rotation = rotary(1, cache.steps) if rotary else None
    cache = cache.extend()
    for index, layer in enumerate(layers):
        inputs = inputs + layer.step(inputs, cache, index, rotation)
    return inputs, cache


@pytest.mark.parametrize("window", [None, 0, 2])
@pytest.mark.parametrize("rotary", [None, RotaryPositions(D // H).double()], ids=["plain", "rotary"])
@torch.no_grad()
def test_cache_of_beams_that_branch_and_leave_equals_whole_histories(window, rotary):
    """Run a random search: after every step each row's output equals that of its whole history read at once."""
    layers, generator = stack(window), random.Random(2)
    cache = KeyValueCache.start(LAYERS, 3, H, D // H, torch.zeros(0, dtype=torch.float64))
    histories = [[torch.zeros(0, D, dtype=torch.float64)] for _ in range(3)]  # histories[b][k] (t, D)
    for step in range(24):
        rows = len(histories[0])
        inputs = torch.randn(len(histories), rows, D, dtype=torch.float64)
        outputs, cache = one_step(layers, inputs, cache, rotary)
        assert cache.steps == step + 1 and cache.rows == rows
        histories = [
            [torch.cat([history, inputs[b, k : k + 1]]) for k, history in enumerate(beams)]
            for b, beams in enumerate(histories)
        ]
        flat = torch.stack([history for beams in histories for history in beams])
        torch.testing.assert_close(outputs.flatten(0, 1), whole(layers, flat, rotary)[:, -1])

        kept = list(range(len(histories)))
        if step in (4, 8):
            kept.remove(generator.choice(kept))
        wide = generator.choice([1, 3, 4])
        chosen = [[generator.randrange(rows) for _ in range(wide)] for _ in kept]
        cache = cache.select(torch.tensor([[b * rows + k for k in line] for b, line in zip(kept, chosen, strict=True)]))
        histories = [[histories[b][k] for k in line] for b, line in zip(kept, chosen, strict=True)]


@torch.no_grad()
def test_cache_select_moves_neither_keys_nor_values():
    layers = stack()
    cache = KeyValueCache.start(LAYERS, 2, H, D // H, torch.zeros(0, dtype=torch.float64))
    cache = cache.select(torch.tensor([[0, 0, 0], [1, 1, 1]]))
    _, cache = one_step(layers, torch.randn(2, 3, D, dtype=torch.float64), cache, None)
    moved = cache.select(torch.tensor([[2, 2, 0], [3, 5, 4]]))
    assert moved.keys is cache.keys and moved.values is cache.values
    assert moved.visible.tolist() == [[[0, 0, 1], [0, 0, 1], [1, 0, 0]], [[1, 0, 0], [0, 0, 1], [0, 1, 0]]]


@torch.no_grad()
def test_cache_extended_twice_gives_the_same_step():
    """Step twice from one cache: nothing is counted in place."""
    layers = stack()
    cache = KeyValueCache.start(LAYERS, 1, H, D // H, torch.zeros(0, dtype=torch.float64))
    _, cache = one_step(layers, torch.randn(1, 1, D, dtype=torch.float64), cache, None)
    inputs = torch.randn(1, 1, D, dtype=torch.float64)
    first, _ = one_step(layers, inputs, cache, None)
    one_step(layers, torch.randn(1, 1, D, dtype=torch.float64), cache, None)
    again, _ = one_step(layers, inputs, cache, None)
    assert torch.equal(first, again)

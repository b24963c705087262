"""Batches: contents, token budget, coverage, padding, shares of several processes, exact resume."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_text import kept_mates

from seq2seq.data.batching import TokenBatchSampler, collate, cut, sort_by_length
from seq2seq.errors import UserError
from seq2seq.interfaces import BOS, EOS, PAD


def caption_lengths(count: int = 29_000) -> tuple[np.ndarray, np.ndarray]:
    """Lengths like those of short captions: gamma-distributed, both sides correlated."""
    random = np.random.default_rng(0)
    source = np.clip(random.gamma(9, 1.6, count), 1, 250)
    return source.astype(np.uint16), np.clip(source * random.normal(1.05, 0.18, count), 1, 250).astype(np.uint16)


def epoch(sampler: TokenBatchSampler) -> list[list[int]]:
    return [batch.tolist() for batch in sampler]


def test_collate_equals_a_batch_made_by_hand():
    batch = collate([([5, 6, 7], [8]), ([], [9, 10])], rows=[4, 2])
    assert batch.source.tolist() == [[5, 6, 7, EOS], [EOS, PAD, PAD, PAD]]
    assert batch.source_mask.tolist() == [[True] * 4, [True, False, False, False]]
    assert batch.target_in.tolist() == [[BOS, 8, PAD], [BOS, 9, 10]]
    assert batch.target_out.tolist() == [[8, EOS, PAD], [9, 10, EOS]]
    assert batch.target_mask.tolist() == [[True, True, False], [True, True, True]]
    assert batch.rows.tolist() == [4, 2] and len(batch) == 2
    assert batch.source.dtype == batch.target_in.dtype == batch.rows.dtype == torch.int64
    wide = collate([([5, 6, 7, 8], [8])], rows=[0], multiple=8)
    assert wide.source.shape == wide.target_out.shape == wide.target_in.shape == (1, 8)
    assert wide.target_mask.sum() == 2 and wide.target_in[0].tolist() == [BOS, 8, *[PAD] * 6]
    assert len(collate([], rows=[])) == 0
    with pytest.raises(ValueError, match="1 pairs but 2 rows"):
        collate([([1], [1])], rows=[0, 1])


@settings(max_examples=100, deadline=None)
@given(
    widths=st.lists(st.integers(1, 30), min_size=1, max_size=60),
    max_tokens=st.integers(1, 100),
    most=st.one_of(st.none(), st.integers(1, 7)),
)
def test_cut_of_any_widths_equals_greedy_cut(widths, max_tokens, most):
    expected = [0]
    for index in range(1, len(widths) + 1):
        run = widths[expected[-1] : index]
        if len(run) > 1 and (len(run) * max(run) > max_tokens or (most and len(run) > most)):
            expected.append(index - 1)
    assert cut(np.array(widths), max_tokens, most).tolist() == [*expected, len(widths)]
    different, counts = np.array([(width, len(list(rows))) for width, rows in itertools.groupby(widths)]).T
    assert cut(different, max_tokens, most, counts).tolist() == [*expected, len(widths)]


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=4, max_size=40),
    max_tokens=st.integers(20, 200),
    world_size=st.integers(1, 4),
    multiple=st.sampled_from([1, 8]),
)
def test_epoch_has_every_pair_once_in_equal_shares(lengths, max_tokens, world_size, multiple):
    source, target = np.array(lengths, dtype=np.int32).T
    samplers = [
        TokenBatchSampler(source, target, max_tokens, 3, None, multiple, rank, world_size) for rank in range(world_size)
    ]
    for _ in range(2):
        shares = [epoch(sampler) for sampler in samplers]
        assert {len(share) for share in shares} == {len(samplers[0])}
        batches = list(itertools.chain.from_iterable(shares))
        seen = list(itertools.chain.from_iterable(batches))
        if max(map(len, batches)) > 1 or len(seen) == len(lengths):
            assert sorted(seen) == list(range(len(lengths)))
        else:  # single pairs alone cannot always be shared equally
            assert len(set(seen)) == len(seen) > len(lengths) - world_size
        for batch in batches:
            widest = -(-(max(*source[batch], *target[batch]) + 1) // multiple) * multiple
            assert len(batch) == 1 or len(batch) * widest <= max_tokens


def real_share(source: np.ndarray, target: np.ndarray, batches: list[list[int]]) -> float:
    """Real tokens, end marks included, among all positions of the batches, on both sides."""
    sides = [side[batch].astype(int) + 1 for batch in batches for side in (source, target)]
    return sum(side.sum() for side in sides) / sum(side.max() * len(side) for side in sides)


def sentence_lengths(count: int = 28_000) -> tuple[np.ndarray, np.ndarray]:
    """Lengths like those of verses: longer and more spread than captions."""
    random = np.random.default_rng(1)
    source = np.clip(random.gamma(6, 6, count), 1, 128)
    return source.astype(np.uint16), np.clip(source * random.normal(1, 0.12, count), 1, 128).astype(np.uint16)


@pytest.mark.parametrize("lengths", [caption_lengths, sentence_lengths])
def test_batch_mates_change_with_epoch_and_seed_at_two_points_of_padding(lengths):
    source, target = lengths()

    def batches(seed: int, number: int) -> list[list[int]]:
        sampler = TokenBatchSampler(source, target, 2048, seed)
        sampler.epoch = number
        return epoch(sampler)

    first, following, other = batches(1, 0), batches(1, 1), batches(2, 0)
    assert kept_mates(first, following) < 0.1 and kept_mates(first, other) < 0.1
    order = sort_by_length(source, target)
    bounds = cut(np.maximum(source, target)[order].astype(int) + 1, 2048)
    neighbors = [order[start:end].tolist() for start, end in itertools.pairwise(bounds)]
    assert real_share(source, target, first) > real_share(source, target, neighbors) - 0.022


def test_batches_change_with_seed_and_epoch_and_with_nothing_else():
    lengths = caption_lengths(3000)
    first, again, other = (TokenBatchSampler(*lengths, 2000, seed) for seed in (1, 1, 2))
    epochs = [epoch(first) for _ in range(2)]
    assert [epoch(again) for _ in range(2)] == epochs
    assert epochs[0] != epochs[1] != epoch(other) != epochs[0]
    assert {frozenset(batch) for batch in epochs[0]} != {frozenset(batch) for batch in epochs[1]}
    widths = [lengths[1][batch].max() for batch in epochs[0]]
    assert widths != sorted(widths)


def test_batches_hold_at_most_max_sentences():
    sampler = TokenBatchSampler(*caption_lengths(500), 4096, 1, max_sentences=7)
    assert max(map(len, epoch(sampler))) == 7


@pytest.mark.parametrize("world_size", [1, 2])
def test_resume_at_every_batch_continues_exactly(world_size):
    lengths = caption_lengths(400)

    def make() -> TokenBatchSampler:
        return TokenBatchSampler(*lengths, 600, 5, rank=world_size - 1, world_size=world_size)

    whole = list(itertools.chain.from_iterable(epoch(sampler) for sampler in [make()] * 3))
    for stop in range(len(whole) + 1):
        interrupted, handed_out = make(), []
        while len(handed_out) < stop:
            for batch in interrupted:
                handed_out.append(batch.tolist())
                if len(handed_out) == stop:
                    break
        resumed = make()
        resumed.load_state_dict(interrupted.state_dict())
        while len(handed_out) < len(whole):
            handed_out += epoch(resumed)
        assert handed_out == whole, stop


def test_state_of_other_batches_is_refused():
    lengths = caption_lengths(400)
    state = TokenBatchSampler(*lengths, 600, 5).state_dict()
    for name, other in {
        "seed": TokenBatchSampler(*lengths, 600, 6),
        "batches": TokenBatchSampler(*lengths, 900, 5),
        "world_size": TokenBatchSampler(*lengths, 600, 5, rank=0, world_size=2),
    }.items():
        with pytest.raises(UserError, match=f"cannot resume: .* has {name}"):
            other.load_state_dict(state)


def test_impossible_values_are_refused():
    lengths = caption_lengths(3)
    with pytest.raises(UserError, match="max_tokens=0"):
        TokenBatchSampler(*lengths, 0, 1)
    with pytest.raises(UserError, match="3 training pairs cannot be shared among 4 processes"):
        TokenBatchSampler(*lengths, 100, 1, rank=0, world_size=4)

"""Batches of a bounded number of tokens, bucketed by length, shuffled by seed and epoch, resumable at any batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seq2seq.errors import UserError
from seq2seq.interfaces import BOS, EOS, PAD, Batch

Integers = NDArray[np.integer[Any]]


def collate(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], rows: Sequence[int] | Integers, multiple: int = 1
) -> Batch:
    """A Batch of id pairs (without BOS and EOS); `rows` are their positions in their split.

    Widths are rounded up to a multiple of `multiple`.
    """
    if len(pairs) != len(rows):
        raise ValueError(f"{len(pairs)} pairs but {len(rows)} rows")
    sides = [[np.asarray(pair[side], dtype=np.int64) for pair in pairs] for side in (0, 1)]
    flat = [np.concatenate([np.empty(0, np.int64), *side]) for side in sides]
    lengths = [np.array([len(ids) for ids in side], dtype=np.int64) for side in sides]
    return collate_flat(flat[0], lengths[0], flat[1], lengths[1], rows, multiple)


def collate_flat(
    source: Integers,
    source_lengths: Integers,
    target: Integers,
    target_lengths: Integers,
    rows: Sequence[int] | Integers,
    multiple: int = 1,
) -> Batch:
    """`collate` for each side's ids joined end to end."""
    source_ids, source_mask = _pad(source, source_lengths, multiple)
    target_ids, target_mask = _pad(target, target_lengths, multiple)
    target_in = np.full_like(target_ids, PAD)
    target_in[:, 1:] = target_ids[:, :-1]
    target_in[target_in == EOS] = PAD
    target_in[:, 0] = BOS
    return Batch(
        source=torch.from_numpy(source_ids),
        source_mask=torch.from_numpy(source_mask),
        target_in=torch.from_numpy(target_in),
        target_out=torch.from_numpy(target_ids),
        target_mask=torch.from_numpy(target_mask),
        rows=torch.from_numpy(np.array(rows, dtype=np.int64)),
    )


def _pad(flat: Integers, lengths: Integers, multiple: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pad rows to ids (B, L), EOS after each row's tokens, and their mask (B, L)."""
    lengths = lengths.astype(np.int64)
    width = -(-int(lengths.max(initial=0) + 1) // multiple) * multiple
    columns = np.arange(width)
    ids = np.full((len(lengths), width), PAD, dtype=np.int64)
    ids[columns < lengths[:, None]] = flat
    ids[np.arange(len(lengths)), lengths] = EOS
    return ids, columns <= lengths[:, None]


BAND = 3
"""Target lengths sorted as one. Measured on three corpora: wider bands waste target padding, narrower ones source."""


def sort_by_length(source_lengths: Integers, target_lengths: Integers) -> NDArray[np.int32]:
    """Row numbers by bands of target lengths, and within a band by source length, up and down in turn.

    Neighbors are alike on both sides, also where one band gives way to the next.
    """
    band = target_lengths.astype(np.int64) // BAND
    source = source_lengths.astype(np.int64)
    key = np.where(band & 1, (1 << 31) - source, source)
    key += band << 32
    key *= BAND
    key += target_lengths % BAND
    return key.argsort(kind="stable").astype(np.int32)


def cut(
    widths: Integers, max_tokens: int, max_sentences: int | None = None, counts: Integers | None = None
) -> NDArray[np.int64]:
    """Cut a sequence of rows into runs with sentences x widest <= max_tokens; a wider row stands alone.

    widths (n,) in tokens, end marks included. counts (n,): consecutive rows of each width, one if None. Returns the
    bounds (runs + 1,), from 0 to the number of rows.
    """
    bounds = [0]
    end = widest = 0
    for width, count in zip(widths.tolist(), [1] * len(widths) if counts is None else counts.tolist(), strict=True):
        while count:
            most = max(1, max_tokens // max(widest, width))
            if max_sentences is not None:
                most = min(most, max_sentences)
            started = end - bounds[-1]
            if started >= most:
                bounds.append(end)
                widest = 0
            elif not started and count > most:
                whole = count // most
                bounds += range(end + most, end + whole * most + 1, most)
                end, count = end + whole * most, count - whole * most
            else:
                taken = min(count, most - started)
                end, count, widest = end + taken, count - taken, max(widest, width)
    if end > bounds[-1]:
        bounds.append(end)
    return np.array(bounds, dtype=np.int64)


MIXED = 6.75
"""Batches that share their pairs at random, on average. On four corpora, in batches of 2,048 tokens, 5 would keep 0.11
of the batch mates in the next epoch, and 6.75 keeps 0.07; another one costs 0.3 points of padding."""

WIDEST = 0.08
"""Bound on the spread of lengths that share batches, as a share of the mean length: padding costs at most 2 points."""


class TokenBatchSampler:
    """Yields the row numbers (B,) of one batch after another, epoch after epoch.

    A batch holds at most `max_tokens` = sentences x widest side, end marks and padding included (rounded up to
    `multiple`), and at most `max_sentences`; a single pair wider than that stands alone. Every epoch has each pair
    exactly once. All `world_size` processes get the same number of batches, without overlap: the largest batches are
    halved until their number is a multiple of `world_size`. (Only where single pairs alone are left to halve, a few,
    less than `world_size`, sit out each epoch.)

    Pairs of like lengths share a batch: a grid over source and target length groups them, in square cells that hold
    about MIXED batches each. Pairs are shuffled within their cell, and the cells, in an order that keeps neighbors
    together, are cut into batches. The grid's origin moves by about half a cell from one epoch to the next and from
    one seed to the next, and cells are visited by source and by target in turn. So less than a tenth of a pair's batch
    mates are the same in the next epoch or under another seed. The number of batches changes a little from epoch to
    epoch.

    Each `iter` resumes where the last one stopped: inside the epoch if it was left early (or restored), else with the
    next epoch. `state_dict` counts the batches handed out.
    """

    def __init__(
        self,
        source_lengths: Integers,
        target_lengths: Integers,
        max_tokens: int,
        seed: int,
        max_sentences: int | None = None,
        multiple: int = 1,
        rank: int = 0,
        world_size: int = 1,
        order: NDArray[np.int32] | None = None,
    ):
        """Lengths (n,) are in tokens without end marks. order: `sort_by_length` of them, if known."""
        if len(source_lengths) != len(target_lengths):
            raise ValueError(f"{len(source_lengths)} source but {len(target_lengths)} target lengths")
        for name, value in (("max_tokens", max_tokens), ("max_sentences", max_sentences), ("multiple", multiple)):
            if value is not None and value < 1:
                raise UserError(f"{name}={value} must be positive.")
        if len(source_lengths) < world_size:
            raise UserError(f"{len(source_lengths)} training pairs cannot be shared among {world_size} processes.")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} of {world_size}")
        self.max_tokens, self.max_sentences = max_tokens, max_sentences
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.epoch = 0
        self.consumed = 0
        self._order = sort_by_length(source_lengths, target_lengths) if order is None else order
        source, target = source_lengths[self._order], target_lengths[self._order]
        changes = np.flatnonzero((np.diff(source) != 0) | (np.diff(target) != 0)) + 1
        self._starts = np.concatenate([[0], changes])  # of each pair of lengths in the sorted rows
        self._counts = np.diff(self._starts, append=len(source))
        self._source, self._target = (side[self._starts].astype(np.int64) for side in (source, target))
        self._widths = -(-(np.maximum(self._source, self._target) + 1) // multiple) * multiple
        self._cell = self._cell_width()
        self._plan: tuple[int, NDArray[np.int32], NDArray[np.int64], Integers] | None = None

    def _cell_width(self) -> float:
        """Width of a square cell of the grid, in tokens: at least one, and no wider than padding allows.

        Where a cell of MIXED batches would be too wide (a small corpus, large batches), more batch mates are kept.
        """
        filled = self._counts * np.maximum(self._widths / self.max_tokens, 1 / (self.max_sentences or self.max_tokens))
        total = self._counts.sum()
        batches = (self._counts * filled).sum() / total  # of one pair of lengths, averaged over rows
        widest = 1 + WIDEST * (self._counts * self._widths).sum() / total
        return float(min(max(1.0, (MIXED / batches) ** 0.5), widest))

    def __len__(self) -> int:
        """Batches of this epoch in this process."""
        _, _, _, batches = self._planned()
        return len(batches)

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        if self.consumed >= len(self):
            self.epoch, self.consumed = self.epoch + 1, 0
        _, order, bounds, batches = self._planned()
        while self.consumed < len(batches):
            batch = batches[self.consumed]
            self.consumed += 1
            yield order[bounds[batch] : bounds[batch + 1]]

    def _planned(self) -> tuple[int, NDArray[np.int32], NDArray[np.int64], Integers]:
        """The epoch, its rows in order, the bounds of all batches and this process's batches.

        At any moment the processes work on neighbors in length, so that none waits long for the others.
        """
        if self._plan is None or self._plan[0] != self.epoch:
            self._plan = None  # frees the last epoch's rows
            random = np.random.default_rng([self.seed, self.epoch])
            order, bounds = self._shuffled(random)
            each, sitting_out = divmod(len(bounds) - 1, self.world_size)
            groups = random.permutation(each)
            first = int(random.integers(sitting_out + 1))
            self._plan = self.epoch, order, bounds, first + groups * self.world_size + self.rank
        return self._plan

    def _shuffled(self, random: np.random.Generator) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The rows of this epoch, cell by cell, and the bounds of its batches among them."""
        # Multiples of irrational numbers never repeat; the two of the epoch move the origin by nearly half a cell.
        column = np.floor(self._source / self._cell + (2**0.5 * self.seed + 7**0.5 * self.epoch) % 1).astype(np.int64)
        row = np.floor(self._target / self._cell + (3**0.5 * self.seed + 13**0.5 * self.epoch) % 1).astype(np.int64)
        if (self.seed + self.epoch) % 2:
            column, row = row, column
        column = np.where(row & 1, -column, column)
        by_cell = np.lexsort((column, row))
        firsts = np.flatnonzero(np.diff(column[by_cell], prepend=-1) | np.diff(row[by_cell], prepend=-1))
        starts, counts = self._starts[by_cell], self._counts[by_cell]
        order = np.concatenate(
            [self._order[start:end] for start, end in zip(starts.tolist(), (starts + counts).tolist(), strict=True)]
        )
        sizes = np.add.reduceat(counts, firsts)
        end = 0
        for size in sizes.tolist():
            random.shuffle(order[end : end + size])
            end += size
        widest = np.maximum.reduceat(self._widths[by_cell], firsts)
        return order, _divide(cut(widest, self.max_tokens, self.max_sentences, sizes), self.world_size)

    def state_dict(self) -> dict[str, int]:
        return {
            "epoch": self.epoch,
            "consumed": self.consumed,
            "batches": len(self),
            "seed": self.seed,
            "world_size": self.world_size,
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Raises UserError if the state belongs to other batches: another corpus, seed, size or number of processes."""
        before = self.epoch, self.consumed
        self.epoch, self.consumed = state["epoch"], state["consumed"]
        own = self.state_dict()
        for name in ("world_size", "seed", "batches"):
            if state[name] != own[name]:
                self.epoch, self.consumed = before
                raise UserError(
                    f"cannot resume: the checkpoint's data order has {name} {state[name]}, this run {own[name]}.\n"
                    "Resume with the same corpus, batch settings, seed and number of processes, or start a new run."
                )


def _divide(bounds: NDArray[np.int64], parts: int) -> NDArray[np.int64]:
    """Halve the largest runs until their number is a multiple of `parts`, or every run is a single row."""
    missing = -(len(bounds) - 1) % parts
    for _ in range(missing):
        sizes = np.diff(bounds)
        largest = int(sizes.argmax())
        if sizes[largest] == 1:
            break
        bounds = np.insert(bounds, largest + 1, (bounds[largest] + bounds[largest + 1]) // 2)
    return bounds


class BatchLoader:
    """Training batches, made in this process as they are asked for; the state is that of the batch order."""

    def __init__(self, sampler: TokenBatchSampler, make: Callable[[Integers], Batch], pin_memory: bool = False):
        self.sampler = sampler
        self._make = make
        self._pin_memory = pin_memory

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        for indices in self.sampler:
            batch = self._make(indices)
            yield batch.pin_memory() if self._pin_memory else batch

    def state_dict(self) -> dict[str, int]:
        return self.sampler.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.sampler.load_state_dict(state)

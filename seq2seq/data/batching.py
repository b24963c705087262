"""Batches of a bounded number of tokens, bucketed by length, shuffled by seed and epoch, resumable at any batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """ids (B, L) with EOS after each row's own, and the mask (B, L) of both."""
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
    """Row numbers by bands of target lengths, and within one by source length, up and down in turn: neighbours are
    alike on both sides, also where one band gives way to the next."""
    band = target_lengths.astype(np.int64) // BAND
    source = source_lengths.astype(np.int64)
    key = np.where(band & 1, (1 << 31) - source, source)
    key += band << 32
    key *= BAND
    key += target_lengths % BAND
    return key.argsort(kind="stable").astype(np.int32)


def cut(widths: Integers, max_tokens: int, max_sentences: int | None = None) -> NDArray[np.int64]:
    """Cut a sequence of rows into runs with sentences x widest <= max_tokens; a wider row stands alone.

    widths (n,) in tokens, end marks included. Returns the bounds (runs + 1,), from 0 to n.
    """
    bounds = [0]
    start, total = 0, len(widths)
    while start < total:
        most = max(1, max_tokens // int(widths[start]))
        if max_sentences is not None:
            most = min(most, max_sentences)
        window = np.maximum.accumulate(widths[start : start + most].astype(np.int64))
        fitting = int(np.searchsorted(window * np.arange(1, len(window) + 1), max_tokens, side="right"))
        start += max(1, fitting)
        bounds.append(start)
    return np.array(bounds, dtype=np.int64)


class TokenBatchSampler:
    """Yields the row numbers (B,) of one batch after another, for ever new epochs.

    A batch holds at most `max_tokens` = sentences x widest side, end marks and padding included (rounded up to
    `multiple`), and at most `max_sentences`; a single pair wider than that stands alone. Pairs of like lengths share a
    batch; which ones, and the order of batches, change with seed and epoch. Every epoch has each pair exactly once
    and the same number of batches. Of `world_size` processes each gets as many batches, without overlap: the largest
    are halved until the number divides. (Only where nothing but single pairs is left to halve, a few fewer than
    `world_size` of them sit out each epoch.)

    Each `iter` goes on where the last one stopped: inside the epoch if it was left early (or restored), else with the
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
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.epoch = 0
        self.consumed = 0
        self._order = sort_by_length(source_lengths, target_lengths) if order is None else order
        sorted_source, sorted_target = source_lengths[self._order], target_lengths[self._order]
        widths = np.maximum(sorted_source, sorted_target).astype(np.int32) + 1
        if multiple > 1:
            widths = -(-widths // multiple) * multiple
        self._bounds = _divide(cut(widths, max_tokens, max_sentences), world_size)
        changes = (np.diff(sorted_source) != 0) | (np.diff(sorted_target) != 0)
        self._ties = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(widths)]]).astype(np.int32)

    def __len__(self) -> int:
        """Batches an epoch in this process."""
        return (len(self._bounds) - 1) // self.world_size

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        if self.consumed >= len(self):
            self.epoch, self.consumed = self.epoch + 1, 0
        order, batches = self._shuffled()
        while self.consumed < len(self):
            batch = batches[self.consumed]
            self.consumed += 1
            yield order[self._bounds[batch] : self._bounds[batch + 1]]

    def _shuffled(self) -> tuple[NDArray[np.int32], Integers]:
        """This epoch's rows, pairs of equal lengths shuffled among themselves, and this process' batches.

        At any moment the processes work on neighbours in length, so that none waits long for the others.
        """
        random = np.random.default_rng([self.seed, self.epoch])
        order = self._order.copy()
        for start, end in zip(self._ties[:-1].tolist(), self._ties[1:].tolist(), strict=True):
            if end - start > 1:
                random.shuffle(order[start:end])
        groups = random.permutation(len(self))
        sitting_out = (len(self._bounds) - 1) % self.world_size
        first = int(random.integers(sitting_out + 1))
        return order, first + groups * self.world_size + self.rank

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
        own = self.state_dict()
        for name in ("world_size", "seed", "batches"):
            if state[name] != own[name]:
                raise UserError(
                    f"cannot resume: the checkpoint's data order has {name} {state[name]}, this run {own[name]}.\n"
                    "Resume with the same corpus, batch settings, seed and number of processes, or start a new run."
                )
        self.epoch, self.consumed = state["epoch"], state["consumed"]


def _divide(bounds: NDArray[np.int64], parts: int) -> NDArray[np.int64]:
    """Halve the largest runs until their number divides by `parts`, or every run is a single row."""
    missing = -(len(bounds) - 1) % parts
    for _ in range(missing):
        sizes = np.diff(bounds)
        largest = int(sizes.argmax())
        if sizes[largest] == 1:
            break
        bounds = np.insert(bounds, largest + 1, (bounds[largest] + bounds[largest + 1]) // 2)
    return bounds

"""Lexical translation probabilities p(target token | source token) by IBM Model 1 (Brown et al. 1993)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.batching import Integers
from seq2seq.interfaces import EOS, PAD, Batch

ITERATIONS = 5
CELLS = 8_000_000
"""Most pairs of a source and a target token that have a probability; the rarest are left out first."""
OCCURRENCES = 50_000_000
"""Most occurrences of such pairs that are counted, which are kept in memory."""
CHUNK = 4_000_000
"""Occurrences that are sorted together."""
FREQUENT = 200
"""Target tokens that any translation may contain."""
LEAST = 1e-4
"""Least probability of a candidate."""

Batches = Callable[[], Iterable[Batch]]
"""Function that begins a new pass over the same batches."""
Numbers = NDArray[np.float64]


def translation_candidates(
    batches: Batches, source_vocabulary: int, target_vocabulary: int, count: int, joint: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the `count` most probable translations of each source token, (source_vocabulary, count), best first and
    filled up with PAD, and the most frequent target tokens (FREQUENT,).

    joint: a source token that the batches lack may also be copied, since both sides have one vocabulary.
    """
    keys, probabilities = translation_probabilities(batches, target_vocabulary)
    source, target = np.divmod(keys, target_vocabulary)
    order = np.lexsort((target, -probabilities, source))
    first = np.searchsorted(source, np.arange(source_vocabulary))
    rank = np.arange(len(order)) - first[source]
    kept = (rank < count) & (probabilities[order] >= LEAST)
    candidates = np.full((source_vocabulary, count), PAD, dtype=np.int32)
    candidates[source[kept], rank[kept]] = target[order[kept]]
    if joint:
        absent = np.bincount(source, minlength=source_vocabulary) == 0
        candidates[absent, 0] = absent.nonzero()[0]
    seen = np.zeros(target_vocabulary, dtype=np.int64)
    for batch in batches():
        seen += np.bincount(batch.target_out[batch.target_mask].numpy(), minlength=target_vocabulary)
    return candidates, np.argsort(-seen, kind="stable")[:FREQUENT].astype(np.int32)


def translation_probabilities(
    batches: Batches, target_vocabulary: int, iterations: int = ITERATIONS, cells: int = CELLS
) -> tuple[Integers, Numbers]:
    """Estimate p(target | source) by expectation maximization: keys (n,), source * target_vocabulary + target in
    ascending order, and their probabilities (n,).

    The EOS of a source is the model's empty word; that of a target is left out.
    """
    keys = cooccurrences(batches, target_vocabulary, cells)
    source = keys // target_vocabulary
    places = [located(keys, own, real) for own, real in token_pairs(batches, target_vocabulary)]
    probabilities = np.append(np.ones(len(keys)), 0)  # the last one: of what has no key
    for _ in range(iterations):
        counts = np.zeros(len(keys) + 1)
        for own in places:
            shares = probabilities[own]
            totals = shares.sum(1, keepdims=True)  # over the tokens of the source
            np.divide(shares, totals, out=shares, where=totals > 0)
            np.add.at(counts, own, shares)
        marginals = np.bincount(source, counts[:-1])[source]
        np.divide(counts[:-1], marginals, out=probabilities[:-1], where=marginals > 0)
    return keys, probabilities[:-1]


def located(keys: Integers, wanted: Integers, real: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return the place of each wanted key in the ascending `keys`; len(keys) if it is not there or not real."""
    places = np.searchsorted(keys, wanted)
    there = real & (keys[np.minimum(places, len(keys) - 1)] == wanted)
    return np.where(there, places, len(keys)).astype(np.int32)


def token_pairs(batches: Batches, target_vocabulary: int) -> Iterator[tuple[Integers, NDArray[np.bool_]]]:
    """Yield the key of each source and target token of a sentence pair, (B, S, T), and a mask of the real ones, until
    there are OCCURRENCES."""
    left = OCCURRENCES
    for batch in batches():
        left -= len(batch) * batch.source.shape[1] * batch.target_out.shape[1]
        if left < 0:
            return
        target = batch.target_out.numpy()
        keys = batch.source.numpy()[:, :, None] * target_vocabulary + target[:, None]
        inside = batch.target_mask.numpy() & (target != EOS)
        yield keys, batch.source_mask.numpy()[:, :, None] & inside[:, None]


def cooccurrences(batches: Batches, target_vocabulary: int, cells: int) -> Integers:
    """Return the distinct keys of `token_pairs` in ascending order, `cells` at most."""
    keys: Integers = np.empty(0, np.int64)
    counts: Integers = np.empty(0, np.int64)
    waiting: list[Integers] = []

    def merged() -> tuple[Integers, Integers]:
        new, often = np.unique(np.concatenate([np.empty(0, np.int64), *waiting]), return_counts=True)
        both, places = np.unique(np.concatenate([keys, new]), return_inverse=True)
        total = np.bincount(places, np.concatenate([counts, often]), len(both)).astype(np.int64)
        while len(both) > cells:
            frequent = total > total.min()
            both, total = both[frequent], total[frequent]
        return both, total

    for own, real in token_pairs(batches, target_vocabulary):
        waiting.append(own[real])
        if sum(map(len, waiting)) >= CHUNK:
            keys, counts = merged()
            waiting.clear()
    return merged()[0]

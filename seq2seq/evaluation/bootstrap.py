"""The bootstrap over a test set's segments (Koehn, 2004), which intervals and paired tests share.

A draw takes a row of sufficient statistics: a segment, or a group of segments that depend on one another, as those of a
joined test set do. Two calls with the same number of rows and the same seed draw the same rows.
"""

from collections.abc import Iterator, Sequence

import numpy as np

SAMPLES = 1000
SEED = 12345
"""sacreBLEU's own defaults for its bootstrap."""

FEWEST = 10
"""Rows below which there are no resamples: a bootstrap of so few means nothing."""

BLOCK = 4_000_000
"""Draws held in memory at a time: resamples x rows."""


def resampled_sums(counts: np.ndarray, samples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the summed statistics of each resample of the rows; none below FEWEST rows.

    The draws are sacreBLEU's for this seed, made in blocks, so that memory stays small for any number of rows.
    """
    rows = len(counts)
    if rows < FEWEST:
        return
    generator = np.random.default_rng(seed)
    block = max(1, BLOCK // rows)
    for start in range(0, samples, block):
        drawn = generator.choice(rows, size=(min(block, samples - start), rows), replace=True)
        yield from np.array([np.bincount(row, minlength=rows) for row in drawn], dtype=np.float64) @ counts


def grouped(counts: np.ndarray, groups: Sequence[int] | np.ndarray | None) -> np.ndarray:
    """Sum segments' statistics (segments, n) over each group (groups, n); `groups` has a number for each segment, and
    without it every segment is drawn by itself."""
    if groups is None:
        return counts
    numbers, places = np.unique(groups, return_inverse=True)
    sums = np.zeros((len(numbers), counts.shape[1]))
    np.add.at(sums, places, counts)
    return sums


def overlapping(segments: Sequence[range]) -> list[int]:
    """Give each range a group number: ranges that overlap, directly or through others, share one."""
    numbers = [0] * len(segments)
    group, end = -1, 0
    for row in sorted(range(len(segments)), key=lambda row: segments[row].start):
        if group < 0 or segments[row].start >= end:
            group += 1
        numbers[row] = group
        end = max(end, segments[row].stop)
    return numbers


def percentile_interval(scores: np.ndarray) -> tuple[float | None, float | None]:
    """95% percentile interval of resampled scores, by sacreBLEU's rule for its bounds; None without resamples."""
    if not len(scores):
        return None, None
    ordered = np.sort(scores)
    cut = len(ordered) // 40
    return float(ordered[cut]), float(ordered[len(ordered) - cut - 1])


def two_sided_p_value(resampled: np.ndarray, difference: float) -> float | None:
    """Share of resampled differences at least as far from their mean as the observed one is from 0.

    (1 + #{|d* - mean d*| >= |d|}) / (B + 1) with signed d* (Efron & Tibshirani, 1993, chapter 16): moved to mean 0, the
    resamples stand for the differences of two equal systems. None without resamples.
    """
    if not len(resampled):
        return None
    extreme = np.abs(resampled - resampled.mean()) >= abs(difference)
    return float((1 + extreme.sum()) / (len(resampled) + 1))

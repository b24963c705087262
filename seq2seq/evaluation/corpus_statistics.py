"""One system's statistics on a test set: corpus scores of any segments, and their bootstrap intervals.

The bootstrap is sacreBLEU's (Koehn, 2004): the same resamples for the same seed, summed in one matrix product, so that
every length bucket can afford one. Where segments depend on one another, whole groups of them are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seq2seq.evaluation.bootstrap import FEWEST, SAMPLES, SEED, grouped, percentile_interval, resampled_sums
from seq2seq.evaluation.languages import Unit
from seq2seq.evaluation.lengths import LONG, SHORT, rows_of_lengths
from seq2seq.evaluation.scorers import Scorer


class CorpusStatistics:
    """One scorer's statistics of a system, a row per segment; any subset of rows is scored without counting again.

    groups: a number for each segment; segments of one group are drawn together.
    """

    def __init__(
        self,
        scorer: Scorer,
        hypotheses: Sequence[str],
        references: Sequence[str],
        groups: Sequence[int] | None = None,
    ) -> None:
        self.scorer = scorer
        self.groups = groups
        self.counts = np.array(
            [scorer.count(h, r) for h, r in zip(hypotheses, references, strict=True)], dtype=np.float64
        )

    @property
    def signature(self) -> str:
        return self.scorer.signature

    def score(self, rows: Sequence[int] | None = None) -> float:
        """Corpus score of the given rows (default all), on sacreBLEU's scale: 0 to 100, TER from 0 upwards."""
        counts = self.counts if rows is None else self.counts[list(rows)]
        return self.scorer.score(counts.sum(axis=0).tolist())

    def sentences(self) -> list[float]:
        """Score of each segment."""
        return [self.scorer.sentence(row) for row in self.counts.tolist()]

    def resampled(self, rows: Sequence[int] | None, samples: int, seed: int) -> np.ndarray:
        """(samples,) corpus scores of bootstrap resamples of the rows; (0,) for too few rows or groups of them."""
        everything = range(len(self.counts)) if rows is None else rows
        groups = None if self.groups is None else [self.groups[row] for row in everything]
        counts = grouped(self.counts[list(everything)], groups)
        return np.array([self.scorer.score(sums.tolist()) for sums in resampled_sums(counts, samples, seed)])

    def resampled_pair(
        self, first: Sequence[int], second: Sequence[int], samples: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """`resampled` of two disjoint sets of rows: apart, or where groups hold rows of both, from the same groups."""
        groups = np.arange(len(self.counts)) if self.groups is None else np.array(self.groups)
        if min(len(set(groups[list(own)])) for own in (first, second)) < FEWEST:
            return np.empty(0), np.empty(0)
        if self.groups is None:
            return self.resampled(first, samples, seed), self.resampled(second, samples, seed + 1)
        rows = sorted([*first, *second])
        inside = np.isin(rows, first)[:, None]
        columns = np.hstack([self.counts[rows] * inside, self.counts[rows] * ~inside])
        width = self.counts.shape[1]
        sums = list(resampled_sums(grouped(columns, groups[rows]), samples, seed))
        return np.array([self.scorer.score(row[:width].tolist()) for row in sums]), np.array(
            [self.scorer.score(row[width:].tolist()) for row in sums]
        )

    def interval(
        self, rows: Sequence[int] | None = None, samples: int = SAMPLES, seed: int = SEED
    ) -> dict[str, float | None]:
        """{"score", "low", "high"}: the score and its 95% bootstrap percentile interval, None and None for too few
        rows."""
        low, high = percentile_interval(self.resampled(rows, samples, seed))
        return {"score": self.score(rows), "low": low, "high": high}


def retention(
    statistics: CorpusStatistics,
    sources: Sequence[str],
    samples: int = SAMPLES,
    seed: int = SEED,
    unit: Unit = "words",
) -> dict[str, float | None] | None:
    """Share of its quality that a system keeps on long sentences: its score on LONG sources / on SHORT ones.

    {"score", "low", "high"}, where 1.0 means that length costs nothing. The two sets are disjoint; their bounds are by
    `CorpusStatistics.resampled_pair`. None where either set is empty or the short one scores 0.
    """
    short, long = (rows_of_lengths(sources, *bounds[unit], unit) for bounds in (SHORT, LONG))
    if not short or not long or statistics.score(short) == 0:
        return None
    below, above = statistics.resampled_pair(short, long, samples, seed)
    low, high = percentile_interval(above[below > 0] / below[below > 0])
    return {"score": statistics.score(long) / statistics.score(short), "low": low, "high": high}

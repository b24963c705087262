"""Regression of segment scores on source length: what longer sources cost each system, on the very same segments.

Ordinary least squares, b = (X'X)^-1 X'y. Segments that share sentences have correlated errors, so the covariance is the
cluster-robust one with the usual correction for few clusters, CR1:

    V = c (X'X)^-1 (sum over clusters g of X_g' u_g u_g' X_g) (X'X)^-1,   c = G / (G - 1) * (N - 1) / (N - K)

with residuals u, N rows, K columns and G clusters, and intervals by the t distribution with G - 1 degrees of freedom
(Liang and Zeger, Biometrika 1986; Cameron and Miller, Journal of Human Resources 2015).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seq2seq.evaluation.bootstrap import FEWEST, grouped

NORMAL = 1.959963984540054
"""97.5% quantile of the normal distribution."""


@dataclass(frozen=True)
class Fit:
    """Coefficients (K,) and their covariance (K, K), estimated from `clusters` clusters."""

    coefficients: np.ndarray
    covariance: np.ndarray
    clusters: int

    def combination(self, weights: np.ndarray) -> dict[str, float | None]:
        """{"score", "low", "high"}: a weighted sum of coefficients and its 95% interval, None below FEWEST clusters."""
        score = float(weights @ self.coefficients)
        if self.clusters < FEWEST:
            return {"score": score, "low": None, "high": None}
        variance = max(0.0, float(weights @ self.covariance @ weights))
        margin = t_quantile(self.clusters - 1) * variance**0.5
        return {"score": score, "low": score - margin, "high": score + margin}


def least_squares(design: np.ndarray, values: np.ndarray, clusters: Sequence[int] | np.ndarray) -> Fit | None:
    """Regress values (N,) on the columns of design (N, K); rows with the same number in `clusters` (N,) are correlated.

    Returns None where the columns do not determine the coefficients. The covariance is all 0 for a single cluster, or
    without more rows than columns.
    """
    rows, columns = design.shape
    if np.linalg.matrix_rank(design) < columns:
        return None
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ (design.T @ values)
    sums = grouped(design * (values - design @ coefficients)[:, None], clusters)
    count = len(sums)
    spare = count > 1 and rows > columns
    correction = count / (count - 1) * (rows - 1) / (rows - columns) if spare else 0.0
    return Fit(coefficients, correction * inverse @ (sums.T @ sums) @ inverse, count)


def losses_by_length(
    lengths: Sequence[int],
    scores: Mapping[str, Sequence[float]],
    baseline: str | None = None,
    clusters: Sequence[int] | None = None,
    step: int = 1,
) -> dict[str, dict[str, Any]] | None:
    """Regress segment scores on length, system and their interaction: an intercept and a slope for each system.

    lengths: of the segments' sources. scores: each system's scores of the same segments. clusters: a number for each
    segment; by default each segment is a cluster, which holds its rows of all systems.

    Returns for each system {"loss": points lost for every `step` of length, "difference": of that loss from the
    baseline's, None for the baseline itself or without one}, each {"score", "low", "high"}. A loss below 0 is a gain.
    None where all segments are equally long.
    """
    names, count = list(scores), len(lengths)
    design = np.zeros((len(names) * count, 2 * len(names)))
    for place in range(len(names)):
        own = slice(place * count, (place + 1) * count)
        design[own, 2 * place] = 1.0
        design[own, 2 * place + 1] = np.asarray(lengths) / step
    values = np.concatenate([np.asarray(scores[name], dtype=np.float64) for name in names])
    segments = np.arange(count) if clusters is None else np.asarray(clusters)
    fit = least_squares(design, values, np.tile(segments, len(names)))
    if fit is None:
        return None

    def loss(name: str) -> np.ndarray:
        weights = np.zeros(2 * len(names))
        weights[2 * names.index(name) + 1] = -1.0
        return weights

    return {
        name: {
            "loss": fit.combination(loss(name)),
            "difference": None
            if baseline is None or name == baseline
            else fit.combination(loss(name) - loss(baseline)),
        }
        for name in names
    }


def t_quantile(degrees: int) -> float:
    """97.5% quantile of Student's t distribution (Abramowitz and Stegun, 1964, 26.7.5); the error is below 0.001 for 9
    or more degrees of freedom."""
    z, n = NORMAL, degrees
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(z + sum(term / n**power for power, term in enumerate(terms, start=1)))

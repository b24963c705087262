"""Significance: paired bootstrap tests, and the spread over seeds."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from seq2seq.errors import UserError
from seq2seq.evaluation.bootstrap import SAMPLES, SEED, percentile_interval, two_sided_p_value
from seq2seq.evaluation.metrics import References

Test = dict[str, float | None]


def paired_bootstrap(
    baseline: Sequence[str], systems: Mapping[str, Sequence[str]], references: References, samples: int = SAMPLES
) -> dict[str, dict[str, Test]]:
    """Test each system against one baseline by a paired bootstrap (Koehn, 2004): both are scored on the same resamples.

    All hypotheses and the references are detokenized text in the same order. Returns, for each system's name and each
    quick metric's key, {"difference": system - baseline, "low", "high": its 95% percentile interval, "p_value"}, the
    last three None for too few segments.

    The p-value is two-sided: `two_sided_p_value`. sacreBLEU's own test is not: it subtracts the mean of |d*| from |d*|
    and asks how often the rest exceeds |d|. Of two equal systems |d*| has a mean well above 0, so that little of it is
    counted, and about 11% of such pairs would have p <= 0.05.
    """
    for name, hypotheses in systems.items():
        if not len(hypotheses) == len(baseline) == len(references.texts):
            raise UserError(
                f"{name} has {len(hypotheses)} lines, the baseline {len(baseline)}, the reference "
                f"{len(references.texts)};\na paired test needs the same segments from all"
            )
    results: dict[str, dict[str, Test]] = {name: {} for name in systems}
    for metric in (metric for metric in references.scorers if metric.quick and systems):
        first = references.statistics(metric, baseline)
        draws = first.resampled(None, samples, SEED)
        for name, hypotheses in systems.items():
            second = references.statistics(metric, hypotheses)
            differences = second.resampled(None, samples, SEED) - draws
            results[name][metric.key] = difference_test(second.score() - first.score(), differences)
    return results


def difference_test(difference: float, resampled: np.ndarray) -> Test:
    """{"difference", "low", "high", "p_value"} of a difference between two systems and its resamples."""
    low, high = percentile_interval(resampled)
    p_value = two_sided_p_value(resampled, difference)
    return {"difference": difference, "low": low, "high": high, "p_value": p_value}


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n - 1), None for the deviation of a single value."""
    if not values:
        raise ValueError("the mean of no values")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))

"""Is one system better than another, or was it luck: paired bootstrap, spread over seeds, and what may be compared."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.chrf import CHRF

from seq2seq.errors import UserError
from seq2seq.evaluation.bootstrap import SAMPLES, SEED, percentile_interval, two_sided_p_value
from seq2seq.evaluation.metrics import CorpusStatistics, bleu_metric

Test = dict[str, float | None]


def paired_bootstrap(
    baseline: Sequence[str],
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = SAMPLES,
    groups: Sequence[int] | None = None,
) -> dict[str, dict[str, Test]]:
    """Paired bootstrap test (Koehn, 2004) of each system against one baseline, both scored on the same resamples.

    All hypotheses and the references are detokenised text in the same order; `groups` as for `evaluate_texts`. Returns,
    for each system's name, {"bleu" and "chrf": {"difference": system - baseline, "low", "high": its 95% percentile
    interval, "p_value"}}, the last three None for too few segments.

    The p-value is two-sided: `two_sided_p_value`. sacreBLEU's own test is not: it subtracts the mean of |d*| from |d*|
    and asks how often the rest exceeds |d|. Of two equal systems |d*| has a mean well above 0, so that little of it is
    counted, and about 11% of such pairs would have p <= 0.05.
    """
    for name, hypotheses in systems.items():
        if not len(hypotheses) == len(baseline) == len(references):
            raise UserError(
                f"{name} has {len(hypotheses)} lines, the baseline {len(baseline)}, the reference {len(references)};"
                "\na paired test needs the same segments from all"
            )
    results: dict[str, dict[str, Test]] = {name: {} for name in systems}
    if not systems:
        return results
    cached = [list(references)]
    metrics: dict[str, Metric] = {
        "bleu": bleu_metric(tokenize, lowercase, cached),
        "chrf": CHRF(lowercase=lowercase, references=cached),
    }
    for key, metric in metrics.items():
        first = CorpusStatistics(metric, baseline, None, groups)
        draws = first.resampled(None, samples, SEED)
        for name, hypotheses in systems.items():
            second = CorpusStatistics(metric, hypotheses, None, groups)
            differences = second.resampled(None, samples, SEED) - draws
            results[name][key] = difference_test(second.score() - first.score(), differences)
    return results


def difference_test(difference: float, resampled: np.ndarray) -> Test:
    """A difference between two systems with what its resamples say of it."""
    low, high = percentile_interval(resampled)
    p_value = two_sided_p_value(resampled, difference)
    return {"difference": difference, "low": low, "high": high, "p_value": p_value}


def require_same_signature(signatures: Mapping[str, str]) -> None:
    """Refuse to put scores side by side that were not computed alike.

    `signatures` maps a system's name to the sacreBLEU signature of its score. Raises UserError naming two systems and
    their signatures when they differ in anything, sacreBLEU's version included.
    """
    items = list(signatures.items())
    for name, signature in items[1:]:
        if signature != items[0][1]:
            raise UserError(
                f"scores with different signatures cannot be compared: {items[0][0]} has {items[0][1]}, but {name} has "
                f"{signature}\n"
                "Remove the older run's metrics.json and give its command again: it is scored anew, not trained."
            )


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n - 1); None for the deviation of a single value."""
    if not values:
        raise ValueError("the mean of no values")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))

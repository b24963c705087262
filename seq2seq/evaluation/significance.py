"""Is one system better than another, or was it luck: paired bootstrap, spread over seeds, and what may be compared."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import SAMPLES, bleu_metric


def paired_bootstrap(
    baseline: Sequence[str],
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = SAMPLES,
) -> dict[str, dict[str, dict[str, float]]]:
    """sacreBLEU's paired bootstrap test (Koehn, 2004) of each system against one baseline.

    All hypotheses and the references are detokenised text in the same order. Returns, for each system's name,
    {"bleu" and "chrf": {"difference": system - baseline, "p_value"}}; a p-value is two-sided, and 1.0 for a system
    whose output is the baseline's.
    """
    for name, hypotheses in systems.items():
        if not len(hypotheses) == len(baseline) == len(references):
            raise UserError(
                f"{name} has {len(hypotheses)} lines, the baseline {len(baseline)}, the reference {len(references)};"
                "\na paired test needs the same segments from all"
            )
    if not systems:
        return {}
    cached = [list(references)]
    metrics = {
        "bleu": bleu_metric(tokenize, lowercase, cached),
        "chrf": CHRF(lowercase=lowercase, references=cached),
    }
    named: list[tuple[str, Sequence[str]]] = [("baseline", baseline), *systems.items()]
    logger = logging.getLogger("sacrebleu")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        _, scores = PairedTest(named, metrics, None, test_type="bs", n_samples=samples)()
    finally:
        logger.setLevel(level)
    results: dict[str, dict[str, dict[str, float]]] = {name: {} for name in systems}
    for key, metric in (("bleu", "BLEU"), ("chrf", "chrF2")):
        first: Any = scores[metric][0]
        for (name, hypotheses), result in zip(systems.items(), scores[metric][1:], strict=True):
            paired: Any = result
            same = list(hypotheses) == list(baseline)
            p_value = 1.0 if same else float(paired.p_value)
            results[name][key] = {"difference": float(paired.score - first.score), "p_value": p_value}
    return results


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

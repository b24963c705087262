"""Completion: values that runs of earlier versions lack, computed from their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from seq2seq.evaluation.bootstrap import SAMPLES, SEED
from seq2seq.evaluation.languages import Unit, length_unit
from seq2seq.evaluation.lengths import rows_by_length
from seq2seq.evaluation.metrics import PRIMARY, References, evaluate_texts, length_ratio
from seq2seq.report.study import Result, Texts

COUNTED = ("units", "repetition_rate", "retention", "by_length")
"""Scores that are counted in words or characters."""


def units_of_split(results: Sequence[Result], split: str, texts: Texts | None) -> dict[str, Unit]:
    """The units of source and target on a test set: those of the runs, or where none says them, of its languages and
    texts; words without texts."""
    for result in results:
        if known := result.metrics["splits"][split].get("units"):
            return dict(known)
    if texts is None:
        return {"source": "words", "target": "words"}
    languages = languages_of(results)
    return {
        "source": length_unit(languages[0], texts.sources),
        "target": length_unit(languages[1], texts.references),
    }


def complete(
    results: Sequence[Result], split: str, references: References, units: Mapping[str, Unit], notes: list[str]
) -> list[Result]:
    """Add metrics that were not in the table when a run was scored, and scores in the test set's units; `notes` names
    both. Runs without texts stay as they are."""
    added: dict[str, list[str]] = {}
    completed = []
    for result in results:
        entry, texts = deepcopy(result.metrics["splits"][split]), result.texts.get(split)
        if texts is not None:
            if entry.get("units", {"source": "words", "target": "words"}) != units:
                fresh = evaluate_texts(
                    texts.hypotheses,
                    texts.references,
                    texts.sources,
                    tokenize=references.tokenize,
                    lowercase=references.lowercase,
                    groups=references.groups,
                    languages=languages_of([result]),
                )
                entry |= {key: fresh[key] for key in COUNTED if key in fresh}
                added.setdefault("scores by length", []).append(result.name)
            for name in _add_metrics(entry, texts, references, units["source"]):
                added.setdefault(name, []).append(result.name)
        metrics = {**result.metrics, "splits": {**result.metrics["splits"], split: entry}}
        completed.append(replace(result, metrics=metrics))
    notes += [f"{what} of {', '.join(names)}: computed now, from the texts" for what, names in added.items()]
    return completed


def languages_of(results: Sequence[Result]) -> tuple[str | None, str | None]:
    """The codes of source and target, from the first result that knows any."""
    known = next((result.metrics["languages"] for result in results if result.metrics.get("languages")), (None, None))
    return known[0], known[1]


def _add_metrics(entry: dict[str, Any], texts: Texts, references: References, unit: Unit) -> list[str]:
    """Names of the metrics that were missing."""
    bootstrap = entry.get("bootstrap") or {}
    drawing = bootstrap.get("samples", SAMPLES), bootstrap.get("seed", SEED)
    missing = [metric for metric in references.scorers if metric.key not in entry]
    rows = {low: rows for low, _, rows in rows_by_length(texts.sources, unit)}
    buckets = [(bucket, rows[bucket["low"]]) for bucket in entry.get("by_length") or [] if bucket["low"] in rows]
    for metric in missing:
        statistics = references.statistics(metric, texts.hypotheses)
        entry[metric.key] = {**statistics.interval(None, *drawing), "signature": statistics.signature}
        for bucket, own in buckets:
            bucket[metric.key] = statistics.interval(own, *drawing)
    for bucket, own in buckets:
        if "length_ratio" not in bucket:
            bucket["length_ratio"] = length_ratio(references.statistics(PRIMARY, texts.hypotheses), own)
    return [metric.name for metric in missing]

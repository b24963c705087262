"""Scores of the served models by source length, from the runs that measured them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seq2seq.errors import UserError
from seq2seq.evaluation.languages import Unit
from seq2seq.evaluation.lengths import bucket_label, rows_of_lengths
from seq2seq.evaluation.metrics import METRICS, PRIMARY
from seq2seq.inference.bundle_config import configured_search
from seq2seq.report.study import Result, collect
from seq2seq.run import Run
from seq2seq.serving.served import search_description

EXAMPLES = 5


def quality_by_length(runs: Mapping[str, Run | None]) -> dict[str, Any] | None:
    """From the runs of the models by name, those that were scored on the first one's test set.

    {"split", "segments", "unit" ("words" or "characters" of the source), "primary" (a metric's key),
    "metrics": [{"key", "name"}], "searches": {model: the search that was scored, as in `GET /models`},
    "buckets": [{"low", "high", "label", "segments", "scores": {model: {each metric's key, "length_ratio"}},
    "examples": [{"source", "reference"}]}]}; a metric's score has "score" and its interval's "low" and "high". None if
    no model comes with scores.
    """
    results = {name: result for name, run in runs.items() if run is not None and (result := _read(run)) is not None}
    if not results:
        return None
    first = next(iter(results.values()))
    splits = [split for split in first.texts if _buckets(first, split)]
    split = "test" if "test" in splits else splits[0]
    texts, unit = first.texts[split], _unit(first, split)
    same = {
        name: result
        for name, result in results.items()
        if split in result.texts
        and (result.texts[split].sources, result.texts[split].references) == (texts.sources, texts.references)
        and _unit(result, split) == unit
    }
    tables = {name: {bucket["low"]: bucket for bucket in _buckets(result, split)} for name, result in same.items()}
    buckets = []
    for bucket in _buckets(first, split):
        low, high = bucket["low"], bucket["high"]
        rows = rows_of_lengths(texts.sources, low, high, unit)
        buckets.append(
            {
                "low": low,
                "high": high,
                "label": bucket_label(low, high),
                "segments": bucket["segments"],
                "scores": {
                    name: {key: table[low].get(key) for key in (*METRICS, "length_ratio")}
                    for name, table in tables.items()
                    if low in table
                },
                "examples": [
                    {"source": texts.sources[row], "reference": texts.references[row]}
                    for row in _spread(rows, EXAMPLES)
                ],
            }
        )
    if not buckets:
        return None
    shown = {key for bucket in buckets for scores in bucket["scores"].values() for key in METRICS if scores[key]}
    return {
        "split": split,
        "segments": len(texts.sources),
        "unit": unit,
        "primary": PRIMARY.key,
        "metrics": [{"key": metric.key, "name": metric.name} for metric in METRICS.values() if metric.key in shown],
        "searches": {name: _search(result.metrics["splits"][split]) for name, result in same.items()},
        "buckets": buckets,
    }


def _read(run: Run) -> Result | None:
    try:
        (result,) = collect(run.folder).results
    except (UserError, ValueError):
        return None
    return result if any(_buckets(result, split) for split in result.texts) else None


def _unit(result: Result, split: str) -> Unit:
    """The unit of source lengths; versions before 0.2 counted words in any language."""
    unit: Unit = (result.metrics["splits"][split].get("units") or {}).get("source", "words")
    return unit


def _search(scores: Mapping[str, Any]) -> dict[str, Any] | None:
    """The search that a split was decoded with; None if that is not known or no longer exists."""
    node = (scores.get("decoding") or {}).get("search")
    try:
        return search_description(configured_search({"search": node})) if node else None
    except UserError:
        return None


def _buckets(result: Result, split: str) -> list[dict[str, Any]]:
    return result.metrics["splits"][split].get("by_length") or []


def _spread(rows: Sequence[int], count: int) -> list[int]:
    """At most `count` of the rows, from all over them."""
    return list(rows[:: max(1, -(-len(rows) // count))])[:count]

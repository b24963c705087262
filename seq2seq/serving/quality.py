"""Scores of the served models by source length, from the runs that measured them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seq2seq.errors import UserError
from seq2seq.evaluation.lengths import bucket_label, rows_of_lengths
from seq2seq.inference.bundle_config import configured_search
from seq2seq.report.study import Run, collect
from seq2seq.run import Run as RunFolder
from seq2seq.serving.served import search_description

EXAMPLES = 5


def quality_by_length(folders: Mapping[str, RunFolder | None]) -> dict[str, Any] | None:
    """From the runs of the models by name, those that were scored on the first one's test set.

    {"split", "segments", "searches": {model: the search that was scored, as in `GET /models`},
    "buckets": [{"low", "high", "label", "segments", "scores": {model: {"bleu", "chrf"}},
    "examples": [{"source", "reference"}]}]}; a score has "score" and its interval's "low" and "high". None if no model
    comes with scores.
    """
    runs = {name: run for name, folder in folders.items() if folder is not None and (run := _read(folder)) is not None}
    if not runs:
        return None
    first = next(iter(runs.values()))
    splits = [split for split in first.texts if _buckets(first, split)]
    split = "test" if "test" in splits else splits[0]
    texts = first.texts[split]
    same = {
        name: run
        for name, run in runs.items()
        if split in run.texts
        and (run.texts[split].sources, run.texts[split].references) == (texts.sources, texts.references)
    }
    tables = {name: {bucket["low"]: bucket for bucket in _buckets(run, split)} for name, run in same.items()}
    buckets = []
    for bucket in _buckets(first, split):
        low, high = bucket["low"], bucket["high"]
        rows = rows_of_lengths(texts.sources, low, high)
        buckets.append(
            {
                "low": low,
                "high": high,
                "label": bucket_label(low, high),
                "segments": bucket["segments"],
                "scores": {
                    name: {metric: table[low].get(metric) for metric in ("bleu", "chrf")}
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
    searches = {name: _search(run.metrics["splits"][split]) for name, run in same.items()}
    return {"split": split, "segments": len(texts.sources), "searches": searches, "buckets": buckets}


def _read(folder: RunFolder) -> Run | None:
    try:
        (run,) = collect(folder.folder).runs
    except (UserError, ValueError):
        return None
    return run if any(_buckets(run, split) for split in run.texts) else None


def _search(scores: Mapping[str, Any]) -> dict[str, Any] | None:
    """The search that a split was decoded with; None if that is not known or no longer exists."""
    node = (scores.get("decoding") or {}).get("search")
    try:
        return search_description(configured_search({"search": node})) if node else None
    except UserError:
        return None


def _buckets(run: Run, split: str) -> list[dict[str, Any]]:
    return run.metrics["splits"][split].get("by_length") or []


def _spread(rows: Sequence[int], count: int) -> list[int]:
    """At most `count` of the rows, from all over them."""
    return list(rows[:: max(1, -(-len(rows) // count))])[:count]

"""The headline: the sentence on top of a report, and what makes the comparison fair or not."""

from collections.abc import Mapping, Sequence
from typing import Any

from seq2seq.evaluation.metrics import PRIMARY
from seq2seq.report.configurations import differences
from seq2seq.report.draw import short_number, short_time
from seq2seq.report.splits import long_segments
from seq2seq.report.tables import long_lengths

LEARNED = 2.0
"""Score of the primary metric below which a comparison says nothing."""

ENOUGH = 30
"""Long segments below which the headline does not speak of retention."""

DROPOUT = ("dropout", "word_dropout")
"""Settings of a model that every family has and that belong to training as much as the optimizer's."""


def headline(report: Mapping[str, Any]) -> str:
    """Sum up the report in one or two sentences made from the scores alone."""
    systems, label = report["systems"], report["labels"][PRIMARY.key]
    top = systems[0]
    best = top[PRIMARY.key]["score"]
    if best < LEARNED:
        return f"No system has learned to translate: the best, {top['name']}, reaches {best:.1f} {PRIMARY.name}."
    low = min((s for s in systems if s["retention"]), key=lambda s: s["retention"]["score"], default=top)
    if _keeps_less(low, top):
        return (
            f"On sentences of {long_lengths(report)}, {low['name']} keeps {low['retention']['score']:.0%} of its "
            f"{PRIMARY.name} and {top['name']} keeps {top['retention']['score']:.0%}."
        )
    if len(systems) == 1:
        return f"{top['name']} reaches {best:.1f} {label}."
    other = next((s for s in systems if s["name"] == report["baseline"] and s is not top), systems[1])
    tests = (other if top["name"] == report["baseline"] else top)["tests"]
    sure = tests[PRIMARY.key]["p_value"] if tests else None
    word = "" if sure is None else f" (p = {sure:.3f})" if sure >= 0.001 else " (p < 0.001)"
    gain = best - other[PRIMARY.key]["score"]
    return f"{top['name']} reaches {best:.1f} {label}, {gain:.1f} more than {other['name']}{word}."


def _keeps_less(system: Mapping[str, Any], top: Mapping[str, Any]) -> bool:
    """True where the system loses clearly more on long segments: enough of them, and intervals that are apart."""
    low, high = system["retention"], top["retention"]
    if not low or not high or long_segments(top) < ENOUGH or low.get("high") is None or high.get("low") is None:
        return False
    return bool(low["score"] < 0.9 * high["score"] and low["high"] < high["low"])


def fairness(report: Mapping[str, Any]) -> list[str]:
    """List what was the same for all trained systems and what was not: size, updates, wall time, threads, search, and
    every setting outside the model that differs."""
    trained = [system for system in report["systems"] if not system["external"]]
    lines = []
    if len(trained) > 1:
        lines += _range(trained, "parameters", "Parameters", short_number)
        lines += _range(trained, "training_updates", "Updates", short_number)
        lines += _range(trained, "training_seconds", "Training time", short_time)
        threads = {system["training_threads"] for system in trained}
        if len(threads) > 1:
            lines.append("Trained with different numbers of threads: compare the times with care.")
        searches = [system["search"] for system in trained]
        if any(search != searches[0] for search in searches):
            lines.append("Decoded with different search settings.")
        configurations = {run["name"]: run["config"] for run in report["reproduce"]}
        known = [config for system in trained if (config := configurations.get(system["runs"][0]))]
        if found := _other_settings(known):
            settings = "; ".join(f"{key} ({', '.join(values)})" for key, values in found.items())
            lines.append(f"Other settings that differ: {settings}.")
    return lines


def _other_settings(configurations: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The values of each setting that differs between systems, without the search and all of the model but dropout."""
    found: dict[str, list[str]] = {}
    for other in configurations[1:]:
        first = configurations[0]
        changed = differences(_without(first), _without(other))
        for key, ours, theirs in [*changed, *_dropout(first, other)]:
            values = found.setdefault(key, [ours])
            if theirs not in values:
                values.append(theirs)
    return found


def _without(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in ("model", "search")}


def _dropout(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    rates = [[(config.get("model") or {}).get(key) or 0.0 for key in DROPOUT] for config in (first, second)]
    pairs = zip(DROPOUT, *rates, strict=True)
    return [(f"model.{key}", str(ours), str(theirs)) for key, ours, theirs in pairs if ours != theirs]


def _range(systems: list[Mapping[str, Any]], key: str, name: str, form: Any) -> list[str]:
    values = [system[key] for system in systems if system[key] is not None]
    if len(values) < 2:
        return []
    low, high = min(values), max(values)
    if form(low) == form(high):
        return [f"{name}: {form(low)} for all."]
    above = f", the largest {high / low - 1:.0%} above the smallest" if low else ""
    return [f"{name}: {form(low)} to {form(high)}{above}."]

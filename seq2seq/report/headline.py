"""The sentence on top of a report, and whether the comparison is a fair one."""

from collections.abc import Mapping
from typing import Any

from seq2seq.report.draw import short_number, short_time

LEARNT = 2.0
"""BLEU below which a comparison says nothing."""


def headline(report: Mapping[str, Any]) -> str:
    """What the reader should take away, in one or two sentences made from the scores alone."""
    systems = report["systems"]
    kept = sorted((s for s in systems if s["retention"]), key=lambda s: s["retention"]["score"])
    top = systems[0]
    if top["bleu"]["score"] < LEARNT:
        return f"No system has learnt to translate: the best, {top['name']}, reaches {top['bleu']['score']:.1f} BLEU."
    if len(kept) > 1 and top["retention"] and kept[0]["retention"]["score"] < 0.9 * top["retention"]["score"]:
        low, high = kept[0], top
        return (
            f"On sentences of 40 words or more, {low['name']} keeps {low['retention']['score']:.0%} of its BLEU and "
            f"{high['name']} keeps {high['retention']['score']:.0%}."
        )
    if len(systems) == 1:
        return f"{top['name']} reaches {top['bleu']['score']:.1f} {report['bleu_name']}."
    other = next((s for s in systems if s["name"] == report["baseline"] and s is not top), systems[1])
    sure = top["p_value"] if other["name"] == report["baseline"] else None
    word = "" if sure is None else f" (p = {sure:.3f})" if sure >= 0.001 else " (p < 0.001)"
    gain = top["bleu"]["score"] - other["bleu"]["score"]
    reached = f"{top['bleu']['score']:.1f} {report['bleu_name']}"
    return f"{top['name']} reaches {reached}, {gain:.1f} more than {other['name']}{word}."


def fairness(report: Mapping[str, Any]) -> list[str]:
    """What was the same for all trained systems and what was not: size, updates, wall time, threads, search."""
    trained = [system for system in report["systems"] if not system["outside"]]
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
    return lines


def _range(systems: list[Mapping[str, Any]], key: str, name: str, form: Any) -> list[str]:
    values = [system[key] for system in systems if system[key] is not None]
    if len(values) < 2:
        return []
    low, high = min(values), max(values)
    if form(low) == form(high):
        return [f"{name}: {form(low)} for all."]
    above = f", the largest {high / low - 1:.0%} above the smallest" if low else ""
    return [f"{name}: {form(low)} to {form(high)}{above}."]

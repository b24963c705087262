"""Scores corrected for difficulty: long segments are harder for every system, so systems are compared at one length."""

from collections.abc import Mapping, Sequence
from typing import Any

from seq2seq.evaluation.bootstrap import FEWEST
from seq2seq.evaluation.lengths import STEP, length
from seq2seq.evaluation.metrics import METRICS, PRIMARY, SENTENCE, References
from seq2seq.evaluation.regression import losses_by_length
from seq2seq.evaluation.significance import mean_and_deviation
from seq2seq.report.study import Texts
from seq2seq.report.systems import System
from seq2seq.report.tables import NONE, score_text


def add_shares_of_best(entries: Sequence[Mapping[str, Any]]) -> None:
    """Add "share_of_best" to each length bucket of the systems' entries: the primary score divided by that of the best
    system at this length; None where there is only one system, or the best has 0."""
    best: dict[int, float] = {}
    for entry in entries:
        for bucket in entry["by_length"]:
            if bucket[PRIMARY.key]:
                best[bucket["low"]] = max(best.get(bucket["low"], 0.0), bucket[PRIMARY.key]["score"])
    for entry in entries:
        for bucket in entry["by_length"]:
            own, top = bucket[PRIMARY.key], best.get(bucket["low"])
            bucket["share_of_best"] = own["score"] / top if own and top and len(entries) > 1 else None


def length_losses(
    base: System,
    systems: Sequence[System],
    split: str,
    texts: Texts | None,
    references: References | None,
    units: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Points of the sentence metric that each system loses with longer sources: `regression.losses_by_length` of scores
    averaged over seeds, clustered by the groups of the references.

    {"metric", "unit", "step", "clusters", "systems": {name: {"loss", "difference"}}}; "deviation" is the standard
    deviation of the loss over a system's runs. None without texts, with fewer than FEWEST segments, or
    where all are equally long.
    """
    if texts is None or references is None or not systems or len(texts.sources) < FEWEST:
        return None
    lengths = [length(source, units["source"]) for source in texts.sources]
    step, groups = STEP[units["source"]], references.groups
    runs = {
        system.name: {
            result.name: references.statistics(SENTENCE, result.texts[split].hypotheses).sentences()
            for result in system.results
            if split in result.texts
        }
        for system in systems
    }
    means = {name: [sum(row) / len(row) for row in zip(*own.values(), strict=True)] for name, own in runs.items()}
    found = losses_by_length(lengths, means, base.name if base.name in means else None, groups, step)
    if found is None:
        return None
    for name, own in found.items():
        single = losses_by_length(lengths, runs[name], None, groups, step) or {}
        own["loss"]["deviation"] = mean_and_deviation([each["loss"]["score"] for each in single.values()])[1]
    return {
        "metric": SENTENCE.key,
        "unit": units["source"],
        "step": step,
        "clusters": len(set(groups)) if groups else len(lengths),
        "systems": found,
    }


def loss_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """Points that each system loses with longer sources, and how far that is from the baseline's loss."""
    losses, baseline = report["length_losses"], report["baseline"]
    heading = f"{METRICS[losses['metric']].name} lost per {losses['step']} {losses['unit']}"
    rows = []
    for system in report["systems"]:
        if own := losses["systems"].get(system["name"]):
            difference = own["difference"]
            against = "baseline" if system["name"] == baseline else NONE
            rows.append(
                [
                    system["name"],
                    score_text(own["loss"], 2).replace("-", "\u2212"),
                    against if difference is None else _signed(difference),
                ]
            )
    return [["System", heading, f"against {baseline}"], *rows]


def loss_note(report: Mapping[str, Any]) -> str:
    """Explain how to read `loss_rows`."""
    losses = report["length_losses"]
    name, unit, step = METRICS[losses["metric"]].name, losses["unit"], losses["step"]
    return (
        f"Sentence {name} falls by this many points for every {step} additional source {unit} (least squares on "
        "length, system and their interaction). Longer segments are harder for every system; the difference from the "
        "baseline, on the same segments, is due to the system itself (\u2212: it loses less). Brackets: 95% intervals "
        f"with standard errors clustered by {losses['clusters']} independent {_clusters(report)}. They reflect the "
        "choice of the test set, not of seeds."
    )


def _clusters(report: Mapping[str, Any]) -> str:
    return "segments" if report["length_losses"]["clusters"] == report["segments"] else "groups of segments"


def _signed(difference: Mapping[str, Any]) -> str:
    text = f"{difference['score']:+.2f}"
    if difference["low"] is not None:
        text += f" [{difference['low']:.2f}, {difference['high']:.2f}]"
    return text.replace("-", "\u2212")

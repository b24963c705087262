"""What one change does, and whether it was luck: paired tests, and pairs of runs that differ in one setting."""

from collections.abc import Mapping, Sequence
from typing import Any

from seq2seq.evaluation.significance import paired_bootstrap
from seq2seq.report.configurations import differences
from seq2seq.report.study import Run
from seq2seq.report.systems import System, average


def against(
    base: System,
    systems: Sequence[System],
    split: str,
    settings: Mapping[str, Any],
    groups: Sequence[int] | None = None,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Paired bootstrap of systems against one: {name: {"bleu" and "chrf": `_over_seeds`}}.

    Runs of the same seed are compared, or where two systems share no seed, each run with each of the other's.
    """
    tests: dict[str, list[dict[str, Any]]] = {}
    system_of = {run.name: system.name for system in systems for run in system.runs}
    for own in (run for run in base.runs if split in run.texts):
        rivals = {
            run.name: run.texts[split].hypotheses
            for system in systems
            if system is not base
            for run in system.runs
            if split in run.texts and (_seed(run) == _seed(own) or not _seeds(system) & _seeds(base))
        }
        texts = own.texts[split]
        found = paired_bootstrap(texts.hypotheses, rivals, texts.references, **settings, groups=groups)
        for name, test in found.items():
            tests.setdefault(system_of[name], []).append(test)
    return {
        name: {metric: _over_seeds([test[metric] for test in found]) for metric in ("bleu", "chrf")}
        for name, found in tests.items()
    }


def _over_seeds(tests: Sequence[Mapping[str, float | None]]) -> dict[str, Any]:
    """{"difference": {"score", "deviation", "low", "high"} averaged over pairs of runs, "p_value"}.

    The p-value is the largest, and 1.0 where one pair says better and another worse.
    """
    differences = [test["difference"] or 0.0 for test in tests]
    p_values = [test["p_value"] for test in tests]
    known = [p_value for p_value in p_values if p_value is not None]
    p_value = max(known) if len(known) == len(p_values) else None
    if p_value is not None and min(differences) < 0 < max(differences):
        p_value = 1.0
    return {"difference": average([{**test, "score": test["difference"]} for test in tests]), "p_value": p_value}


def _seed(run: Run) -> Any:
    return run.metrics.get("seed")


def _seeds(system: System) -> set[Any]:
    return {_seed(run) for run in system.runs}


def effects(
    systems: Sequence[System], split: str, settings: Mapping[str, Any], groups: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """Pairs of systems that differ in one setting (not the whole model), their difference in BLEU and its p-value."""
    configured = [system for system in systems if system.runs[0].config]
    found = []
    for index, first in enumerate(configured):
        for second in configured[index + 1 :]:
            changed = differences(first.runs[0].config, second.runs[0].config)
            if len(changed) != 1 or changed[0][0] == "model":
                continue
            key, old, new = changed[0]
            bleu = [average([run.metrics["splits"][split]["bleu"] for run in each.runs]) for each in (first, second)]
            test = against(first, [second], split, settings, groups).get(second.name)
            found.append(
                {
                    "setting": key,
                    "first": first.name,
                    "second": second.name,
                    "first_value": old,
                    "second_value": new,
                    "difference": bleu[1]["score"] - bleu[0]["score"] if bleu[0] and bleu[1] else None,
                    "p_value": test["bleu"]["p_value"] if test else None,
                }
            )
    return sorted(found, key=lambda effect: effect["setting"])

"""Effects: paired tests of systems, and pairs of systems that differ in one setting."""

from collections.abc import Mapping, Sequence
from typing import Any

from seq2seq.evaluation.metrics import PRIMARY, References
from seq2seq.evaluation.significance import paired_bootstrap
from seq2seq.report.configurations import differences
from seq2seq.report.study import Result
from seq2seq.report.systems import System, average


def against(
    base: System, systems: Sequence[System], split: str, references: References | None
) -> dict[str, dict[str, dict[str, Any]]]:
    """Test systems against one by a paired bootstrap: {name: {each quick metric's key: `_over_seeds`}}.

    Runs of the same seed are compared, or where two systems share no seed, each run with each of the other's. Nothing
    without references.
    """
    tests: dict[str, list[dict[str, Any]]] = {}
    system_of = {result.name: system.name for system in systems for result in system.results}
    for own in (result for result in base.results if references is not None and split in result.texts):
        rivals = {
            result.name: result.texts[split].hypotheses
            for system in systems
            if system is not base
            for result in system.results
            if split in result.texts and (_seed(result) == _seed(own) or not _seeds(system) & _seeds(base))
        }
        assert references is not None
        for name, test in paired_bootstrap(own.texts[split].hypotheses, rivals, references).items():
            tests.setdefault(system_of[name], []).append(test)
    return {
        name: {key: _over_seeds([test[key] for test in found]) for key in found[0]} for name, found in tests.items()
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


def _seed(result: Result) -> Any:
    return result.metrics.get("seed")


def _seeds(system: System) -> set[Any]:
    return {_seed(result) for result in system.results}


def effects(systems: Sequence[System], split: str, references: References | None) -> list[dict[str, Any]]:
    """Find pairs of systems that differ in one setting (not the whole model), with the difference in the primary metric
    and its p-value."""
    configured = [system for system in systems if system.results[0].config]
    found = []
    for index, first in enumerate(configured):
        for second in configured[index + 1 :]:
            changed = differences(first.results[0].config, second.results[0].config)
            if len(changed) != 1 or changed[0][0] == "model":
                continue
            key, old, new = changed[0]
            before, after = (
                average([result.metrics["splits"][split][PRIMARY.key] for result in each.results])
                for each in (first, second)
            )
            test = against(first, [second], split, references).get(second.name)
            found.append(
                {
                    "setting": key,
                    "first": first.name,
                    "second": second.name,
                    "first_value": old,
                    "second_value": new,
                    "difference": after["score"] - before["score"] if before and after else None,
                    "p_value": test[PRIMARY.key]["p_value"] if test else None,
                }
            )
    return sorted(found, key=lambda effect: effect["setting"])

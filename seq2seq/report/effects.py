"""What one change does, and whether it was luck: paired tests, and pairs of runs that differ in one setting."""

from collections.abc import Mapping, Sequence
from typing import Any

from seq2seq.evaluation.significance import paired_bootstrap
from seq2seq.report.systems import System, average

IGNORED = (
    "seed", "run_dir", "name", "experiment", "hydra", "logger", "test_splits", "data.cache_dir",
    "data.corpus.cache_dir", "callbacks.progress", "callbacks.samples", "callbacks.save_minutes",
    "callbacks.save_every_n_steps",
)  # fmt: skip
"""Keys that name, place or show a run without changing what is trained."""


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(key, first value, second value) of every setting that differs.

    Two nodes that build different classes are one difference, named by the classes, whatever their other settings.
    """
    return _differences(first, second, "")


def against(
    base: System, systems: Sequence[System], split: str, settings: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Paired bootstrap of systems against one. With several seeds, runs pair in order; the largest p-value counts."""
    results: dict[str, dict[str, Any]] = {}
    for index, reference_run in enumerate(run for run in base.runs if split in run.texts):
        rivals = {
            system.name: system.runs[index].texts[split].hypotheses
            for system in systems
            if system is not base and index < len(system.runs) and split in system.runs[index].texts
        }
        own = reference_run.texts[split]
        for name, test in paired_bootstrap(own.hypotheses, rivals, own.references, **settings).items():
            if name not in results or test["bleu"]["p_value"] > results[name]["bleu"]["p_value"]:
                results[name] = test
    return results


def effects(systems: Sequence[System], split: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
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
            test = against(first, [second], split, settings).get(second.name)
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


def _differences(first: Any, second: Any, key: str) -> list[tuple[str, str, str]]:
    if key in IGNORED or first == second:
        return []
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        targets = first.get("_target_"), second.get("_target_")
        if targets[0] != targets[1]:
            return [(key, _class_name(targets[0]), _class_name(targets[1]))]
        keys = list(dict.fromkeys([*first, *second]))
        prefix = f"{key}." if key else ""
        return [d for k in keys for d in _differences(first.get(k), second.get(k), f"{prefix}{k}")]
    return [(key, _plain(first), _plain(second))]


def _class_name(target: Any) -> str:
    return str(target).rpartition(".")[2]


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return _class_name(value["_target_"]) if "_target_" in value else "set"
    return "none" if value is None else str(value)

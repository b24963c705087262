"""Settings of two starts of one run: in which they differ, and whether the second may resume the first."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seq2seq.data.catalogue import CORPORA
from seq2seq.data.translation_data import TranslationData
from seq2seq.errors import UserError
from seq2seq.pipeline.build import TARGET, locate
from seq2seq.run import OUTER, PLACE, Run

DEFAULTS: dict[str, Any] = {
    "seed": 1,
    "checkpoint": None,
    "label_smoothing": 0.1,
    "r_drop": 0.0,
    "tokenize": "13a",
    "lowercase": False,
    "test_splits": None,
    "logger": None,
    "run_dir": None,
    "dry_run": False,
}
"""Values of the plain settings that a configuration leaves out."""

NEUTRAL = (
    *OUTER, PLACE, "dry_run", "trainer.max_time", "trainer.max_steps", "trainer.max_epochs",
    "trainer.validation_tokens", "trainer.patience",
)  # fmt: skip
"""Keys that may differ when a run resumes: they change where, how long or how it is shown, not what is learned until
the old end (but for the last bits, by the number of threads). A schedule that follows a budget holds that budget in its
own keys."""


def check_same(run: Run, settings: Mapping[str, Any]) -> None:
    """Raises UserError if the run has begun with other settings that change the result, or is no training at all."""
    check_no_evaluation(run)
    if not (run.begun and run.settings_file.is_file()):
        return
    if different := differences(run.read_settings(), settings):
        raise UserError(
            f"{run} holds a run with other settings: {'; '.join(different[:4])}\n"
            "Give the same settings to resume it, or another run_dir= to start over."
        )


def check_no_evaluation(run: Run) -> None:
    """Raises UserError if the folder, where a training would go, holds an evaluation."""
    if (checkpoint := run.evaluation) is not None:
        raise UserError(f"{run} holds an evaluation of {checkpoint}\nGive another run_dir=.")


def model_differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """List `model.KEY: old -> new` for each setting of a model that differs, rates of dropout excepted: the same
    weights do with any."""
    found = differences({"model": one}, {"model": other})
    return [text for text in found if not text.partition(":")[0].endswith("dropout")]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List `key: old -> new` for every key that differs and is not neutral. A key that only one side has stands for its
    default there."""
    found = []
    keys = {*flat_keys(old)} | {*flat_keys(new)}
    for key in sorted(keys):
        if any(key == name or key.startswith(f"{name}.") for name in NEUTRAL):
            continue
        before, after = _value_or_default(old, key), _value_or_default(new, key)
        if isinstance(before, Mapping) or isinstance(after, Mapping):
            continue
        if before != after and not (key == "checkpoint" and _same_place(before, after)):
            found.append(f"{key}: {' -> '.join(json.dumps(one, ensure_ascii=False) for one in (before, after))}")
    return found


def flat_keys(node: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every key below `node`."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield f"{prefix}{name}"
            yield from flat_keys(value, f"{prefix}{name}.")


def _same_place(before: Any, after: Any) -> bool:
    return None not in (before, after) and Path(before).resolve() == Path(after).resolve()


def _value_or_default(settings: Mapping[str, Any], key: str) -> Any:
    node: Any = settings
    for name in key.split("."):
        if not isinstance(node, Mapping) or name not in node:
            return _default(settings, key)
        node = node[name]
    return node


def _default(settings: Mapping[str, Any], key: str) -> Any:
    """The default of a key that `settings` lacks: that of whatever its node builds, or None."""
    path, _, name = key.rpartition(".")
    node: Any = settings
    for part in path.split(".") if path else ():
        node = node.get(part) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping):
        return None
    if path == "":
        return DEFAULTS.get(name)
    builders = [locate(str(node[TARGET]), path)] if node.get(TARGET) else []
    if path == "data" and node.get("corpus") in CORPORA:
        builders = [TranslationData, CORPORA[node["corpus"]]]
    for builder in builders:
        parameter = inspect.signature(builder).parameters.get(name)
        if parameter is not None and parameter.default is not parameter.empty:
            return parameter.default
    return None

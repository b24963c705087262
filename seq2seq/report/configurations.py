"""Settings in which two runs differ."""

import re
from collections.abc import Mapping
from typing import Any

from seq2seq.run import OUTER, PLACE

IGNORED = (*OUTER, "seed", "name", "experiment", "hydra")
"""Keys in which systems never count as different."""


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(key, first value, second value) of every setting that differs.

    Two nodes that build different classes are one difference, named by the classes, whatever their other settings.
    """
    return _differences(first, second, "")


def seedless_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """`differences` of two runs of one system, without those that its seeds may have.

    These are the seeds, also that of the checkpoint that each was trained further from, the place of the data, and
    settings that an older version did not have.
    """
    ours, theirs = _shared(first, second), _shared(second, first)
    return [
        (key, old, new)
        for key, old, new in differences(ours, theirs)
        if key != PLACE and key.rpartition(".")[2] != "seed" and _without_seed(old) != _without_seed(new)
    ]


def _shared(config: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without the keys that the other lacks."""
    return {
        key: _shared(value, other[key]) if isinstance(value, Mapping) and isinstance(other[key], Mapping) else value
        for key, value in config.items()
        if key in other
    }


def _without_seed(value: str) -> str:
    return re.sub(r"seed[-_=]?\d+", "seed", value)


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

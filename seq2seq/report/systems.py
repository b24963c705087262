"""Systems: results that differ in their seed alone, and the means of their scores."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from seq2seq.errors import UserError
from seq2seq.evaluation.significance import mean_and_deviation
from seq2seq.report.configurations import seedless_differences
from seq2seq.report.study import Result

FAMILIES = ("rnn", "bahdanau", "transformer", "luong", "conv", "conditional_gru")
"""Each family keeps its color in every report; other systems take the colors that are left."""

COLORS = 10


@dataclass(frozen=True)
class System:
    """Results that differ only in their seed. name: as in tables and figures. color: an index into the palette."""

    name: str
    color: int
    results: list[Result]

    @property
    def external(self) -> bool:
        return self.results[0].external


def group(results: Sequence[Result], notes: list[str]) -> list[System]:
    """Put results of one system together, in their order, and name the systems as shortly as can be.

    Runs say their own system. Those of one system whose settings differ in more than the seed, or that have the same
    seed, are systems apart, named by the settings or by their folders; `notes` says so of settings.
    """
    grouped: dict[str, list[Result]] = {}
    for result in results:
        members = grouped.setdefault(result.name if result.external else str(result.metrics["system"]), [])
        members.append(result)
        if members[0].external != result.external:
            raise UserError(
                f"{result.name} is the name of a trained system and of hypotheses by an external system\n"
                "Rename the file."
            )
    labelled: dict[str, list[list[Result]]] = {}
    for system, members in grouped.items():
        for kind in _by_settings(members):
            for label, own in _by_place(system, kind).items():
                labelled.setdefault(label, []).append(own)
    named: dict[str, list[Result]] = {}
    for name, kinds in zip(_short_names(labelled), labelled.values(), strict=True):
        settings = [_settings(kind[0], kinds) for kind in kinds]
        full = [f"{name} ({each})" if each else name for each in settings]
        named |= dict(zip(full, kinds, strict=True))
        if len(kinds) > 1:
            notes.append(f"{name}: its runs differ in more than their seed and are not averaged: {', '.join(full)}")
    palette = colors([members[0].model for members in named.values()])
    return [System(name, color, members) for (name, members), color in zip(named.items(), palette, strict=True)]


def _by_place(system: str, results: Sequence[Result]) -> dict[str, list[Result]]:
    """All results under the system's name, or where a seed stands twice, those of each folder under its name too."""

    def repeated(members: Sequence[Result]) -> bool:
        seeds = [member.metrics.get("seed") for member in members]
        return len(set(seeds)) < len(seeds)

    if not repeated(results):
        return {system: list(results)}
    places: dict[str, list[Result]] = {}
    for result in results:
        places.setdefault(str(PurePath(result.name).parent / system), []).append(result)
    return {result.name: [result] for result in results} if any(map(repeated, places.values())) else places


def _by_settings(results: Sequence[Result]) -> list[list[Result]]:
    """The results, put together where no setting but a seed differs."""
    kinds: list[list[Result]] = []
    for result in results:
        kind = next((kind for kind in kinds if not seedless_differences(_known(kind[0]), _known(result))), None)
        if kind is None:
            kinds.append([result])
        else:
            kind.append(result)
    return kinds


def _settings(result: Result, kinds: Sequence[Sequence[Result]]) -> str:
    """The result's values of the settings in which the kinds differ: "model.width=8, optimizer.lr=0.1"."""
    values: dict[str, str] = {}
    for kind in kinds:
        for key, own, _ in seedless_differences(_known(result), _known(kind[0])):
            values.setdefault(key, own)
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _known(result: Result) -> dict[str, Any]:
    """The run's configuration, and how much it was trained on: a folder's content is no setting."""
    size = (result.metrics.get("sizes") or {}).get("train")
    return {**result.config, **({} if size is None else {"training segments": size})}


def find(name: str, systems: Sequence[System]) -> System:
    """Find the system of this name, or with a run of this name. Raises UserError with the names of all."""
    for system in systems:
        if name == system.name or name in [result.name for result in system.results]:
            return system
    known = ", ".join(system.name for system in systems)
    raise UserError(f"baseline {name!r} is not one of the compared systems; choose one of: {known}")


def average(scores: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Mean over seeds of {"score", "low", "high"}; "deviation" is the seeds' standard deviation, None for one seed.

    The bounds are the means of the seeds' bounds, which is not an interval of the mean: they speak of the test set's
    segments, the deviation of the seeds.
    """
    present = [score for score in scores if score is not None]
    if not present:
        return None
    mean, deviation = mean_and_deviation([score["score"] for score in present])
    result = {"score": mean, "deviation": deviation}
    for bound in ("low", "high"):
        if all(score.get(bound) is not None for score in present):
            result[bound] = mean_and_deviation([score[bound] for score in present])[0]
    return result


def average_number(values: Sequence[float | None]) -> float | None:
    """Mean of the values that are not None; None without any."""
    present = [value for value in values if value is not None]
    return mean_and_deviation(present)[0] if present else None


def average_buckets(
    tables: Sequence[Sequence[Mapping[str, Any]]],
    key: Callable[[Mapping[str, Any]], Any],
    scores: Sequence[str],
    numbers: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Average the scores and plain numbers of each bucket over seeds; its other values are the same for all."""
    merged: dict[Any, list[Mapping[str, Any]]] = {}
    for table in tables:
        for bucket in table:
            merged.setdefault(key(bucket), []).append(bucket)
    return [
        {
            **buckets[0],
            **{name: average([bucket.get(name) for bucket in buckets]) for name in scores},
            **{name: average_number([bucket.get(name) for bucket in buckets]) for name in numbers},
        }
        for buckets in merged.values()
    ]


def _short_names(labelled: Mapping[str, Sequence[Sequence[Result]]]) -> list[str]:
    """The labels without what they share: the data set, the common folder, the common beginning."""
    names = list(labelled)
    results = [result for kinds in labelled.values() for kind in kinds for result in kind]
    data = {result.metrics.get("data") for result in results if not result.external}
    short = names
    if len(data) == 1 and (suffix := f"-{data.pop()}"):
        short = [name.removesuffix(suffix) for name in names]
    last = [name.rpartition("/")[2] for name in short]
    for candidate in (without_common_start(last), last, short):
        if len(set(candidate)) == len(names) and all(candidate):
            return candidate
    return names


def without_common_start(names: Sequence[str]) -> list[str]:
    """Drop the whole words that all names begin with: multi30k_rnn, multi30k_luong -> rnn, luong."""
    words = [re.split(r"(?<=[_-])", name) for name in names]
    shared = 0
    while len(names) > 1 and all(len(own) > shared + 1 and own[shared] == words[0][shared] for own in words):
        shared += 1
    return ["".join(own[shared:]) for own in words]


def colors(models: Sequence[str]) -> list[int]:
    """Choose an index into the palette for each system by its model's family."""
    taken: list[int] = []
    wanted = [FAMILIES.index(model) if model in FAMILIES else None for model in models]
    reserved = {color for color in wanted if color is not None}
    for color in wanted:
        free = [c for c in range(COLORS) if c not in taken and (c == color or c not in reserved)]
        if color is not None and color not in taken:
            taken.append(color)
        else:
            taken.append(free[0] if free else len(taken) % COLORS)
    return taken

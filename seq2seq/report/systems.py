"""Group runs into systems (the same set-up with several seeds) and average their scores."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seq2seq.errors import UserError
from seq2seq.evaluation.significance import mean_and_deviation
from seq2seq.report.configurations import seedless_differences
from seq2seq.report.study import Run

FAMILIES = ("rnn", "bahdanau", "transformer", "luong", "conv", "conditional_gru")
"""Each family keeps its colour in every report; other systems take the colours that are left."""

COLOURS = 10


@dataclass(frozen=True)
class System:
    """name is what tables and figures say; colour is an index into the palette; runs differ only in their seed."""

    name: str
    colour: int
    runs: list[Run]

    @property
    def outside(self) -> bool:
        return self.runs[0].folder is None


def group(runs: Sequence[Run], notes: list[str]) -> list[System]:
    """Systems in order of their runs. Names lose what they all share: the seed, the data set, the common folder.

    Runs whose names differ in the seed alone, but whose settings differ too, are systems apart, named by the settings;
    `notes` says so.
    """
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        members = grouped.setdefault(_without_seed(run), [])
        members.append(run)
        if (members[0].folder is None) != (run.folder is None):
            raise UserError(
                f"{run.name} is the name of a trained system and of hypotheses from elsewhere\nRename the file."
            )
    named: dict[str, list[Run]] = {}
    for name, members in zip(_short_names(grouped), grouped.values(), strict=True):
        kinds = _by_settings(members)
        settings = [_settings(kind[0], kinds) for kind in kinds]
        own = [f"{name} ({each})" if each else name for each in settings]
        named |= dict(zip(own, kinds, strict=True))
        if len(kinds) > 1:
            notes.append(f"{name}: its runs differ in more than their seed and are not averaged: {', '.join(own)}")
    palette = colours([members[0].model for members in named.values()])
    return [System(name, colour, members) for (name, members), colour in zip(named.items(), palette, strict=True)]


def _by_settings(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs, put together where no setting but a seed differs."""
    kinds: list[list[Run]] = []
    for run in runs:
        kind = next((kind for kind in kinds if not seedless_differences(_known(kind[0]), _known(run))), None)
        if kind is None:
            kinds.append([run])
        else:
            kind.append(run)
    return kinds


def _settings(run: Run, kinds: Sequence[Sequence[Run]]) -> str:
    """The run's values of the settings in which the kinds differ: "model.width=8, optimizer.lr=0.1"."""
    values: dict[str, str] = {}
    for kind in kinds:
        for key, own, _ in seedless_differences(_known(run), _known(kind[0])):
            values.setdefault(key, own)
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _known(run: Run) -> dict[str, Any]:
    """The run's configuration, and how much it was trained on: a folder's content is no setting."""
    size = (run.metrics.get("sizes") or {}).get("train")
    return {**run.config, **({} if size is None else {"training segments": size})}


def _without_seed(run: Run) -> str:
    """The run's name without its own seed, wherever that stands, or else without the seed at its end.

    Of "-seed1-from-big-seed1" the first is the run's own, the second that of the checkpoint it went on from.
    """
    own = rf"(^|[-_/])seed[-_=]?{re.escape(str(run.metrics.get('seed')))}(?![^-_/])"
    name, found = re.subn(own, "", run.name, count=1)
    if not found:
        name = re.sub(r"[-_/]?seed[-_=]?\d+$", "", run.name)
    return name.lstrip("-_/") or run.name


def find(name: str, systems: Sequence[System]) -> System:
    """The system of this name, or with a run of this name. Raises UserError listing what there is."""
    for system in systems:
        if name == system.name or name in [run.name for run in system.runs]:
            return system
    known = ", ".join(system.name for system in systems)
    raise UserError(f"baseline {name!r} is none of the compared systems; choose one of: {known}")


def average(scores: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Mean over seeds of {"score", "low", "high"}; "deviation" is the seeds' standard deviation, None for one seed.

    The bounds are means too: they speak of the test set's segments, the deviation of the seeds.
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
    """Mean of the values that are there."""
    present = [value for value in values if value is not None]
    return mean_and_deviation(present)[0] if present else None


def average_buckets(
    tables: Sequence[Sequence[Mapping[str, Any]]],
    key: Callable[[Mapping[str, Any]], Any],
    scores: Sequence[str],
    numbers: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Average the scores and plain numbers of each bucket over seeds; what else is there is the same for all."""
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


def _short_names(grouped: Mapping[str, Sequence[Run]]) -> list[str]:
    names = list(grouped)
    data = {run.metrics.get("data") for runs in grouped.values() for run in runs if run.folder is not None}
    short = names
    if len(data) == 1 and (suffix := f"-{data.pop()}"):
        short = [name.removesuffix(suffix) for name in names]
    last = [name.rpartition("/")[2] for name in short]
    for candidate in (without_common_start(last), last, short):
        if len(set(candidate)) == len(names) and all(candidate):
            return candidate
    return names


def without_common_start(names: Sequence[str]) -> list[str]:
    """multi30k_rnn, multi30k_luong -> rnn, luong: whole words that all names begin with are left out."""
    words = [re.split(r"(?<=[_-])", name) for name in names]
    shared = 0
    while len(names) > 1 and all(len(own) > shared + 1 and own[shared] == words[0][shared] for own in words):
        shared += 1
    return ["".join(own[shared:]) for own in words]


def colours(models: Sequence[str]) -> list[int]:
    """An index into the palette for each system by its model's family."""
    taken: list[int] = []
    wanted = [FAMILIES.index(model) if model in FAMILIES else None for model in models]
    reserved = {colour for colour in wanted if colour is not None}
    for colour in wanted:
        free = [c for c in range(COLOURS) if c not in taken and (c == colour or c not in reserved)]
        if colour is not None and colour not in taken:
            taken.append(colour)
        else:
            taken.append(free[0] if free else len(taken) % COLOURS)
    return taken

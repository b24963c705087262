"""Test sets of a report: the main one, and beside it those on which all runs saw the same texts."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from seq2seq.errors import UserError
from seq2seq.evaluation.lengths import LONG
from seq2seq.evaluation.metrics import METRICS, PRIMARY, References
from seq2seq.evaluation.signatures import require_same_signature, text_settings
from seq2seq.report.study import Result, Texts
from seq2seq.report.systems import System, average, average_buckets


def choose_split(results: Sequence[Result], wanted: str | None) -> str:
    """Choose `wanted`, else "test_joined", else "test", else the first test set of all runs. Raises UserError."""
    each = [list(result.metrics["splits"] or result.texts) for result in results]
    common = [split for split in each[0] if all(split in splits for splits in each)]
    if wanted is not None:
        if wanted not in common:
            raise UserError(f"not every run was scored on {wanted!r}; all have: {', '.join(common) or 'none'}")
        return wanted
    if not common:
        raise UserError(
            f"no test set was scored by every run: {results[0].name} has {', '.join(each[0])}, others do not;\n"
            "Report on runs of one data set; where test_splits= left one out, remove metrics.json and repeat the run's "
            "command without it."
        )
    return next((split for split in ("test_joined", "test") if split in common), common[0])


def shared_texts(results: Sequence[Result], split: str) -> Texts | None:
    """The test set itself. Raises UserError for runs scored on different ones, which cannot be compared."""
    if different := _different_texts(results, split):
        raise UserError(
            f"{different} and cannot be compared;\n"
            "name only the runs of one data set, runs=[FOLDER, FOLDER, ...], or another test set, split=NAME"
        )
    return next((result.texts[split] for result in results if split in result.texts), None)


def comparable_splits(results: Sequence[Result], main: str, notes: list[str]) -> list[str]:
    """The test sets of any run, without those whose texts differ from run to run; `notes` names these."""
    names = dict.fromkeys(split for result in results for split in result.metrics["splits"])
    different = {split: _different_texts(results, split) for split in names if split != main}
    notes += [f"{split} was left out: {reason}" for split, reason in different.items() if reason]
    return [split for split in names if not different.get(split)]


def _different_texts(results: Sequence[Result], split: str) -> str | None:
    """Name two runs that saw different texts as `split`; None where all saw the same."""
    having = [result for result in results if split in result.texts]
    for result in having[1:]:
        for kind in ("references", "sources"):
            if getattr(result.texts[split], kind) != getattr(having[0].texts[split], kind):
                return f"{having[0].name} and {result.name} were scored on different {kind} for {split!r}"
    scored = [result for result in results if split in result.metrics["splits"]]
    for result in scored[1:]:
        first, other = (each.metrics["splits"][split]["segments"] for each in (scored[0], result))
        if first != other:
            return f"{scored[0].name} and {result.name} were scored on {first} and {other} segments of {split!r}"
    return None


def long_segments(scores: Mapping[str, Any]) -> int:
    """Number of segments that retention calls long, of an entry with "by_length" and "units"."""
    shortest = LONG[(scores.get("units") or {}).get("source", "words")][0]
    return sum(bucket["segments"] for bucket in scores.get("by_length") or [] if bucket["low"] >= shortest)


def other_splits(systems: Sequence[System], splits: Sequence[str], main: str) -> list[dict[str, Any]]:
    """Scores on each test set of `splits` but the main one, of the systems all of whose runs have it."""
    found = []
    for split in splits:
        having = [system for system in systems if all(split in result.metrics["splits"] for result in system.results)]
        if split == main or not having:
            continue
        tables = {
            system.name: {
                key: _average([result.metrics["splits"][split].get(key) for result in system.results])
                for key in (*METRICS, "retention")
            }
            for system in having
        }
        scores = {result.name: result.metrics["splits"][split] for system in having for result in system.results}
        signatures = {key: signature for key in METRICS if (signature := _signature(scores, key))}
        first = next(iter(scores.values()))
        found.append(
            {
                "split": split,
                "segments": first["segments"],
                "long_segments": long_segments(first),
                "systems": tables,
                "signatures": signatures,
                "labels": {key: METRICS[key].label(signature) for key, signature in signatures.items()},
            }
        )
    return found


def _average(scores: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """`average`, with the number of "runs" that have the score where some lack it."""
    mean, having = average(scores), len(scores) - list(scores).count(None)
    return mean and {**mean, **({"runs": having} if having < len(scores) else {})}


def _signature(scores: Mapping[str, Mapping[str, Any]], key: str) -> str | None:
    """The metric's one signature, of the runs that have the metric. Raises UserError if they differ."""
    signatures = {name: own[key]["signature"] for name, own in scores.items() if own.get(key)}
    require_same_signature(signatures)
    return next(iter(signatures.values()), None)


def part_scores(systems: Sequence[System], splits: Sequence[str], main: str) -> list[dict[str, Any]]:
    """Scores of the 1st, 2nd, ... part in each test set of joined segments that belongs to the main one:
    {"split", "systems": {name: [{"part", "segments", the primary metric's key, "alone"}]}}.

    "alone" is the score of the same segments translated each by itself, None where the run lacks the texts for it:
    part j is always every k-th segment, and these are not equally hard for all j.
    """
    base = re.sub(r"_(joined|x\d+)$", "", main)
    found = []
    for split in splits:
        if split != main and not re.fullmatch(rf"{re.escape(base)}_x\d+", split):
            continue
        tables = {}
        for system in systems:
            own = [result.metrics["splits"].get(split, {}).get("by_part") for result in system.results]
            if all(own):
                alone = [_alone(result, base, split) for result in system.results]
                parts = [
                    [{**part, "alone": scores[row] if scores else None} for row, part in enumerate(table)]
                    for table, scores in zip(own, alone, strict=True)
                ]
                tables[system.name] = average_buckets(parts, lambda bucket: bucket["part"], (PRIMARY.key, "alone"))
        if tables:
            found.append({"split": split, "systems": tables})
    return found


def share_of_alone(part: Mapping[str, Any]) -> float | None:
    """Share that a part of joined segments keeps of the score of the same segments translated alone."""
    alone = part["alone"]
    return part[PRIMARY.key]["score"] / alone["score"] if alone and alone["score"] else None


def _alone(result: Result, base: str, split: str) -> list[dict[str, float]] | None:
    """For each part of the joined segments {"score"} of the run's own translations of these segments of `base`."""
    size = re.search(r"_x(\d+)$", split)
    if size is None or base not in result.texts or split not in result.texts:
        return None
    texts, count = result.texts[base], int(size[1])
    whole = len(texts.references) // count * count
    joined = [" ".join(texts.references[row : row + count]) for row in range(0, whole, count)]
    if joined != result.texts[split].references:
        return None
    settings = text_settings(result.metrics["splits"][split][PRIMARY.key]["signature"])
    parts = [slice(part, whole, count) for part in range(count)]
    return [
        {"score": References(texts.references[rows], **settings).statistics(PRIMARY, texts.hypotheses[rows]).score()}
        for rows in parts
    ]

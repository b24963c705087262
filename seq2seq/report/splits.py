"""Which test sets a report compares: the main one, and beside it those on which all runs saw the same texts."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from seq2seq.errors import UserError
from seq2seq.evaluation.lengths import LONG
from seq2seq.evaluation.metrics import CorpusStatistics, bleu_metric, bleu_name
from seq2seq.evaluation.significance import require_same_signature
from seq2seq.report.study import Run, Texts, text_settings
from seq2seq.report.systems import System, average, average_buckets

METRICS = ("bleu", "chrf", "ter", "comet")


def choose_split(runs: Sequence[Run], wanted: str | None) -> str:
    """`wanted`, else "test_joined", else "test", else the first test set that all runs have. Raises UserError."""
    each = [list(run.metrics["splits"] or run.texts) for run in runs]
    common = [split for split in each[0] if all(split in splits for splits in each)]
    if wanted is not None:
        if wanted not in common:
            raise UserError(f"not every run was scored on {wanted!r}; all have: {', '.join(common) or 'none'}")
        return wanted
    if not common:
        raise UserError(
            f"no test set was scored by every run: {runs[0].name} has {', '.join(each[0])}, others have not;\n"
            "Report on runs of one data set; where test_splits= left one out, remove metrics.json and give the run's "
            "command again without it."
        )
    return next((split for split in ("test_joined", "test") if split in common), common[0])


def shared_texts(runs: Sequence[Run], split: str) -> Texts | None:
    """The test set itself. Raises UserError for runs scored on different ones, which must not meet in a table."""
    if different := _different_texts(runs, split):
        raise UserError(
            f"{different} and cannot be compared;\n"
            "name only the runs of one data set, runs=[FOLDER, FOLDER, ...], or another test set, split=NAME"
        )
    return next((run.texts[split] for run in runs if split in run.texts), None)


def comparable_splits(runs: Sequence[Run], main: str, notes: list[str]) -> list[str]:
    """The test sets of any run but those whose texts differ from run to run; `notes` says so of each."""
    names = dict.fromkeys(split for run in runs for split in run.metrics["splits"])
    different = {split: _different_texts(runs, split) for split in names if split != main}
    notes += [f"{split} was left out: {reason}" for split, reason in different.items() if reason]
    return [split for split in names if not different.get(split)]


def _different_texts(runs: Sequence[Run], split: str) -> str | None:
    """Which two runs saw different texts as `split`, if any did."""
    having = [run for run in runs if split in run.texts]
    for run in having[1:]:
        for kind in ("references", "sources"):
            if getattr(run.texts[split], kind) != getattr(having[0].texts[split], kind):
                return f"{having[0].name} and {run.name} were scored on different {kind} for {split!r}"
    scored = [run for run in runs if split in run.metrics["splits"]]
    for run in scored[1:]:
        first, other = (each.metrics["splits"][split]["segments"] for each in (scored[0], run))
        if first != other:
            return f"{scored[0].name} and {run.name} were scored on {first} and {other} segments of {split!r}"
    return None


def long_segments(scores: Mapping[str, Any]) -> int:
    """How many segments retention calls long, of an entry with "by_length"."""
    return sum(bucket["segments"] for bucket in scores.get("by_length") or [] if bucket["low"] >= LONG[0])


def other_splits(systems: Sequence[System], splits: Sequence[str], main: str) -> list[dict[str, Any]]:
    """The scores of each test set of `splits` but the main one, for the systems all of whose runs have it."""
    result = []
    for split in splits:
        having = [system for system in systems if all(split in run.metrics["splits"] for run in system.runs)]
        if split == main or not having:
            continue
        tables = {
            system.name: {
                metric: _average([run.metrics["splits"][split].get(metric) for run in system.runs])
                for metric in (*METRICS, "retention")
            }
            for system in having
        }
        scores = {run.name: run.metrics["splits"][split] for system in having for run in system.runs}
        signatures = {metric: _signature(scores, metric) for metric in METRICS}
        first = next(iter(scores.values()))
        result.append(
            {
                "split": split,
                "segments": first["segments"],
                "long_segments": long_segments(first),
                "systems": tables,
                "signature": signatures["bleu"],
                "comet_signature": signatures["comet"],
                "bleu_name": bleu_name(str(signatures["bleu"])),
            }
        )
    return result


def _average(scores: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """`average`, with the number of "runs" that have the score where some lack it."""
    mean, having = average(scores), len(scores) - list(scores).count(None)
    return mean and {**mean, **({"runs": having} if having < len(scores) else {})}


def _signature(scores: Mapping[str, Mapping[str, Any]], metric: str) -> str | None:
    """The metric's one signature, of the runs that have the metric. Raises UserError if they differ."""
    signatures = {name: own[metric]["signature"] for name, own in scores.items() if own.get(metric)}
    require_same_signature(signatures)
    return next(iter(signatures.values()), None)


def part_scores(systems: Sequence[System], splits: Sequence[str], main: str) -> list[dict[str, Any]]:
    """BLEU of the 1st, 2nd, ... part in each test set of joined segments that belongs to the main one:
    {"split", "systems": {name: [{"part", "segments", "bleu", "alone"}]}}.

    "alone" is the BLEU of the same segments translated each by itself, None where the run lacks the texts for it:
    part j is always every k-th segment, and these are not equally hard for all j.
    """
    base = re.sub(r"_(joined|x\d+)$", "", main)
    found = []
    for split in splits:
        if split != main and not re.fullmatch(rf"{re.escape(base)}_x\d+", split):
            continue
        tables = {}
        for system in systems:
            own = [run.metrics["splits"].get(split, {}).get("by_part") for run in system.runs]
            if all(own):
                alone = [_alone(run, base, split) for run in system.runs]
                parts = [
                    [{**part, "alone": scores[row] if scores else None} for row, part in enumerate(table)]
                    for table, scores in zip(own, alone, strict=True)
                ]
                tables[system.name] = average_buckets(parts, lambda bucket: bucket["part"], ("bleu", "alone"))
        if tables:
            found.append({"split": split, "systems": tables})
    return found


def share_of_alone(part: Mapping[str, Any]) -> float | None:
    """What a part of joined segments keeps of the BLEU that the same segments have when translated alone."""
    alone = part["alone"]
    return part["bleu"]["score"] / alone["score"] if alone and alone["score"] else None


def _alone(run: Run, base: str, split: str) -> list[dict[str, float]] | None:
    """For each part of the joined segments {"score"} of the run's own translations of these segments of `base`."""
    size = re.search(r"_x(\d+)$", split)
    if size is None or base not in run.texts or split not in run.texts:
        return None
    texts, count = run.texts[base], int(size[1])
    whole = len(texts.references) // count * count
    joined = [" ".join(texts.references[row : row + count]) for row in range(0, whole, count)]
    if joined != run.texts[split].references:
        return None
    metric = bleu_metric(**text_settings(run.metrics["splits"][split]["bleu"]["signature"]))
    parts = [slice(part, whole, count) for part in range(count)]
    return [
        {"score": CorpusStatistics(metric, texts.hypotheses[rows], texts.references[rows]).score()} for rows in parts
    ]

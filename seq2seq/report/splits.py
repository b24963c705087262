"""Which test sets a report compares: the main one, and beside it those on which all runs saw the same texts."""

import re
from collections.abc import Sequence
from typing import Any

from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import bleu_name
from seq2seq.evaluation.significance import require_same_signature
from seq2seq.report.study import Run, Texts
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
    return None


def other_splits(systems: Sequence[System], splits: Sequence[str], main: str) -> list[dict[str, Any]]:
    """The scores of each test set of `splits` but the main one, for the systems all of whose runs have it."""
    result = []
    for split in splits:
        having = [system for system in systems if all(split in run.metrics["splits"] for run in system.runs)]
        if split == main or not having:
            continue
        tables = {
            system.name: {
                metric: average([run.metrics["splits"][split].get(metric) for run in system.runs])
                for metric in (*METRICS, "retention")
            }
            for system in having
        }
        signatures = {
            run.name: run.metrics["splits"][split]["bleu"]["signature"] for system in having for run in system.runs
        }
        require_same_signature(signatures)
        signature = next(iter(signatures.values()))
        segments = having[0].runs[0].metrics["splits"][split]["segments"]
        result.append(
            {
                "split": split,
                "segments": segments,
                "systems": tables,
                "signature": signature,
                "bleu_name": bleu_name(signature),
            }
        )
    return result


def part_scores(systems: Sequence[System], splits: Sequence[str], main: str) -> list[dict[str, Any]]:
    """BLEU of the 1st, 2nd, ... part in each test set of joined segments that belongs to the main one:
    {"split", "systems": {name: [{"part", "segments", "bleu"}]}}."""
    base = re.sub(r"_(joined|x\d+)$", "", main)
    found = []
    for split in splits:
        if split != main and not re.fullmatch(rf"{re.escape(base)}_x\d+", split):
            continue
        tables = {}
        for system in systems:
            own = [run.metrics["splits"].get(split, {}).get("by_part") for run in system.runs]
            if all(own):
                tables[system.name] = average_buckets(own, lambda bucket: bucket["part"], ("bleu",))
        if tables:
            found.append({"split": split, "systems": tables})
    return found

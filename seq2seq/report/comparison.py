"""Everything a report says, as plain values: what report.json holds and the HTML and Markdown pages show."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from seq2seq.errors import UserError
from seq2seq.evaluation.lengths import hardly_spaced, length_differences
from seq2seq.evaluation.metrics import bleu_name, evaluate_texts
from seq2seq.evaluation.significance import mean_and_deviation, require_same_signature
from seq2seq.evaluation.words import count_words, ngram_differences, ngram_matches, unlisted, word_f1
from seq2seq.report.effects import against, effects
from seq2seq.report.recipe import recipe
from seq2seq.report.sentences import attention_examples, sentence_table
from seq2seq.report.splits import METRICS, choose_split, comparable_splits, other_splits, part_scores, shared_texts
from seq2seq.report.study import Run, Study, Texts, text_settings
from seq2seq.report.systems import System, average, average_buckets, average_number, find, group

CURVE_POINTS = 250

BEAM_NUMBERS = ("length_ratio", "sentences_per_second")


def compare(study: Study, baseline: str | None = None, split: str | None = None) -> dict[str, Any]:
    """Compare all runs of a study on one test set; outside systems are scored on the way.

    `baseline` names the system that the others are tested against (default: the fixed-context model, else the one with
    the lowest BLEU); `split` the test set (default "test_joined", else "test", else the first that all runs have).

    Raises UserError when the runs were scored on different test sets or with different signatures, or when `baseline`
    or `split` is unknown.
    """
    notes = list(study.notes)
    split = choose_split(study.runs, split)
    texts = shared_texts(study.runs, split)
    runs = [run for run in study.runs if split in run.metrics["splits"]]
    notes += [
        f"{run.name} went on from {run.metrics['checkpoint']}; its updates, tokens and time are those since then"
        for run in runs
        if run.metrics.get("checkpoint")
    ]
    splits = comparable_splits(runs, split, notes)
    if texts and hardly_spaced(texts.sources):
        notes.append(
            f"the sources of {split} hardly have spaces: lengths are in words between spaces, so that scores by length "
            "and retention mean little here"
        )
    settings = text_settings(runs[0].metrics["splits"][split]["bleu"]["signature"] if runs else "")
    groups = _groups(runs, split)
    notes += _too_narrow(runs, splits, None if groups else split)
    runs += _score_outside(study.outside, split, texts, settings, groups, notes)
    if not runs:
        raise UserError("nothing to compare: no scored run and no hypothesis file with as many lines as the reference")
    for metric in METRICS:
        signatures = {
            run.name: run.metrics["splits"][split][metric]["signature"] for run in runs if _has(run, split, metric)
        }
        require_same_signature(signatures)
    systems = group(runs, notes)
    base = find(baseline, systems) if baseline else _default_baseline(systems, split)
    significance = against(base, systems, split, settings, groups)
    entries = [_entry(system, split, significance.get(system.name)) for system in systems]
    entries.sort(key=lambda entry: -entry["bleu"]["score"])
    systems = [find(entry["name"], systems) for entry in entries]
    shown = [system for system in systems if split in system.runs[0].texts]
    first = runs[0]
    return {
        "title": _title(runs, split),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "split": split,
        "data": first.metrics.get("data"),
        "languages": first.metrics.get("languages"),
        "segments": first.metrics["splits"][split]["segments"],
        "baseline": base.name,
        "bleu_name": bleu_name(first.metrics["splits"][split]["bleu"]["signature"]),
        "signatures": {
            metric: next(run.metrics["splits"][split][metric]["signature"] for run in runs if _has(run, split, metric))
            for metric in METRICS
            if any(_has(run, split, metric) for run in runs)
        },
        "bootstrap": first.metrics["splits"][split].get("bootstrap"),
        "systems": entries,
        "other_splits": other_splits(systems, splits, split),
        "parts": part_scores(systems, splits, split),
        "training": {system.name: _curve(system.runs[0].history) for system in systems if system.runs[0].history},
        "length_differences": {
            system.name: length_differences(_hypotheses(system, split), texts.references) for system in shown if texts
        },
        "words": _words(shown, split, texts),
        "ngrams": _ngrams(base, shown, split, texts),
        "effects": effects(systems, split, settings, groups),
        "sentences": sentence_table(
            {system.name: _hypotheses(system, split) for system in shown}, texts.sources, texts.references, **settings
        )
        if texts and shown
        else None,
        "attention": attention_examples(systems, split),
        "reproduce": [recipe(run) for run in runs if run.folder is not None],
        "notes": notes,
    }


def _groups(runs: Sequence[Run], split: str) -> list[int] | None:
    """The group of each segment of the test set, as the first run has it that kept them beside its texts."""
    files = [run.folder / f"{split}.groups.json" for run in runs if run.folder and split in run.texts]
    present = next((path for path in files if path.is_file()), None)
    if present is None:
        return None
    try:
        groups: list[int] = json.loads(present.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{present} cannot be read ({error})\nScore the run again, or remove the file.") from error
    segments = next(len(run.texts[split].references) for run in runs if split in run.texts)
    if len(groups) != segments:
        raise UserError(
            f"{present} has {len(groups)} groups, {split} {segments} segments\nScore the run again, or remove the file."
        )
    return groups


def _too_narrow(runs: Sequence[Run], splits: Sequence[str], ungrouped: str | None) -> list[str]:
    """What to know of runs scored by versions that took the segments of a joined test set for independent; the tests on
    the split `ungrouped` do so too."""
    notes = []
    for split in splits:
        scores = {run.name: run.metrics["splits"][split] for run in runs if split in run.metrics["splits"]}
        narrow = [name for name, own in scores.items() if "groups" not in (own.get("bootstrap") or {})]
        if split.endswith("_joined") and narrow:
            test = " and p-values too small" if split == ungrouped else ""
            notes.append(
                f"{split}: the intervals of {', '.join(narrow)} are too narrow{test}, "
                "as segments that share sentences were taken for independent; remove metrics.json and give the run's "
                "command again: it is scored anew"
            )
    return notes


def _score_outside(
    outside: Mapping[str, list[str]],
    split: str,
    texts: Texts | None,
    settings: Mapping[str, Any],
    groups: Sequence[int] | None,
    notes: list[str],
) -> list[Run]:
    runs = []
    for name, hypotheses in outside.items():
        if texts is None:
            notes.append(f"{name} was left out: no run has the reference of {split}")
        elif len(hypotheses) != len(texts.references):
            notes.append(
                f"{name} was left out: {len(hypotheses)} lines, but {split} has {len(texts.references)} segments"
            )
        else:
            scores = evaluate_texts(hypotheses, texts.references, texts.sources, **settings, groups=groups)
            own = Texts(texts.sources, texts.references, hypotheses)
            metrics = {"model": "outside system", "splits": {split: scores}}
            runs.append(Run(name=name, folder=None, metrics=metrics, texts={split: own}))
    return runs


def _has(run: Run, split: str, metric: str) -> bool:
    return bool(run.metrics["splits"][split].get(metric))


def _hypotheses(system: System, split: str) -> list[str]:
    return system.runs[0].texts[split].hypotheses


def _default_baseline(systems: Sequence[System], split: str) -> System:
    fixed = [system for system in systems if system.runs[0].model == "rnn"]
    pool = fixed or list(systems)

    def bleu(system: System) -> float:
        return mean_and_deviation([run.metrics["splits"][split]["bleu"]["score"] for run in system.runs])[0]

    return min(pool, key=bleu)


def _entry(system: System, split: str, test: Mapping[str, Any] | None) -> dict[str, Any]:
    scores = [run.metrics["splits"][split] for run in system.runs]
    training = [run.metrics.get("training") or {} for run in system.runs]
    decoding = [score.get("decoding") or {} for score in scores]
    entry: dict[str, Any] = {
        "name": system.name,
        "model": system.runs[0].model,
        "colour": system.colour,
        "outside": system.outside,
        "runs": [run.name for run in system.runs],
        "seeds": [run.metrics.get("seed") for run in system.runs],
        "parameters": system.runs[0].metrics.get("parameters"),
        "p_value": test["bleu"]["p_value"] if test else None,
        "chrf_p_value": test["chrf"]["p_value"] if test else None,
        "bleu_difference": test["bleu"]["difference"] if test else None,
        "chrf_difference": test["chrf"]["difference"] if test else None,
    }
    for metric in (*METRICS, "retention"):
        entry[metric] = average([score.get(metric) for score in scores])
    for number in ("perplexity", "nll", "length_ratio", "repetition_rate", "alignment_error_rate"):
        entry[number] = average_number([score.get(number) for score in scores])
    for number in ("seconds", "cpu_seconds", "updates", "target_tokens_per_second", "best_update", "threads"):
        entry[f"training_{number}"] = average_number([each.get(number) for each in training])
    entry["sentences_per_second"] = average_number([each.get("sentences_per_second") for each in decoding])
    entry["search"] = decoding[0].get("search")
    tables = [score.get("by_length") or [] for score in scores]
    entry["by_length"] = average_buckets(tables, lambda bucket: bucket["low"], ("bleu", "chrf"))
    beams = [score.get("by_beam_size") or [] for score in scores]
    entry["by_beam_size"] = average_buckets(beams, lambda bucket: bucket["beam_size"], ("bleu",), BEAM_NUMBERS)
    return entry


def _curve(history: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Thin a long history, but keep every validation."""
    validations = [event for event in history if event.get("valid_bleu") is not None or event.get("valid_perplexity")]
    others = [event for event in history if event not in validations]
    step = max(1, len(others) // CURVE_POINTS)
    return sorted([*validations, *others[::step]], key=lambda event: event.get("update", 0))


def _words(systems: Sequence[System], split: str, texts: Texts | None) -> dict[str, Any] | None:
    if texts is None or not systems:
        return None
    counted = next((run.word_counts for system in systems for run in system.runs if run.word_counts), None)
    frequency = counted or count_words(texts.references)
    below = unlisted(counted) if counted else 0
    return {
        "counted_in": "training" if counted else "reference",
        "systems": {
            system.name: word_f1(_hypotheses(system, split), texts.references, frequency, below) for system in systems
        },
    }


def _ngrams(base: System, systems: Sequence[System], split: str, texts: Texts | None) -> list[dict[str, Any]]:
    if texts is None or base not in systems:
        return []
    matches = {system.name: ngram_matches(_hypotheses(system, split), texts.references) for system in systems}
    ours = matches[base.name]
    return [
        {
            "system": system.name,
            "baseline": base.name,
            "gains": ngram_differences(matches[system.name], ours),
            "losses": ngram_differences(ours, matches[system.name]),
        }
        for system in systems
        if system is not base
    ]


def _title(runs: Sequence[Run], split: str) -> str:
    languages = next((run.metrics["languages"] for run in runs if run.metrics.get("languages")), None)
    data = next((run.metrics["data"] for run in runs if run.metrics.get("data")), None)
    pair = "→".join(languages) if languages else ""
    return ", ".join(part for part in (" ".join(filter(None, (data, pair))), split) if part)

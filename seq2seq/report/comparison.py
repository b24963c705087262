"""The comparison: everything that a report says, as plain values for report.json, the page and the Markdown file."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from seq2seq.errors import UserError
from seq2seq.evaluation.languages import tokenizer_advice
from seq2seq.evaluation.lengths import length_differences
from seq2seq.evaluation.metrics import METRICS, PRIMARY, References, evaluate_texts
from seq2seq.evaluation.signatures import require_same_signature, text_settings
from seq2seq.evaluation.significance import mean_and_deviation
from seq2seq.evaluation.words import count_words, ngram_differences, ngram_matches, unlisted, word_f1
from seq2seq.report.completion import complete, languages_of, units_of_split
from seq2seq.report.difficulty import add_shares_of_best, length_losses
from seq2seq.report.effects import against, effects
from seq2seq.report.recipe import recipe
from seq2seq.report.sentences import attention_examples, sentence_table
from seq2seq.report.splits import choose_split, comparable_splits, other_splits, part_scores, shared_texts
from seq2seq.report.study import Result, Study, Texts
from seq2seq.report.systems import System, average, average_buckets, average_number, find, group

CURVE_POINTS = 250

BEAM_NUMBERS = ("length_ratio", "sentences_per_second")

INTERVAL = "95% bootstrap intervals"
MEAN_BOUNDS = "the means of the runs' 95% bootstrap bounds"
"""The bounds of a score: of one run, and of a mean over seeds."""


def compare(study: Study, baseline: str | None = None, split: str | None = None) -> dict[str, Any]:
    """Compare all results of a study on one test set; external systems are scored on the way.

    `baseline` names the system that the others are tested against (default: the fixed-context model, else the one with
    the lowest score); `split` the test set (default "test_joined", else "test", else the first that all runs have).

    Raises UserError when the runs were scored on different test sets or with different signatures, or when `baseline`
    or `split` is unknown.
    """
    notes = list(study.notes)
    split = choose_split(study.results, split)
    texts = shared_texts(study.results, split)
    results = [result for result in study.results if split in result.metrics["splits"]]
    notes += [
        f"{result.name} was trained further from {result.metrics['checkpoint']}; its updates, tokens and time are "
        "those since then"
        for result in results
        if result.metrics.get("checkpoint")
    ]
    splits = comparable_splits(results, split, notes)
    signature = results[0].metrics["splits"][split][PRIMARY.key]["signature"] if results else ""
    groups = _groups(results, split)
    references = References(texts.references, **text_settings(signature), groups=groups) if texts else None
    units = units_of_split(results, split, texts)
    if references and texts:
        advice = tokenizer_advice(references.tokenize, languages_of(results)[1], texts.references)
        notes += [advice] if advice else []
        results = complete(results, split, references, units, notes)
    notes += _too_narrow(results, splits, None if groups else split)
    results += _score_external(study.outside, split, texts, references, languages_of(results), notes)
    if not results:
        raise UserError("nothing to compare: no scored run and no hypothesis file with as many lines as the reference")
    signatures = _signatures(results, split)
    systems = group(results, notes)
    base = find(baseline, systems) if baseline else _default_baseline(systems, split)
    tests = against(base, systems, split, references)
    entries = [_entry(system, split, tests.get(system.name)) for system in systems]
    add_shares_of_best(entries)
    entries.sort(key=lambda entry: -entry[PRIMARY.key]["score"])
    systems = [find(entry["name"], systems) for entry in entries]
    shown = [system for system in systems if split in system.results[0].texts]
    first = results[0].metrics
    return {
        "title": _title(results, split),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "split": split,
        "data": first.get("data"),
        "languages": first.get("languages"),
        "segments": first["splits"][split]["segments"],
        "units": units,
        "baseline": base.name,
        "primary": PRIMARY.key,
        "labels": {key: METRICS[key].label(own) for key, own in signatures.items()},
        "signatures": signatures,
        "bootstrap": first["splits"][split].get("bootstrap"),
        "bounds": MEAN_BOUNDS if any(len(system.results) > 1 for system in systems) else INTERVAL,
        "systems": entries,
        "other_splits": other_splits(systems, splits, split),
        "parts": part_scores(systems, splits, split),
        "training": {system.name: _curve(system.results[0].history) for system in systems if system.results[0].history},
        "length_losses": length_losses(base, shown, split, texts, references, units),
        "length_differences": {
            system.name: length_differences(_hypotheses(system, split), texts.references, units["target"])
            for system in shown
            if texts
        },
        "words": _words(shown, split, texts, units),
        "ngrams": _ngrams(base, shown, split, texts, units),
        "effects": effects(systems, split, references),
        "sentences": sentence_table(
            {system.name: _hypotheses(system, split) for system in shown}, texts.sources, references
        )
        if texts and references and shown
        else None,
        "attention": attention_examples(systems, split),
        "reproduce": [recipe(result) for result in results if result.run is not None],
        "notes": notes,
    }


def _signatures(results: Sequence[Result], split: str) -> dict[str, str]:
    """The one signature of each metric that any result has. Raises UserError where results differ."""
    signatures: dict[str, str] = {}
    for key in METRICS:
        scores = {result.name: result.metrics["splits"][split].get(key) for result in results}
        own = {name: score["signature"] for name, score in scores.items() if score}
        require_same_signature(own)
        if own:
            signatures[key] = next(iter(own.values()))
    return signatures


def _groups(results: Sequence[Result], split: str) -> list[int] | None:
    """The group of each segment of the test set, from the first run that kept them beside its texts."""
    having = [result for result in results if split in result.texts]
    files = [result.run.groups(split) for result in having if result.run]
    present = next((path for path in files if path.is_file()), None)
    if present is None:
        return None
    try:
        groups: list[int] = json.loads(present.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{present} cannot be read ({error})\nScore the run again, or remove the file.") from error
    segments = len(having[0].texts[split].references)
    if len(groups) != segments:
        raise UserError(
            f"{present} has {len(groups)} groups, {split} {segments} segments\nScore the run again, or remove the file."
        )
    return groups


def _too_narrow(results: Sequence[Result], splits: Sequence[str], ungrouped: str | None) -> list[str]:
    """Notes on runs scored by versions that took the segments of a joined test set for independent; the tests on the
    split `ungrouped` do so too."""
    notes = []
    for split in splits:
        scores = {
            result.name: result.metrics["splits"][split] for result in results if split in result.metrics["splits"]
        }
        narrow = [name for name, own in scores.items() if "groups" not in (own.get("bootstrap") or {})]
        if split.endswith("_joined") and narrow:
            test = " and p-values too small" if split == ungrouped else ""
            notes.append(
                f"{split}: the intervals of {', '.join(narrow)} are too narrow{test}, "
                "as segments that share sentences were taken for independent; remove metrics.json and repeat the run's "
                "command: it is scored again, not trained again"
            )
    return notes


def _score_external(
    outside: Mapping[str, list[str]],
    split: str,
    texts: Texts | None,
    references: References | None,
    languages: tuple[str | None, str | None],
    notes: list[str],
) -> list[Result]:
    results = []
    for name, hypotheses in outside.items():
        if texts is None or references is None:
            notes.append(f"{name} was left out: no run has the reference of {split}")
        elif len(hypotheses) != len(texts.references):
            notes.append(
                f"{name} was left out: {len(hypotheses)} lines, but {split} has {len(texts.references)} segments"
            )
        else:
            scores = evaluate_texts(
                hypotheses,
                texts.references,
                texts.sources,
                tokenize=references.tokenize,
                lowercase=references.lowercase,
                groups=references.groups,
                languages=languages,
            )
            own = Texts(texts.sources, texts.references, hypotheses)
            metrics = {"model": "external system", "splits": {split: scores}}
            results.append(Result(name=name, run=None, metrics=metrics, texts={split: own}))
    return results


def _hypotheses(system: System, split: str) -> list[str]:
    return system.results[0].texts[split].hypotheses


def _default_baseline(systems: Sequence[System], split: str) -> System:
    fixed = [system for system in systems if system.results[0].model == "rnn"]
    pool = fixed or list(systems)

    def score(system: System) -> float:
        scores = [result.metrics["splits"][split][PRIMARY.key]["score"] for result in system.results]
        return mean_and_deviation(scores)[0]

    return min(pool, key=score)


def _entry(system: System, split: str, tests: Mapping[str, Any] | None) -> dict[str, Any]:
    """One system's scores, sizes and costs; "tests" are those of `effects.against`."""
    first = system.results[0]
    scores = [result.metrics["splits"][split] for result in system.results]
    training = [result.metrics.get("training") or {} for result in system.results]
    decoding = [score.get("decoding") or {} for score in scores]
    entry: dict[str, Any] = {
        "name": system.name,
        "model": first.model,
        "color": system.color,
        "external": system.external,
        "runs": [result.name for result in system.results],
        "seeds": [result.metrics.get("seed") for result in system.results],
        "parameters": first.metrics.get("parameters"),
        "tests": tests,
        "units": scores[0].get("units"),
    }
    for key in (*METRICS, "retention"):
        entry[key] = average([score.get(key) for score in scores])
    for number in ("perplexity", "nll", "length_ratio", "repetition_rate", "alignment_error_rate"):
        entry[number] = average_number([score.get(number) for score in scores])
    for number in ("seconds", "cpu_seconds", "updates", "target_tokens_per_second", "best_update", "threads"):
        entry[f"training_{number}"] = average_number([each.get(number) for each in training])
    entry["sentences_per_second"] = average_number([each.get("sentences_per_second") for each in decoding])
    entry["search"] = decoding[0].get("search")
    tables = [score.get("by_length") or [] for score in scores]
    entry["by_length"] = average_buckets(tables, lambda bucket: bucket["low"], tuple(METRICS), ("length_ratio",))
    beams = [score.get("by_beam_size") or [] for score in scores]
    entry["by_beam_size"] = average_buckets(beams, lambda bucket: bucket["beam_size"], (PRIMARY.key,), BEAM_NUMBERS)
    return entry


def _curve(history: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Thin a long history, but keep every validation."""
    score = f"valid_{PRIMARY.key}"
    validations = [event for event in history if event.get(score) is not None or event.get("valid_perplexity")]
    others = [event for event in history if event not in validations]
    step = max(1, len(others) // CURVE_POINTS)
    return sorted([*validations, *others[::step]], key=lambda event: event.get("update", 0))


def _words(
    systems: Sequence[System], split: str, texts: Texts | None, units: Mapping[str, Any]
) -> dict[str, Any] | None:
    if texts is None or not systems:
        return None
    unit = units["target"]
    results = [result for system in systems for result in system.results]
    counted = next((result.word_counts for result in results if _counts_of(unit, result.word_counts)), None)
    frequency = counted or count_words(texts.references, unit)
    below = unlisted(counted) if counted else 0
    return {
        "counted_in": "training" if counted else "reference",
        "unit": unit,
        "systems": {
            system.name: word_f1(_hypotheses(system, split), texts.references, frequency, below, unit)
            for system in systems
        },
    }


def _counts_of(unit: str, counts: Mapping[str, int] | None) -> bool:
    """True where a run's counts are of this unit; versions before 0.2 counted words in any language."""
    return bool(counts) and (unit == "words" or max(map(len, counts or ())) == 1)


def _ngrams(
    base: System, systems: Sequence[System], split: str, texts: Texts | None, units: Mapping[str, Any]
) -> list[dict[str, Any]]:
    if texts is None or base not in systems:
        return []
    unit = units["target"]
    matches = {
        system.name: ngram_matches(_hypotheses(system, split), texts.references, unit=unit) for system in systems
    }
    ours = matches[base.name]
    return [
        {
            "system": system.name,
            "baseline": base.name,
            "gains": ngram_differences(matches[system.name], ours, unit=unit),
            "losses": ngram_differences(ours, matches[system.name], unit=unit),
        }
        for system in systems
        if system is not base
    ]


def _title(results: Sequence[Result], split: str) -> str:
    known = [result.metrics for result in results]
    languages = next((metrics["languages"] for metrics in known if metrics.get("languages")), None)
    data = next((metrics["data"] for metrics in known if metrics.get("data")), None)
    pair = "→".join(code or "?" for code in languages) if languages else ""
    return ", ".join(part for part in (" ".join(filter(None, (data, pair))), split) if part)

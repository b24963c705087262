"""The study: finished runs that a report compares, and hypothesis files of external systems."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seq2seq.data.readers import read_lines
from seq2seq.data.texts import read_texts
from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import PRIMARY, References
from seq2seq.evaluation.signatures import text_settings
from seq2seq.run import TEXT_KINDS, Run

MAX_DEPTH = 4

TOLERANCE = 0.01
"""Difference between a run's score and that of its texts that is let pass: versions of sacreBLEU differ in the last
digits."""


@dataclass(frozen=True)
class Texts:
    """One test set as a run saw it: detokenized lines, one per segment, in the same order."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]


@dataclass(frozen=True)
class Result:
    """One trained model with its scores, or (`run` None) the output of an external system.

    metrics, config, history and attention are the run folder's files, parsed; texts and attention are keyed by split.
    word_counts: occurrences of each word in the training targets, where the run kept them.
    """

    name: str
    run: Run | None
    metrics: dict[str, Any]
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    texts: dict[str, Texts] = field(default_factory=dict)
    attention: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    word_counts: dict[str, int] | None = None

    @property
    def external(self) -> bool:
        return self.run is None

    @property
    def model(self) -> str:
        return str(self.metrics.get("model", "external system" if self.external else "?"))


@dataclass(frozen=True)
class Study:
    """Results to compare, in order of their names, and what a reader should know of the folders that were left out."""

    results: list[Result]
    notes: list[str]
    outside: dict[str, list[str]] = field(default_factory=dict)
    """Hypotheses of external systems by name; scored once the test set is known."""


def collect(folders: str | Path | Sequence[str | Path], systems: Mapping[str, str | Path] | None = None) -> Study:
    """Read run folders: the given folders themselves, or any folder below them that holds a run.

    Text files beside the runs, `NAME.hyp.txt` or `NAME.txt`, and the files named in `systems` are taken for outputs of
    external systems, one line per segment. Where there is no run, `SPLIT.src.txt` and `SPLIT.ref.txt` beside the
    hypotheses give the test set. Unfinished or damaged runs, missing files and unreadable text files beside the runs
    become notes. Raises UserError for a folder that is not there, for one with nothing to compare, and for a file of
    `systems` that is not there or unreadable.
    """
    roots = [Path(folders)] if isinstance(folders, str | Path) else [Path(folder) for folder in folders]
    results: list[Result] = []
    notes: list[str] = []
    outside: dict[str, list[str]] = {}
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root} is not a folder; give a folder of runs, such as runs=runs")
        for run in sorted(_runs(root), key=lambda run: run.folder):
            result = _read(run, root, notes)
            if result is not None:
                results.append(result)
        if not Run(root).exists:
            for name, file in hypothesis_files(root):
                try:
                    outside[name if name not in outside else str(file)] = read_texts(file)
                except UserError as error:
                    notes.append(f"{name} was left out: {str(error).splitlines()[0]}")
            results.extend(_bare_test_sets(root) if not results else [])
    for name, path in (systems or {}).items():
        if not Path(path).is_file():
            raise UserError(f"the hypothesis file of {name} is not there: {path}")
        outside[name] = read_texts(path)
    if not results:
        reason = "; ".join(notes) or "a run has config.yaml and metrics.json in its folder"
        raise UserError(f"no finished run in {', '.join(map(str, roots))}: {reason}")
    return Study(_with_unique_names(results), notes, outside)


def _runs(root: Path) -> Iterator[Run]:
    """Each run below the root once; one that only a link leads to goes by the link's name."""
    seen = set()
    waiting = [root]
    while waiting:
        for path, folders, _ in os.walk(waiting.pop(0)):
            here = Path(path)
            depth = len(here.relative_to(root).parts)
            folders[:] = [name for name in folders if not name.startswith(".") and depth < MAX_DEPTH]
            if (place := here.resolve()) in seen:
                folders.clear()
                continue
            seen.add(place)
            if Run(here).exists:
                folders.clear()
                yield Run(here)
            waiting += sorted(here / name for name in folders if (here / name).is_symlink())


def _read(run: Run, root: Path, notes: list[str]) -> Result | None:
    folder = run.folder
    name = str(folder.relative_to(root)) if folder != root else folder.resolve().name
    if not run.finished:
        notes.append(f"{name} is unfinished (no {run.metrics_file.name}) and was left out")
        return None
    try:
        metrics = run.read_metrics()
    except (UserError, OSError) as error:
        notes.append(f"{name} was left out: {str(error).splitlines()[0]}")
        return None
    if not metrics["splits"]:
        notes.append(
            f"{name} has no scores in {run.metrics_file.name} and was left out; remove that, and its command scores it"
        )
        return None
    if evaluated := metrics.get("evaluated"):
        notes += _elsewhere(name, metrics, evaluated)
    texts, attention = {}, {}
    for split, scores in metrics["splits"].items():
        if (lines := _texts(run, split, scores.get(PRIMARY.key), name, notes)) is None:
            continue
        texts[split] = lines
        if run.attention(split).is_file():
            attention[split] = list(_json_lines(run.attention(split), notes, name))
    if not run.history.is_file() and not evaluated:
        notes.append(f"{name} has no {run.history.name}: no training curve from it")
    return Result(
        name=name,
        run=run,
        metrics=_finite(metrics),
        config=_config(run, notes, name),
        history=list(_json_lines(run.history, notes, name)) if run.history.is_file() else [],
        texts=texts,
        attention=attention,
        word_counts=_json(run.word_counts, notes, name) if run.word_counts.is_file() else None,
    )


def _elsewhere(name: str, metrics: Mapping[str, Any], evaluated: Mapping[str, Any]) -> list[str]:
    """Notes on a checkpoint that was scored on data other than its training corpus, which `evaluated` records. Of a
    checkpoint without scores only the name of the corpus is known."""
    same = metrics["data"] == evaluated["data"]
    if evaluated["corpus"] == metrics["corpus"] or (same and evaluated["corpus"] is None):
        return []
    data = f"other text of {metrics['data']}" if same else metrics["data"]
    return [f"{name} is {evaluated['checkpoint']}, trained on {evaluated['data']} and scored on {data}"]


def _texts(run: Run, split: str, score: Mapping[str, Any] | None, name: str, notes: list[str]) -> Texts | None:
    """The run's texts of a test set; None, with a note, where they are missing or not those that were scored."""
    files = [run.text(split, kind) for kind in TEXT_KINDS]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        notes.append(f"{name} has no {', '.join(missing)}: no sentences, words or significance of {split} from it")
        return None
    lines = Texts(*(_lines(path) for path in files))
    if not len(lines.sources) == len(lines.references) == len(lines.hypotheses):
        names = ", ".join(path.name for path in files)
        notes.append(f"{name}: {names} differ in their number of lines; left unread")
        return None
    if score and (found := _other_score(lines, score)):
        notes.append(
            f"{name}: {found}: {files[2].name} or {files[1].name} was changed since; its texts were left unread. "
            f"Remove {run.metrics_file.name}, and its command scores it again"
        )
        return None
    if not any(line.strip() for line in lines.references):
        notes.append(f"{name}: every reference of {split} is empty, so that its scores and lengths mean nothing")
    return lines


def _other_score(texts: Texts, known: Mapping[str, Any]) -> str | None:
    """The texts' score against the one in metrics.json, if they differ: these are not the texts that were scored."""
    references = References(texts.references, **text_settings(known["signature"]))
    score = references.statistics(PRIMARY, texts.hypotheses).score()
    if abs(score - known["score"]) <= TOLERANCE:
        return None
    return f"metrics.json says {PRIMARY.name} {known['score']:.2f}, its texts have {score:.2f}"


def _bare_test_sets(root: Path) -> list[Result]:
    """A nameless result that only carries the test sets beside hypotheses."""
    texts = {}
    for path in sorted(root.glob("*.ref.txt")):
        split = path.name.removesuffix(".ref.txt")
        source = Run(root).text(split, "src")
        if source.is_file():
            references = _lines(path)
            texts[split] = Texts(_lines(source), references, [])
    return [Result(name="", run=None, metrics={"splits": {}}, texts=texts)] if texts else []


def hypothesis_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Find the outputs of external systems beside the runs, by name."""
    for path in sorted(root.glob("*.txt")):
        if not path.name.endswith((".src.txt", ".ref.txt")):
            yield path.name.removesuffix(".txt").removesuffix(".hyp"), path


def _with_unique_names(results: list[Result]) -> list[Result]:
    """Runs of several roots may share a name; then the whole path tells them apart."""
    names = [result.name for result in results]
    return [
        replace(result, name=str(result.run)) if names.count(result.name) > 1 and result.run else result
        for result in results
    ]


def _lines(path: Path) -> list[str]:
    return list(read_lines(path))


def _json(path: Path, notes: list[str], name: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        notes.append(f"{name}: {path.name} cannot be read ({error})")
        return None


def _json_lines(path: Path, notes: list[str], name: str) -> Iterable[dict[str, Any]]:
    """Parsed lines; a last line cut short by a kill is dropped with a note."""
    for number, line in enumerate(_lines(path), start=1):
        try:
            yield _finite(json.loads(line))
        except ValueError:
            notes.append(f"{name}: line {number} of {path.name} cannot be read and was left out")


def _config(run: Run, notes: list[str], name: str) -> dict[str, Any]:
    try:
        return run.read_settings()
    except (UserError, OSError) as error:
        notes.append(f"{name}: {run.settings_file.name} cannot be read ({str(error).splitlines()[0]})")
        return {}


def _finite(value: Any) -> Any:
    """The same structure with None for NaN and infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""Collect what a report compares: finished run folders, and plain hypothesis files of systems from elsewhere."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from seq2seq.data.readers import read_lines
from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import CorpusStatistics, bleu_metric, signature_settings

MAX_DEPTH = 4

TOLERANCE = 0.01
"""BLEU by which a run's texts may miss its score: versions of sacreBLEU differ in the last digits."""


@dataclass(frozen=True)
class Texts:
    """One test set as a run saw it: detokenised lines, one a segment, in the same order."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]


@dataclass(frozen=True)
class Run:
    """One trained model with its scores, or (`folder` None) the output of a system from elsewhere.

    metrics, config, history and attention are the run folder's files, parsed; texts and attention are keyed by split.
    word_counts says how often each word occurred in the training targets, where the run kept it.
    """

    name: str
    folder: Path | None
    metrics: dict[str, Any]
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    texts: dict[str, Texts] = field(default_factory=dict)
    attention: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    word_counts: dict[str, int] | None = None

    @property
    def model(self) -> str:
        return str(self.metrics.get("model", "outside system" if self.folder is None else "?"))


@dataclass(frozen=True)
class Study:
    """Runs to compare, in order of their names, and what a reader should know of the folders that were left out."""

    runs: list[Run]
    notes: list[str]
    outside: dict[str, list[str]] = field(default_factory=dict)
    """Hypotheses of systems from elsewhere, by name; scored once the test set is known."""


def collect(folders: str | Path | Sequence[str | Path], systems: Mapping[str, str | Path] | None = None) -> Study:
    """Read run folders: the given folders themselves, or any folder below them that holds a run.

    Text files beside the runs, `NAME.hyp.txt` or `NAME.txt`, and the files named in `systems` are taken for outputs of
    other systems, one line a segment. Where there is no run, `SPLIT.src.txt` and `SPLIT.ref.txt` beside the
    hypotheses give the test set. Unfinished or damaged runs, missing files and unreadable text files beside the runs
    become notes. Raises UserError for a folder that is not there, for one with nothing to compare, and for a file of
    `systems` that is not there or unreadable.
    """
    roots = [Path(folders)] if isinstance(folders, str | Path) else [Path(folder) for folder in folders]
    runs: list[Run] = []
    notes: list[str] = []
    outside: dict[str, list[str]] = {}
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root} is not a folder; give a folder of runs, such as runs=runs")
        for folder in sorted(_run_folders(root)):
            run = _read_run(folder, root, notes)
            if run is not None:
                runs.append(run)
        if not _is_run(root):
            for name, file in hypothesis_files(root):
                try:
                    outside[name if name not in outside else str(file)] = _lines(file)
                except UserError as error:
                    notes.append(f"{name} was left out: {str(error).splitlines()[0]}")
            runs.extend(_bare_test_sets(root) if not runs else [])
    for name, path in (systems or {}).items():
        if not Path(path).is_file():
            raise UserError(f"the hypothesis file of {name} is not there: {path}")
        outside[name] = _lines(Path(path))
    if not runs:
        reason = "; ".join(notes) or "a run has config.yaml and metrics.json in its folder"
        raise UserError(f"no finished run in {', '.join(map(str, roots))}: {reason}")
    return Study(_with_unique_names(runs), notes, outside)


def _run_folders(root: Path) -> Iterator[Path]:
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
            if _is_run(here):
                folders.clear()
                yield here
            waiting += sorted(here / name for name in folders if (here / name).is_symlink())


def _is_run(folder: Path) -> bool:
    return (folder / "metrics.json").is_file() or (folder / "config.yaml").is_file()


def _read_run(folder: Path, root: Path, notes: list[str]) -> Run | None:
    name = str(folder.relative_to(root)) if folder != root else folder.resolve().name
    if not (folder / "metrics.json").is_file():
        notes.append(f"{name} is unfinished (no metrics.json) and was left out")
        return None
    metrics = _json(folder / "metrics.json", notes, name)
    if not isinstance(metrics, dict) or not metrics.get("splits"):
        notes.append(f"{name} has no scores in metrics.json and was left out; remove that, and its command scores it")
        return None
    texts, attention = {}, {}
    for split in metrics["splits"]:
        files = {kind: folder / f"{split}.{kind}.txt" for kind in ("src", "ref", "hyp")}
        missing = [path.name for path in files.values() if not path.is_file()]
        if missing:
            notes.append(f"{name} has no {', '.join(missing)}: no sentences, words or significance of {split} from it")
            continue
        lines = Texts(_lines(files["src"]), _lines(files["ref"]), _lines(files["hyp"]))
        if not len(lines.sources) == len(lines.references) == len(lines.hypotheses):
            notes.append(f"{name}: {split}.src.txt, .ref.txt and .hyp.txt differ in their number of lines; left unread")
            continue
        scored = metrics["splits"][split].get("bleu")
        if scored and (found := _other_score(lines, scored)):
            notes.append(
                f"{name}: {found}: {split}.hyp.txt or .ref.txt was changed since; its texts were left unread. Remove "
                "metrics.json, and its command scores it anew"
            )
            continue
        if not any(line.strip() for line in lines.references):
            notes.append(f"{name}: every reference of {split} is empty, so that its scores and lengths mean nothing")
        texts[split] = lines
        if (folder / f"{split}.attention.jsonl").is_file():
            attention[split] = list(_json_lines(folder / f"{split}.attention.jsonl", notes, name))
    history = folder / "history.jsonl"
    if not history.is_file():
        notes.append(f"{name} has no history.jsonl: no training curve from it")
    counts = folder / "word_counts.json"
    return Run(
        name=name,
        folder=folder,
        metrics=_finite(metrics),
        config=_config(folder / "config.yaml", notes, name),
        history=list(_json_lines(history, notes, name)) if history.is_file() else [],
        texts=texts,
        attention=attention,
        word_counts=_json(counts, notes, name) if counts.is_file() else None,
    )


def text_settings(signature: str) -> dict[str, Any]:
    """{"tokenize", "lowercase"}: how BLEU of this signature reads texts."""
    fields = signature_settings(signature)
    return {"tokenize": fields.get("tok", "13a"), "lowercase": fields.get("case") == "lc"}


def _other_score(texts: Texts, bleu: Mapping[str, Any]) -> str | None:
    """What the texts score, if not what metrics.json says of them: then they are not the texts that were scored."""
    metric = bleu_metric(**text_settings(bleu["signature"]))
    score = CorpusStatistics(metric, texts.hypotheses, texts.references).score()
    if abs(score - bleu["score"]) <= TOLERANCE:
        return None
    return f"metrics.json says BLEU {bleu['score']:.2f}, its texts have {score:.2f}"


def _bare_test_sets(root: Path) -> list[Run]:
    """A nameless run that only carries the test sets lying beside hypotheses."""
    texts = {}
    for path in sorted(root.glob("*.ref.txt")):
        split = path.name.removesuffix(".ref.txt")
        source = root / f"{split}.src.txt"
        if source.is_file():
            references = _lines(path)
            texts[split] = Texts(_lines(source), references, [])
    return [Run(name="", folder=None, metrics={"splits": {}}, texts=texts)] if texts else []


def hypothesis_files(root: Path) -> Iterator[tuple[str, Path]]:
    """The outputs of other systems beside the runs, by name."""
    for path in sorted(root.glob("*.txt")):
        if not path.name.endswith((".src.txt", ".ref.txt")):
            yield path.name.removesuffix(".txt").removesuffix(".hyp"), path


def _with_unique_names(runs: list[Run]) -> list[Run]:
    """Runs of several roots may share a name; then the whole path tells them apart."""
    names = [run.name for run in runs]
    return [
        Run(**{**run.__dict__, "name": str(run.folder)}) if names.count(run.name) > 1 and run.folder else run
        for run in runs
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


def _config(path: Path, notes: list[str], name: str) -> dict[str, Any]:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, OSError, ValueError) as error:
        notes.append(f"{name}: config.yaml cannot be read ({str(error).splitlines()[0]})")
        return {}


def _finite(value: Any) -> Any:
    """The same structure with None for NaN and infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

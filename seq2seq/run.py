"""The folder of one training: its layout, its settings and its scores. No other module spells these paths."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from seq2seq.errors import UserError
from seq2seq.files import InUse, atomic_write, hold

FORMAT = 2
"""Version of metrics.json. Files of version 0.1.0 have no format number and are read as well."""

TEXT_KINDS = ("src", "ref", "hyp")
"""Sources, references and hypotheses."""

OUTER = (
    "run_dir", "logger", "test_splits", "data.cache_dir", "trainer.threads", "trainer.log_every_n_steps",
    "trainer.progress", "trainer.samples", "trainer.save_minutes", "trainer.save_every_n_steps",
)  # fmt: skip
"""Keys that place, speed up or show a run without changing what is trained."""

PLACE = "data.root"
"""The key of a corpus's folder, which may move: a fingerprint identifies the content."""


class RunInUse(UserError):
    """Raised when another process trains in a run's folder."""


_LEFTOVERS = (".*.????????.tmp", ".bundle.????????", ".bundle.old.????????")
"""Names that an interrupted `atomic_write` or `new_folder` leaves behind."""


class Run:
    """One training's folder.

    config.yaml       settings                      metrics.json        scores, see `read_metrics`
    history.jsonl     one record a line             train.log           the log
    checkpoints/      last.ckpt, best.ckpt, averaged.ckpt, average/ (recent weights)
    bundle/           the exported model            tensorboard/, csv/  what `logger=` writes
    SPLIT.src.txt, SPLIT.ref.txt, SPLIT.hyp.txt, SPLIT.groups.json, SPLIT.attention.jsonl for each test set
    word_counts.json  frequencies of target words in training
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.settings_file = self.folder / "config.yaml"
        self.metrics_file = self.folder / "metrics.json"
        self.history = self.folder / "history.jsonl"
        self.log = self.folder / "train.log"
        self.bundle = self.folder / "bundle"
        self.word_counts = self.folder / "word_counts.json"
        self.checkpoints = self.folder / "checkpoints"
        self.last = self.checkpoints / "last.ckpt"
        self.best = self.checkpoints / "best.ckpt"
        self.averaged = self.checkpoints / "averaged.ckpt"
        self.recent_weights = self.checkpoints / "average"
        self._lock = self.folder / ".lock"

    @classmethod
    def containing(cls, checkpoint: str | os.PathLike[str]) -> list[Run]:
        """Runs that a path may belong to, nearest first: the folder itself if it is a run's, else a bundle, export or
        .ckpt file and the two folders around it."""
        path = Path(checkpoint).resolve()
        whole = any((path / part).is_dir() for part in ("bundle", "checkpoints"))
        return [cls(folder) for folder in ([path] if whole else [path, *path.parents[:2]])]

    @classmethod
    def scored(cls, checkpoint: str | os.PathLike[str]) -> Run | None:
        """The run of `containing` that has scores."""
        return next((run for run in cls.containing(checkpoint) if run.finished), None)

    def __fspath__(self) -> str:
        return str(self.folder)

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def finished(self) -> bool:
        """True once the run has been scored."""
        return self.metrics_file.is_file()

    @property
    def evaluation(self) -> str | None:
        """The checkpoint that the folder holds an evaluation of; None where it holds none. Raises as `read_metrics`."""
        return self.read_metrics().get("evaluated", {}).get("checkpoint") if self.finished else None

    @property
    def begun(self) -> bool:
        """True once there is something to resume from."""
        return self.finished or any(self.checkpoints.glob("*.ckpt"))

    @property
    def of_first_version(self) -> bool:
        """True if version 0.1.0 wrote config.yaml."""
        return self.settings_file.is_file() and "\ncallbacks:" in self.settings_file.read_text(encoding="utf-8")

    @property
    def started(self) -> float | None:
        """Time in seconds at which a process last took hold of the folder; None if none did."""
        return self._lock.stat().st_mtime if self._lock.exists() else None

    @property
    def exists(self) -> bool:
        """True where the folder looks like a run, finished or not."""
        return self.finished or self.settings_file.is_file()

    def check_no_training(self) -> None:
        """Raises UserError if the folder, where an evaluation would go, holds a training; or as `read_metrics`."""
        if self.bundle.exists() or any(self.checkpoints.glob("*")) or (self.exists and self.evaluation is None):
            raise UserError(
                f"output={self} is the folder of a run, whose files belong to its training\n"
                f"Give another folder, such as output={self.folder / 'evaluation'}"
            )

    def text(self, split: str, kind: str) -> Path:
        """The file with a test set's texts of one of `TEXT_KINDS`."""
        return self.folder / f"{split}.{kind}.txt"

    def groups(self, split: str) -> Path:
        """The group number of each segment of a joined test set."""
        return self.folder / f"{split}.groups.json"

    def attention(self, split: str) -> Path:
        """Attention weights over some segments of a test set."""
        return self.folder / f"{split}.attention.jsonl"

    def sources(self) -> Path | None:
        """The source texts of the first test set, or None."""
        return min(self.folder.glob("*.src.txt"), default=None)

    def read_settings(self) -> dict[str, Any]:
        """Load config.yaml, in the current form.

        Raises:
            UserError: it is damaged.
            OSError: it is not there.
        """
        try:
            settings = yaml.safe_load(self.settings_file.read_text(encoding="utf-8"))
            if not isinstance(settings, dict):
                raise ValueError("it holds no settings")
        except (yaml.YAMLError, ValueError) as error:
            raise UserError(
                f"{self.settings_file} is damaged: {' '.join(str(error).split())}\nGive another run_dir=."
            ) from error
        return upgraded_settings(settings)

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        with atomic_write(self.settings_file) as stream:
            yaml.safe_dump(dict(settings), stream, sort_keys=False, allow_unicode=True)

    def read_metrics(self) -> dict[str, Any]:
        """Load metrics.json: "format", "system", "study", "seed", "training", "splits" and more.

        Raises:
            UserError: it is damaged, or of a newer format.
            OSError: it is not there.
        """
        try:
            metrics = json.loads(self.metrics_file.read_text(encoding="utf-8"))
            if not isinstance(metrics, dict) or not {"training", "splits"} <= metrics.keys():
                raise ValueError("it holds no scores")
        except ValueError as error:
            raise UserError(
                f"{self.metrics_file} is damaged: {' '.join(str(error).split())}\n"
                "Remove it, and seq2seq train with the run's settings scores the run again."
            ) from error
        if metrics.get("format", 1) not in (1, FORMAT):
            raise UserError(
                f"{self.metrics_file} has format {metrics['format']}, and this version reads up to {FORMAT}\n"
                "Use the version of seq2seq that wrote it, or a newer one."
            )
        return _upgraded(metrics, self.folder.resolve())

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        with atomic_write(self.metrics_file) as stream:
            json.dump({"format": FORMAT, **metrics}, stream, indent=1, ensure_ascii=False)
            stream.write("\n")

    @contextmanager
    def held(self, key: str = "run_dir") -> Iterator[None]:
        """Keep the folder for this process; other processes that ask are refused. The kernel drops the lock with the
        process, so one that is killed leaves none behind. key: the one that names the folder.

        Raises:
            RunInUse: another process holds it.
            UserError: it cannot be written.
        """
        path = self._lock
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = hold(path)
        except InUse:
            owner = ""
            with suppress(OSError):
                owner = path.read_text(encoding="utf-8").strip()
            raise RunInUse(
                f"{self} is in use by {owner or 'another process'}\n"
                f"Wait until it ends, stop it, or give another {key}=."
            ) from None
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}\nGive another {key}=.") from error
        with lock:
            with suppress(OSError):
                lock.truncate(0)
                lock.write(f"process {os.getpid()} on {platform.node()}\n".encode())
            yield

    def remove_leftovers(self) -> None:
        """Remove what a killed process had half written. Only for the process that holds the folder."""
        for place in (self.folder, self.checkpoints, self.recent_weights):
            for pattern in _LEFTOVERS:
                for path in place.glob(pattern):
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink(missing_ok=True)


def checkpoint_name(path: str | Path) -> str:
    """The name of a checkpoint for people: its run's folder, or its own name where it lies outside a run."""
    path = Path(path).resolve()
    if path.suffix == ".ckpt":
        path = path.parent if path.parent.name == "checkpoints" else path.with_suffix("")
    return path.parent.name if path.name in ("bundle", "checkpoints") and path.parent.name else path.name


def _upgraded(metrics: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Metrics in the current format. Version 0.1.0 wrote neither system nor study: the folder's name has both, or where
    that is the seed alone, its parent's."""
    if "format" in metrics:
        return metrics
    own = rf"(^|[-_/])seed[-_=]?{re.escape(str(metrics.get('seed')))}(?![^-_/])"
    system, found = re.subn(own, "", folder.name, count=1)
    if not found:
        system = re.sub(r"[-_/]?seed[-_=]?\d+$", "", folder.name)
    system = system.lstrip("-_/").removesuffix(f"-{metrics.get('data')}") or folder.parent.name or folder.name
    return {"format": FORMAT, "system": system, "study": None, **metrics}


_CORPORA = {
    "GrammarCorpus": "grammar",
    "FilesCorpus": "files",
    "HubCorpus": "hub",
    "multi30k": "multi30k",
    "bible": "bible",
}


def upgraded_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in the current form. Version 0.1.0 had a group `callbacks`, which is part of `trainer` now, and repeated
    the keys of `data` for the corpus in `data.corpus`."""
    found = dict(settings)
    if isinstance(callbacks := found.pop("callbacks", None), Mapping):
        found["trainer"] = {**found.get("trainer", {}), **_without_target(callbacks)}
        found["trainer"]["_target_"] = "seq2seq.training.settings.TrainerSettings"
    data = found.get("data")
    if isinstance(data, Mapping) and isinstance(corpus := data.get("corpus"), Mapping):
        name = str(corpus.get("_target_")).rpartition(".")[2]
        values = _without_target(corpus)
        splits = values.pop("splits", {})
        if "path" in values:
            values["root"] = values.pop("path")
        common = ("concatenation", "max_length", "length_ratio", "max_tokens", "max_sentences", "pad_to_multiple_of",
                  "pin_memory", "streaming", "cache_dir")  # fmt: skip
        own = {key: data[key] for key in common if key in data}
        found["data"] = {"corpus": _CORPORA.get(name, name), **own, **values, **splits}
    return found


def _without_target(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key != "_target_"}

"""A run's folder: its name, its configuration, and whether a second start may go on in it."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from seq2seq.commands.choices import config_dir, flat_keys
from seq2seq.commands.config_check import locate
from seq2seq.commands.workers import leading
from seq2seq.errors import UserError
from seq2seq.files import InUse, atomic_write, hold
from seq2seq.report.configurations import OUTER, PLACES
from seq2seq.run import checkpoint_name

NEUTRAL = (
    *OUTER, *PLACES, "dry_run", "trainer.max_time", "trainer.max_steps", "trainer.max_epochs",
    "trainer.validation_tokens", "callbacks.patience",
)  # fmt: skip
"""Keys that may differ when a run is taken up again: they change where, how long or how it is shown, not what is learnt
until the old end (but for the last bits, by the number of threads). A schedule that follows a budget holds that budget
in its own keys. Where a corpus lies is among them: what is in it has a fingerprint."""

LEFT_OVER = ".*.????????.tmp"
"""What `atomic_write` leaves behind when it is killed."""


LONGEST_NAME = 160
"""Characters of a folder's name that come from a sweep; what is longer ends in a digest of the whole."""


def run_dir(config: DictConfig, choices: dict[str, Any], overrides: list[str], sweep: bool) -> Path:
    """`run_dir=` if given, else runs/<experiment>-seed<n> or runs/<recipe or model>-<data>-seed<n>; from a checkpoint
    runs/<experiment or data>-seed<n>-from-<checkpoint>. Under -m the swept overrides follow."""
    if config.run_dir is not None:
        return named(config.run_dir)
    start = "" if config.checkpoint is None else f"-from-{checkpoint_name(Path(config.checkpoint))}"
    group = "recipe" if choices.get("recipe") else "model"
    name = choices.get("experiment") or (choices["data"] if start else f"{choices[group]}-{choices['data']}")
    name = f"{name}-seed{config.seed}{start}"
    if sweep:
        own = {"experiment", "seed", "data.root", "checkpoint"}
        own |= set() if choices.get("experiment") else {"data"} if start else {"data", group}
        name += "".join(f"-{text.replace('/', '.')}" for text in overrides if text.split("=")[0] not in own)
        if len(name) > LONGEST_NAME:
            name = f"{name[: LONGEST_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return Path("runs") / name


def named(run_dir: str) -> Path:
    """Raises UserError for no name, or one that a configuration would take for a reference."""
    if not run_dir:
        raise UserError("run_dir= is empty\nGive a folder, or leave it out.")
    if "${" in run_dir:
        raise UserError(f"run_dir={run_dir}: a folder's name must not hold ${{\nGive another run_dir=.")
    return Path(run_dir)


def plain(config: DictConfig) -> dict[str, Any]:
    """The resolved configuration without what belongs to Hydra."""
    container = OmegaConf.to_container(config, resolve=True)
    assert isinstance(container, dict)
    container.pop("hydra", None)
    return {str(key): value for key, value in container.items()}


def finished(folder: Path) -> bool:
    return (folder / "metrics.json").is_file()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep `folder` for this process: others that train or compare in it are refused, and write nothing. A process that
    is killed leaves no lock behind. Of the processes of one training the first holds it for all.

    Raises:
        UserError: it is in use, or cannot be written.
    """
    if not leading():
        yield
        return
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = hold(path)
    except InUse:
        owner = ""
        with suppress(OSError):
            owner = path.read_text(encoding="utf-8").strip()
        raise UserError(
            f"{folder} is in use by {owner or 'another process'}\nWait for its end, stop it, or give another run_dir=."
        ) from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}\nGive another run_dir=.") from error
    with lock:
        with suppress(OSError):
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {platform.node()}\n".encode())
            lock.flush()
        yield


def remove_left_overs(folder: Path) -> None:
    """Remove what a killed process had half written in a run's folder. Only for who holds it."""
    for place in (folder, folder / "checkpoints", folder / "checkpoints" / "average"):
        for path in place.glob(LEFT_OVER):
            if path.is_file():
                path.unlink(missing_ok=True)
    for pattern in (".bundle.????????", ".bundle.old.????????"):
        for path in folder.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)


def check_same(folder: Path, config: dict[str, Any]) -> None:
    """Raises UserError if `folder` holds a run, with a checkpoint at least, whose settings differ in keys that change
    the result."""
    path = folder / "config.yaml"
    begun = finished(folder) or any((folder / "checkpoints").glob("*.ckpt"))
    if begun and path.is_file() and (different := differences(read_settings(path), config)):
        raise UserError(
            f"{folder} holds a run with other settings: {'; '.join(different[:4])}\n"
            "Give the same settings to go on, or another run_dir= to start anew."
        )


def claim(folder: Path, config: dict[str, Any]) -> None:
    """Make `folder` the run of `config`. Raises UserError as `check_same` does."""
    check_same(folder, config)
    path = folder / "config.yaml"
    if not path.is_file() or read_settings(path) != config:
        try:
            with atomic_write(path) as stream:
                yaml.safe_dump(config, stream, sort_keys=False, allow_unicode=True)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}\nGive another run_dir=.") from error


def read_settings(path: Path) -> dict[str, Any]:
    """A run's config.yaml. Raises UserError if it is damaged."""
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged: {' '.join(str(error).split())}\nGive another run_dir=.") from error
    if not isinstance(settings, dict):
        raise UserError(f"{path} is damaged: it holds no settings\nGive another run_dir=.")
    return settings


def read_metrics(path: Path) -> dict[str, Any]:
    """A finished run's metrics.json. Raises UserError if it is damaged."""
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(metrics, dict) or not {"training", "splits"} <= metrics.keys():
            raise ValueError("it holds no scores")
    except ValueError as error:
        raise UserError(
            f"{path} is damaged: {' '.join(str(error).split())}\n"
            "Remove it, and seq2seq train with the run's settings scores the run again."
        ) from error
    return metrics


def write_metrics(path: Path, metrics: dict[str, Any]) -> None:
    with atomic_write(path) as stream:
        json.dump(metrics, stream, indent=1, ensure_ascii=False)
        stream.write("\n")


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """`key: old -> new` for every key that differs and is not neutral. Older runs lack younger keys: those stand for
    their defaults."""
    found = []
    present = {*flat_keys(old)}
    for key in sorted({*present, *flat_keys(new)}):
        before, after = _value(old, key) if key in present else _default(new, key), _value(new, key)
        if (
            isinstance(before, dict)
            or isinstance(after, dict)
            or any(key == name or key.startswith(f"{name}.") for name in NEUTRAL)
        ):
            continue
        if before != after and not (key == "checkpoint" and _one_place(before, after)):
            found.append(f"{key}: {' -> '.join(json.dumps(one, ensure_ascii=False) for one in (before, after))}")
    return found


def _one_place(before: Any, after: Any) -> bool:
    return None not in (before, after) and Path(before).resolve() == Path(after).resolve()


def _default(config: dict[str, Any], key: str) -> Any:
    """Of a key in `config`: what conf/ has for every training or every corpus, else what its node's class has."""
    path, _, name = key.rpartition(".")
    common = {"": "train.yaml", "data": "data/common/base.yaml"}.get(path)
    if common is not None:
        values: Any = OmegaConf.to_container(OmegaConf.load(config_dir() / common))
        return values.get(name)
    node = _value(config, path)
    target = node.get("_target_") if isinstance(node, dict) else None
    parameter = inspect.signature(locate(target, path)).parameters.get(name) if target else None
    return None if parameter is None or parameter.default is parameter.empty else parameter.default


def _value(config: dict[str, Any], key: str) -> Any:
    node: Any = config
    for name in key.split("."):
        if not isinstance(node, dict) or name not in node:
            return None
        node = node[name]
    return node


def provenance() -> dict[str, Any]:
    """What produced a result: package versions, git commit, machine and time."""
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "commit": _commit(),
        "machine": f"{platform.machine()}, {platform.system()}",
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _versions() -> dict[str, str]:
    names = ("seq2seq", "torch", "lightning", "hydra-core", "sentencepiece", "datasets", "sacrebleu")
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _commit() -> str | None:
    """The checkout's commit, marked `+` when files differ from it; None outside a checkout."""
    here = Path(__file__).parents[2]
    if not (here / ".git").exists():
        return None
    try:
        commit, changes = (
            subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changes else "")

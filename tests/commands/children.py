"""A program that runs command lines in forked children, to be killed, stopped, starved of disk, or started twice. Works
in the current folder and prints what became of them.

One process imports everything once; each child starts from there as a fresh `seq2seq` would.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import seq2seq.pipeline.dry_run
import seq2seq.training.loop
from seq2seq.cli import run
from seq2seq.commands import compare
from seq2seq.commands.arguments import quoted
from seq2seq.data import preparation
from seq2seq.data.grammar import corpus as grammar
from seq2seq.pipeline import train as pipeline_train

LOADED = (seq2seq.pipeline.dry_run, seq2seq.training.loop)
SMALL = [
    "data.sizes={train: 300, valid: 14, test: 14}",
    "data.maximum_words=20",
    "data.cache_dir=cache",
    "tokenizer.vocabulary=600",
    "model.width=16",
    "model.embedding_width=16",
    "trainer.max_steps=12",
    "trainer.val_check_interval=4",
    "trainer.threads=1",
    "trainer.save_every_n_steps=2",
    "trainer.patience=null",
    "search=greedy",
    "search.max_length_b=2",
]
TRAIN = ["train", "model=rnn", *SMALL, "run_dir=run"]
ENDLESS = [*TRAIN, "trainer.max_steps=1000000"]
LAST = Path("run/checkpoints/last.ckpt")
STUDY = 'it\'s a = b, {study} $x "ü" [1]'
COMPARE = ["compare", "models=[rnn,bahdanau]", *SMALL]


@dataclass
class Child:
    number: int
    talk: Path

    def end(self) -> dict[str, Any]:
        status = os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])
        return {"status": status, "said": self.talk.read_text()}

    def kill(self, number: int = signal.SIGKILL) -> dict[str, Any]:
        os.kill(self.number, number)
        return self.end()


talks = iter(range(10**6))


def start(arguments: Sequence[str], before: Callable[[], Any] = lambda: None) -> Child:
    """The command in a child of its own, after `before()`."""
    talk = Path(f"talk-{next(talks)}")
    number = os.fork()
    if number:
        return Child(number, talk)
    status = 1
    try:
        stream = os.open(talk, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        before()
        status = run(list(arguments))
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException as error:
        print("Traceback:", repr(error), file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def until(condition: Callable[[], bool], child: Child | None = None) -> None:
    """Wait for it. A child that must bring it about must not have ended."""
    while not condition():
        if child and os.waitid(os.P_PID, child.number, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            raise AssertionError(child.talk.read_text())
        time.sleep(0.01)


def changed(path: Path) -> Callable[[], bool]:
    """Return a test of whether the file has been written since now."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    return lambda: path.exists() and path.stat().st_mtime_ns > before


def contents(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def sleep_in(holder: Any, name: str) -> None:
    """The next call of `holder.name` says so by a file and lasts for ever."""

    def sleep(*_: Any, **__: Any) -> None:
        Path("asleep").touch()
        time.sleep(600)

    setattr(holder, name, sleep)


def stopped_in(holder: Any, name: str) -> dict[str, Any]:
    """SIGTERM while the training is in a part that is no training."""
    Path("asleep").unlink(missing_ok=True)
    child = start(TRAIN, lambda: sleep_in(holder, name))
    until(Path("asleep").exists, child)
    return child.kill(signal.SIGTERM)


def one_run() -> dict[str, Any]:
    """All that can befall one training, one after the other."""
    found: dict[str, Any] = {}
    for name, place in {
        "corpus": (grammar.GrammarCorpus, "load"),
        "tokenizer": (preparation, "train_tokenizer"),
        "ids": (preparation, "_encode"),
    }.items():
        found[f"stopped in {name}"] = stopped_in(*place)

    written = changed(LAST)
    owner = start(ENDLESS)
    until(written, owner)
    os.kill(owner.number, signal.SIGSTOP)
    before = contents("run")
    found["second start"] = start(TRAIN).end()
    found["second start wrote"] = sorted({*contents("run").items()} ^ {*before.items()})
    os.kill(owner.number, signal.SIGCONT)

    resource.prlimit(owner.number, resource.RLIMIT_FSIZE, (10_000, 10_000))
    found["full disk"] = owner.end()

    written = changed(LAST)
    owner = start(ENDLESS)
    until(written, owner)
    found["killed"] = owner.kill()
    (LAST.parent / ".last.ckpt.abc.tmp").write_text("half a checkpoint")

    content = LAST.read_bytes()
    LAST.unlink()
    LAST.write_bytes(content[:-100])
    found["stopped in scoring"] = stopped_in(pipeline_train, "score_split")
    written = changed(LAST)
    found["last start"] = start(TRAIN).end()
    found["trained again"] = written()
    found["once more"] = start(TRAIN).end()
    return found


def launching(checked: bool = True) -> None:
    """A comparison says by a file that it begins to train. Its settings are checked only where asked."""
    launch = compare.Jobs.launch

    def announced(self: compare.Jobs, *arguments: Any) -> list[compare.Ended]:
        Path("launched").touch()
        return launch(self, *arguments)

    compare.Jobs.launch = announced
    if not checked:
        compare.Jobs.check = lambda self, name, overrides: None


def comparison(kills: int = 10) -> dict[str, Any]:
    """A comparison that is killed at random moments, beside one that is not. Its settings are checked once only."""
    launched = changed(Path("launched"))
    child = start([*COMPARE, "run_dir=whole"], launching)
    until(launched, child)
    began = time.monotonic()
    found: dict[str, Any] = {"whole": child.end()}
    whole = time.monotonic() - began
    chance = random.Random(5)
    command = [*COMPARE, f"run_dir={quoted(STUDY)}"]
    codes = []
    for _ in range(kills):
        launched = changed(Path("launched"))
        child = start(command, lambda: launching(checked=False))
        until(launched, child)
        time.sleep(whole * chance.uniform(0, 0.1))
        codes.append(child.kill()["status"])
    found["killed"] = codes
    found["last start"] = start(command).end()
    return found


def shared() -> dict[str, Any]:
    """Three starts of one comparison: the first is held up in its first training while the second ends, and a
    third, which asks for that training as the baseline."""
    command = [*COMPARE, "run_dir=shared"]
    written = changed(Path("shared/rnn-seed1/checkpoints/last.ckpt"))
    first = start(command)
    until(written, first)
    os.kill(first.number, signal.SIGSTOP)
    second = start(command).end()
    third = start([*command, "baseline=rnn"]).end()
    trained = contents("shared/bahdanau-seed1")
    reported = json.loads(Path("shared/report.json").read_text())
    os.kill(first.number, signal.SIGCONT)
    ended = first.end()
    return {
        "first": ended,
        "second": second,
        "third, against the first's": third,
        "trained twice": contents("shared/bahdanau-seed1") != trained,
        "reports": [
            [system["name"] for system in report["systems"]]
            for report in (reported, json.loads(Path("shared/report.json").read_text()))
        ],
    }


def failing() -> dict[str, Any]:
    """Nothing is left of the data of two of three systems."""
    systems = "systems={rnn: ['data.max_length=1'], bahdanau: ['data.max_length=2']}"
    command = [*COMPARE, "models=[rnn,luong,bahdanau]", systems, "run_dir=failing"]
    return start(command).end()


def owner_of(folder: Path) -> int:
    return int((folder / ".lock").read_text().split()[1])


def ended_by(number: int) -> dict[str, Any]:
    """A signal to a comparison that waits for two workers of the joblib launcher; then the workers end too."""
    study = f"signal-{number}"
    joblib = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "trainer.max_steps=1000000", f"run_dir={study}"]
    folders = [Path(f"{study}/{name}-seed1") for name in ("rnn", "bahdanau")]
    written = [changed(folder / "checkpoints/last.ckpt") for folder in folders]
    child = start([*COMPARE, *joblib])
    until(lambda: all(one() for one in written), child)
    numbers = [owner_of(folder) for folder in folders]
    ended = child.kill(number)
    until(lambda: not any(Path(f"/proc/{number}").exists() for number in numbers))
    return {**ended, "said": child.talk.read_text()}


def several_processes() -> dict[str, Any]:
    command = [sys.executable, "-m", "seq2seq", *TRAIN, "trainer.devices=2", "trainer.strategy=ddp"]
    done = subprocess.run([*command, "-m", "run_dir=first,second"], capture_output=True, text=True)
    return {"status": done.returncode, "said": done.stderr}


if __name__ == "__main__":
    torch.set_num_threads(1)
    scenarios = {
        "one run": one_run,
        "comparison": comparison,
        "shared": shared,
        "failing": failing,
        "SIGTERM": lambda: ended_by(signal.SIGTERM),
        "SIGINT": lambda: ended_by(signal.SIGINT),
        "SIGKILL": lambda: ended_by(signal.SIGKILL),
        "several processes": several_processes,
    }
    print(json.dumps({name: scenarios[name]() for name in sys.argv[1:] or scenarios}))

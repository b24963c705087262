"""Start-up times: help, the first update of a cached corpus, the first translation.

From the moment the command is started to the moment its effect can be seen from outside: `seq2seq --help` has ended;
`seq2seq train` has written the first line of history.jsonl (trainer.log_every_n_steps=1; then it is killed);
`seq2seq translate` has printed the translation of its first line. The corpus is in the cache and the programs in the
system's file cache: --uncounted starts of each go before. The model is freshly initialized (or --checkpoint).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import decoding
from benchmarks.process import MeasurementFailed, environment, fresh
from benchmarks.record import markdown, spread

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

OUTPUT = Path("runs/benchmark/startup.json")
PROGRAM = [sys.executable, "-m", "seq2seq"]
SENTENCE = "The man sees the dog."
LIMIT = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of `seq2seq train`")
    parser.add_argument("--checkpoint", help="a run, bundle or .ckpt to translate with, instead of initial weights")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N")
    parser.add_argument("--uncounted", type=int, default=1, metavar="N", help="starts that are not counted")


def run(options: argparse.Namespace) -> dict[str, Any]:
    fresh("training.prepare", {"overrides": options.overrides})
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = options.checkpoint
        if checkpoint is None:
            settings = {"folder": folder, "overrides": options.overrides, "checkpoint": None, "input": None}
            fresh("decoding.prepare", {**settings, "exported": False})
            checkpoint = str(Path(folder) / decoding.BUNDLE)
        events: dict[str, Callable[[], float]] = {
            "seq2seq --help": help_shown,
            "first update": lambda: first_update(options.overrides),
            "first translation": lambda: first_translation(checkpoint),
        }
        seconds: dict[str, list[float]] = {name: [] for name in events}
        for _ in range(options.uncounted + options.repetitions):
            for name, event in events.items():
                seconds[name].append(event())
    seconds = {name: values[options.uncounted :] for name, values in seconds.items()}
    rows = [(name, spread(values)) for name, values in seconds.items()]
    table = markdown(
        ("from the command to", "seconds", "min", "max"),
        [(name, values["median"], values["minimum"], values["maximum"]) for name, values in rows],
    )
    return {"seconds": seconds, "summary": dict(rows), "table": table}


def help_shown() -> float:
    began = time.perf_counter()
    subprocess.run([*PROGRAM, "--help"], env=environment(), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def first_update(overrides: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        history = Path(folder) / "run" / "history.jsonl"
        own = [f"run_dir='{history.parent}'", "trainer.log_every_n_steps=1"]
        began = time.perf_counter()
        with subprocess.Popen(
            [*PROGRAM, "train", *overrides, *own],
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                while time.perf_counter() - began < LIMIT:
                    if history.is_file() and history.stat().st_size:
                        return time.perf_counter() - began
                    if process.poll() is not None:
                        assert process.stderr is not None
                        raise MeasurementFailed(f"seq2seq train ended early: {process.stderr.read().strip()}")
                    time.sleep(0.005)
                raise MeasurementFailed(f"seq2seq train: no update in {LIMIT:.0f} s")
            finally:
                process.kill()


def first_translation(checkpoint: str) -> float:
    began = time.perf_counter()
    with subprocess.Popen(
        [*PROGRAM, "translate", f"checkpoint='{checkpoint}'"],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(SENTENCE + "\n")
        process.stdin.close()
        line = process.stdout.readline()
        seconds = time.perf_counter() - began
        if not line.endswith("\n"):
            raise MeasurementFailed(f"seq2seq translate ended early: {process.stderr.read().strip()}")
    return seconds

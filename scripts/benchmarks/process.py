"""A measurement in a fresh process, and what a process knows of itself."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1]


class MeasurementFailed(Exception):
    """A measuring process ended with an error, which it has printed."""


def environment() -> dict[str, str]:
    """This process's environment, in which `seq2seq` and `benchmarks` can be imported."""
    paths = [str(SCRIPTS.parent), str(SCRIPTS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def fresh(
    function: str, settings: dict[str, Any], python: str | Path = sys.executable, log: Path | None = None
) -> dict[str, Any]:
    """Call `benchmarks.<module>.<function>(settings)` in a new process; what it returns. Plain values both ways.

    python: the interpreter, if not this one. log: a file for what the process prints, which goes to standard error
    otherwise.

    Raises:
        MeasurementFailed: it ended with an error.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        result = Path(folder) / "result.json"
        output: Any = sys.stderr.fileno() if _has_descriptor() else subprocess.DEVNULL
        if log:
            output = stack.enter_context(open(log, "w", encoding="utf-8"))
        done = subprocess.run(
            [str(python), "-m", "benchmarks.process", function, str(result)],
            input=json.dumps(settings),
            text=True,
            env=environment(),
            stdout=output,
            stderr=output if log else None,
        )
        if done.returncode or not result.is_file():
            status = f"{function} failed (status {done.returncode})"
            if log:
                printed = last_line(log.read_text(encoding="utf-8", errors="replace"))
                raise MeasurementFailed(f"{status}: {printed} (see {log})")
            raise MeasurementFailed(f"{status}: {settings}")
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return found


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "nothing printed")


def _has_descriptor() -> bool:
    try:
        return sys.stderr.fileno() >= 0
    except (OSError, ValueError, AttributeError):
        return False


def peak_memory_mb() -> float:
    """Most resident memory of this process so far, in MB of 2^20 bytes.

    Linux hands the high-water mark of getrusage on to the programs that a process starts, so the process's own is read.
    """
    own = memory_mb().get("VmHWM")
    if own is not None:
        return own
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def memory_mb() -> dict[str, float]:
    """VmHWM (peak), VmRSS, RssAnon (own) and RssFile (of mapped files), where the system reports them."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines)
    wanted = ("VmHWM:", "VmRSS:", "RssAnon:", "RssFile:")
    return {row[0][:-1]: round(int(row[1]) / 1024, 1) for row in fields if row and row[0] in wanted}


def call() -> int:
    """The measuring process: function and result file as arguments, settings on standard input."""
    from seq2seq.errors import UserError

    _, function, result = sys.argv
    module, _, name = function.rpartition(".")
    try:
        found = getattr(import_module(f"benchmarks.{module}"), name)(json.load(sys.stdin))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    Path(result).write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(call())

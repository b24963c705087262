"""The toolkits that `benchmark.py rivals` measures beside ours: their virtual environments and their drivers.

A driver runs in its toolkit's environment, which has no seq2seq: it imports nothing but the standard library, the
toolkit and `benchmarks.process`. Its functions take and return plain values: `save(job)` writes a model with (nearly)
initial weights into job["folder"], `train(job)` and `decode(job)` measure.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.process import MeasurementFailed, last_line

INSTALLED = "installed.json"


@dataclass(frozen=True)
class Toolkit:
    """package: with its version. driver: a module here. needs: what it imports; its own list asks for an older torch
    or for much that is not used here. torch: if it computes with torch. models: those that it can build."""

    package: str
    driver: str
    needs: str
    torch: bool = True
    models: tuple[str, ...] = ("T", "B128")


TOOLKITS = {
    "opennmt": Toolkit(
        "OpenNMT-py==3.5.1", "opennmt", "configargparse numpy pyonmttok>=1.38,<2 pyyaml rapidfuzz sacrebleu"
    ),
    "eole": Toolkit(
        "eole==0.6.4",
        "opennmt",
        "aiohttp fastapi huggingface-hub numpy pillow pydantic>=2 pyonmttok>=1.38,<2 pyyaml requests rich sacrebleu "
        "safetensors sentencepiece<=0.2.2 six tokenizers torch-optimi uvicorn",
    ),
    "marian": Toolkit("pymarian==1.12.42", "marian", "numpy", torch=False, models=("T",)),
}


def python_of(folder: Path) -> Path:
    return folder.absolute() / "bin" / "python"


def install(name: str, folder: Path) -> dict[str, str]:
    """Make a toolkit's environment in `folder`, unless it is there; the versions of the toolkit and of its torch.

    Raises:
        MeasurementFailed: pip found no build for this Python, or has no network.
    """
    toolkit, python, marker = TOOLKITS[name], python_of(folder), folder / INSTALLED
    torch = [f"torch=={version('torch').partition('+')[0]}"] if toolkit.torch else []
    wanted = [toolkit.package, *torch, *toolkit.needs.split()]
    if not marker.is_file() or json.loads(marker.read_text(encoding="utf-8"))["wanted"] != wanted:
        print(f"installing {toolkit.package} into {folder}", file=sys.stderr)
        if not python.exists():
            _quietly([sys.executable, "-m", "venv", str(folder)])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
        _quietly([*pip, "--no-deps", toolkit.package])
        _quietly([*pip, *wanted[1:]])
        marker.write_text(json.dumps({"wanted": wanted}), encoding="utf-8")
    packages = [toolkit.package.partition("==")[0], *(["torch"] if toolkit.torch else [])]
    code = "import json, sys; from importlib.metadata import version as v; print(json.dumps([*map(v, sys.argv[1:])]))"
    return dict(zip(packages, json.loads(_quietly([str(python), "-c", code, *packages])), strict=True))


def _quietly(command: list[str]) -> str:
    """Standard output of a command that must succeed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise MeasurementFailed(str(error)) from error
    if done.returncode:
        raise MeasurementFailed(last_line(done.stderr))
    return done.stdout

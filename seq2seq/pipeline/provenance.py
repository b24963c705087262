"""Record of what produced a result."""

from __future__ import annotations

import platform
import re
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("seq2seq", "torch", "lightning", "hydra-core", "sentencepiece", "datasets", "sacrebleu")


def provenance() -> dict[str, Any]:
    """Record what produced a result: package versions, git commit, machine and time."""
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "commit": _commit(),
        "machine": ", ".join(filter(None, (processor(), platform.machine(), platform.system()))),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


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


def processor() -> str:
    """Name the processor as the system does; empty where it does not."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.processor()

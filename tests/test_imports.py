"""Imports go one way, heavy libraries are imported only where they belong, and light commands stay light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "seq2seq"
LAYERS = [
    {"__main__"},
    {"cli"},
    {"commands"},
    {"serving"},
    {"report"},
    {"pipeline"},
    {"export"},
    {"inference", "training"},
    {"evaluation", "search", "models", "data"},
    {"attention"},
    {"layers"},
    {"kernels"},
    {"run", "interfaces", "errors", "files"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Dotted names of the modules that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield str(node.module)


def part(name: str) -> str | None:
    pieces = name.split(".")
    return pieces[1] if pieces[0] == "seq2seq" and len(pieces) > 1 else None


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if own == "__init__":
        return
    for name in imports(path):
        other = part(name)
        if other is not None and other != own:
            neighbors = RANK[own] == RANK[other] and LAYERS[RANK[own]] == LAYERS[-1]
            assert RANK[own] < RANK[other] or neighbors, f"{own} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_frameworks_are_imported_only_where_they_belong(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    names = {name.split(".")[0] for name in imports(path)}
    if relative.parts[0] not in ("commands", "cli.py"):
        assert not names & {"hydra", "omegaconf"}
    if relative.parts[0] not in ("commands", "training"):
        assert not names & {"lightning", "pytorch_lightning"}
    if relative.parts[0] in ("models", "attention", "layers", "search"):
        assert names <= {"torch", "numpy", "seq2seq"} | set(sys.stdlib_module_names)


def loaded_after(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    return set(
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    )


def test_help_imports_no_heavy_library() -> None:
    code = (
        "import contextlib, io; from seq2seq.cli import run\n"
        "with contextlib.redirect_stdout(io.StringIO()): run(['--help'])"
    )
    assert not loaded_after(code) & {"torch", "hydra", "lightning", "datasets", "numpy"}


@pytest.mark.slow
def test_translator_imports_no_training_library() -> None:
    heavy = {"lightning", "datasets", "hydra", "matplotlib", "pandas", "tensorboard", "sacrebleu"}
    assert not loaded_after("from seq2seq import Translator") & heavy

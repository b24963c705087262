"""Standard streams that are closed or not UTF-8, and Ctrl-C while a command is starting."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.fork, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def shell(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash; `$PYTHON -m seq2seq` in it is the package."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable, **environment}
    return subprocess.run(["bash", "-c", line], cwd=folder, env=variables, capture_output=True, timeout=300)


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
    ids=["latin-1", "ascii"],
)
def test_both_streams_are_utf8_in_any_locale(environment: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys; from seq2seq.commands.console import prepare_streams; prepare_streams(); "
        "print('\\u0159\\u2581'); print('\\u0159\\udcff', file=sys.stderr); print('\\udcff')"
    )
    done = shell(f'$PYTHON -c "{code}"', tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "\u0159\u2581\n".encode() + b"\xff\n"
    assert done.stderr == "\u0159\\udcff\n".encode()


@pytest.mark.parametrize(("variables", "lost"), [({"PYTHONUNBUFFERED": "1"}, b""), ({}, b"out ")])
def test_streams_stay_as_buffered_as_they_were(variables: dict[str, str], lost: bytes, tmp_path: Path) -> None:
    code = (
        "import os, sys; from seq2seq.commands.console import prepare_streams; prepare_streams(); "
        "print('error', file=sys.stderr); print('out', end=' '); os._exit(0)"
    )
    variables = {"PYTHONUNBUFFERED": "", **variables}
    done = shell(f'$PYTHON -c "{code}"', tmp_path, **variables)
    assert (done.stdout + lost, done.stderr) == (b"out ", b"error\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("translate checkpoint=run output=out.txt <&-", b"standard input is closed\nGive input=FILE."),
        ("translate checkpoint=run input=in.txt >&-", b"standard output is closed\nGive output=FILE."),
        ("score checkpoint=run sources=a translations=b >&-", b"standard output is closed"),
        ("evaluate checkpoint=run >&-", b"standard output is closed\nGive output=DIR."),
    ],
)
def test_a_closed_stream_that_is_needed_is_named(line: str, message: bytes, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "in.txt").touch()
    done = shell(f"$PYTHON -m seq2seq {line}", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: " + message), done.stderr


def test_a_closed_standard_error_is_no_reason_to_stop(tmp_path: Path) -> None:
    code = (
        "import sys; from seq2seq.commands.console import prepare_streams; prepare_streams(); "
        "out = open('out.txt', 'w'); print('lost', file=sys.stderr); print('kept', out.fileno() > 2, file=out)"
    )
    assert shell(f'$PYTHON -c "{code}" 2>&-', tmp_path).returncode == 0
    assert (tmp_path / "out.txt").read_text() == "kept True\n"


@pytest.mark.parametrize("unwritable", ["2>/dev/full", "2</dev/null"])
def test_messages_that_cannot_be_written_are_no_reason_to_stop(unwritable: str, tmp_path: Path) -> None:
    code = (
        "import sys; from seq2seq.commands.console import prepare_streams; prepare_streams(); "
        "print('lost', file=sys.stderr, flush=True); print('kept')"
    )
    done = shell(f'$PYTHON -c "{code}" {unwritable}', tmp_path)
    assert (done.returncode, done.stdout) == (0, b"kept\n")


@pytest.mark.parametrize("arguments", ["--version", "--help", "train --help", "train --cfg job"])
def test_an_output_that_cannot_be_written_is_named(arguments: str, tmp_path: Path) -> None:
    done = shell(f"$PYTHON -m seq2seq {arguments} >/dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr == b"error: standard output: No space left on device\n"


@pytest.mark.parametrize("module", ["omegaconf", "hydra", "hydra.core.plugins", "torch"])
def test_ctrl_c_during_an_import_ends_as_later(module: str, tmp_path: Path) -> None:
    (tmp_path / "start.py").write_text(
        "import importlib.abc, os, signal, sys\n"
        "class Finder(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from seq2seq.cli import main\n"
        "main(['train', 'model.width=wide'])\n"
    )
    done = shell("exec $PYTHON start.py", tmp_path)
    assert done.returncode == 130
    assert done.stderr.decode() == "error: interrupted; the same command resumes from the last checkpoint\n"

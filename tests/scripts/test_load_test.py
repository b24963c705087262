"""scripts/load_test.py: how it finds the service."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import load_test

WARNING = "a.py:1: UserWarning: see http://pytorch.org/docs"


def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *commands: str) -> None:
    program = tmp_path / "python"
    program.write_text("\n".join(["#!/bin/sh", f"echo '{WARNING}' >&2", *commands]) + "\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(load_test.sys, "executable", str(program))


def test_warnings_before_the_address_are_passed_over(tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, "echo 'kept: http://127.0.0.1:9  (Ctrl-C stops)' >&2", "exec sleep 60")
    with load_test.service([]) as url:
        assert url == "http://127.0.0.1:9"


def test_a_service_that_does_not_start_says_why(tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, "echo 'no such run' >&2")
    with pytest.raises(SystemExit, match=f"{WARNING}\nno such run"), load_test.service([]):
        pass

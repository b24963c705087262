"""Translators in processes that are forked or spawned after they were used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from seq2seq.export import export_ctranslate2, export_onnx

SCRIPT = """
import multiprocessing, sys
from seq2seq import Translator

texts = [f"the cat sees {'a dog ' * (number % 7)}." for number in range(200)]

def translate(part):
    return [one.text for one in translator.translate(part)]

def translate_with(task):
    given, part = task
    return [one.text for one in given.translate(part)]

if __name__ == "__main__":
    translator = Translator.load(sys.argv[1], search="greedy")
    expected = translate(texts)
    halves = [texts[:100], texts[100:]]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert sum(pool.map(translate, halves), []) == expected
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert sum(pool.map(translate_with, [(translator, half) for half in halves]), []) == expected
    print("same")
"""
WIDE = {**tiny.TRANSFORMER, "width": 64}


@pytest.mark.fork
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", "ctranslate2", "onnx"])
def test_translator_after_fork_and_in_spawned_processes_translates_the_same(engine: str, tmp_path: Path) -> None:
    """With two threads, which a fork leaves behind; on 0.1.0 the children of the fork wait for them forever."""
    folder = tmp_path / "model"
    {"torch": lambda one, to: one.save(to), "ctranslate2": export_ctranslate2, "onnx": export_onnx}[engine](
        tiny.bundle(WIDE if engine != "onnx" else tiny.RNN), folder
    )
    (tmp_path / "script.py").write_text(SCRIPT)
    found = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (found.stdout, found.returncode) == ("same\n", 0), found.stderr

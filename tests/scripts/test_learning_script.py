"""`scripts/learning.py` from its command line; what it measures is tested in tests/models/test_learning.py."""

import json
from pathlib import Path

import pytest
from learning import combinations, fell_short, main

RESULTS = Path(__file__).parents[2] / "data" / "results" / "learning.json"


@pytest.mark.slow
def test_tries_what_is_asked_for_and_skips_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["conv positions=none", "--updates", "10", "--output", str(tmp_path / "learning.json")]
    assert main(command) == 1
    results = json.loads((tmp_path / "learning.json").read_text())
    assert [(result["combination"], result["task"]) for result in results] == [
        ("conv positions=none", "copy"),
        ("conv positions=none", "reverse"),
    ]
    assert all(result["updates"] == 30 and fell_short(result) for result in results)
    assert "| conv positions=none | copy | " in capsys.readouterr().out
    results[0]["exact_match"] = 1.0
    (tmp_path / "learning.json").write_text(json.dumps(results))
    assert main(command) == 1
    assert json.loads((tmp_path / "learning.json").read_text()) == results
    assert "| conv positions=none | copy | 100.0% | 30 |" in capsys.readouterr().out


PENDING = ("conditional_gru",)
"""Combinations whose results are not published yet."""


def test_the_kept_results_are_of_all_combinations_and_none_falls_short() -> None:
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    measured = [one for one in combinations() if not any(pending in one.name for pending in PENDING)]
    expected = [(combination.name, task) for combination in measured for task in ("copy", "reverse")]
    assert [(result["combination"], result["task"]) for result in kept] == expected
    assert not any(map(fell_short, kept))
    assert all(result["exact_match"] < 0.5 for result in kept if result["cannot"])

"""Parsing of command lines, and quoting of values."""

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import assume, example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from seq2seq.cli import run
from seq2seq.commands.arguments import quoted, readable


@pytest.mark.parametrize("value", ["~/c", "ελ", "it's", "a=b", "train[:5]", "test.{language}", "a  b", "c:d", "é (1)"])
def test_readable_quotes_plain_texts(value: str) -> None:
    (override,) = OverridesParser.create().parse_overrides([readable(f"data.root={value}")])
    assert override.value() == value


@pytest.mark.parametrize(
    "text", ["model.width=[1", "data.root=à,b", "a={b", "a=${b", "model.width=3", "a='b c'", "word"]
)
def test_readable_leaves_lists_sweeps_and_valid_values(text: str) -> None:
    assert readable(text) == text


def test_options_of_hydra_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "-c", "job", "model.width=77"]) == 0
    assert "width: 77" in capsys.readouterr().out
    assert run(["train", "--resolve"]) == 2
    assert capsys.readouterr().err.startswith("error: The --resolve flag")


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20))
@example("it's")
@example("a\\'b\\")
@example('a = b, "c" [d] {e: f} \u00fc')
def test_quoted_paths_survive_the_command_line(name: str) -> None:
    assume("${" not in name)
    (override,) = OverridesParser.create().parse_overrides([f"run_dir={quoted(str(Path(name)))}"])
    assert OmegaConf.create({"run_dir": override.value()}).run_dir == str(Path(name))

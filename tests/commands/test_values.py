"""Whole numbers written as floats, and ~/ in paths."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from seq2seq.commands import configuration
from seq2seq.commands.composition import compose
from seq2seq.commands.values import expand_home, put
from seq2seq.pipeline.build import with_whole_numbers
from seq2seq.pipeline.job import assemble


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1e5, int, 100000),
        (1e5, int | None, 100000),
        (1e5, float, 1e5),
        (1.0, int | float, 1.0),
        (1.5, int, 1.5),
        (float("inf"), int, float("inf")),
        ({"train": 1e3}, dict[str, int], {"train": 1000}),
        ([1e0, 2], list[int], [1, 2]),
        ("1e5", int, "1e5"),
        (True, int, True),
    ],
)
def test_a_whole_float_becomes_an_int_where_only_an_int_fits(value: Any, hint: Any, expected: Any) -> None:
    found = with_whole_numbers(value, hint)
    assert found == expected and type(found) is type(expected)


def test_whole_floats_on_the_command_line_are_taken_as_integers() -> None:
    settings = compose("trainer.max_steps=1e5", "schedule=cosine", "seed=1e0")
    numbers = (settings["trainer"]["max_steps"], settings["schedule"]["total"], settings["seed"])
    assert numbers == (100000, 100000, 1) and all(type(number) is int for number in numbers)
    assert type(settings["trainer"]["val_check_interval"]) is float


def test_whole_floats_of_a_corpus_are_taken_as_integers(tmp_path: Path) -> None:
    data = ["data.sizes={train: 1e3, valid: 10, test: 10}", "data.max_tokens=2e3", "data.concatenation.train=2e0"]
    job = assemble(compose(*data, f"data.cache_dir={tmp_path}"))
    assert len(job.data.corpus.load("valid")) == 10


def test_put_follows_references() -> None:
    config = OmegaConf.create({"a": {"b": "${c.d}"}, "c": {"d": "${e}"}, "e": 1})
    put(config, "a.b", 2)
    assert config.e == 2 and config.a.b == 2


def test_a_home_folder_is_expanded_wherever_a_path_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    config = OmegaConf.create(
        {
            "run_dir": "~/runs",
            "data": {"root": "~/text", "path": "${data.root}"},
            "paths": ["~/a", "b~/c"],
            "x": "~",
        }
    )
    expand_home(config)
    assert OmegaConf.to_container(config, resolve=True) == {
        "run_dir": "/home/me/runs",
        "data": {"root": "/home/me/text", "path": "/home/me/text"},
        "paths": ["/home/me/a", "b~/c"],
        "x": "/home/me",
    }


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_home_folder_in_a_settings_file_is_expanded(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = configuration.compose(command, ["run_dir='~/runs/mine'"])
    assert configuration.checked(config, command, []).run_dir == f"{tmp_path}/runs/mine"

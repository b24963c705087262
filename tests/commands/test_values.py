"""Whole numbers written as floats, and ~/ in paths."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from seq2seq.commands import configuration
from seq2seq.commands.config_check import check_data
from seq2seq.commands.values import expand_home, put, with_whole_numbers


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
    overrides = ["trainer.max_steps=1e5", "schedule=cosine", "data.sizes={train: 1e3, valid: 10, test: 10}", "seed=1e0"]
    config = configuration.compose("train", [*overrides, "data.max_tokens=2e3"])
    configuration.checked(config, "train", overrides)
    check_data(config)
    numbers = (config.trainer.max_steps, config.schedule.total, config.seed, config.data.max_tokens)
    assert numbers == (100000, 100000, 1, 2000) and all(type(number) is int for number in numbers)
    assert type(config.data.corpus.sizes.train) is int
    assert type(config.trainer.val_check_interval) is float


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

"""--help tells every command, its choices and the keys of each."""

from pathlib import Path

import pytest

from seq2seq.cli import COMMANDS, run


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_shows_its_file_without_hydra_nodes(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--help"]) == 0
    printed = capsys.readouterr().out
    assert f"seq2seq {command}" in printed and "hydra:" not in printed and "_logging" not in printed


def test_help_without_a_command_lists_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(command in printed for command in COMMANDS)


def test_help_of_a_choice_shows_its_keys_and_unknown_choices_show_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["train", "trainer=gpu", "model=conv", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "kernel: 3" in printed and "validation_tokens: 32000" in printed and "max_time: null" in printed
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\nseed: 77\n")
    assert run(["train", "--help", "--config-dir", str(tmp_path), "experiment=mine"]) == 0
    assert "seed: 77" in capsys.readouterr().out
    assert run(["train", "model=nothing", "--help"]) == 0
    assert "model: bahdanau, " in capsys.readouterr().out
    for command, choices in (("translate", ["search"]), ("average", [])):
        assert run([command, "--help"]) == 0
        listed = capsys.readouterr().out.partition("Choices:")[2].split("\n\n")[0].split("\n")
        assert [line.split(":")[0].strip() for line in listed if line] == choices

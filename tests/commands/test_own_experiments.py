"""Experiments (and any other choice) that a user keeps in a folder of their own: `--config-dir`."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from seq2seq.cli import run
from seq2seq.commands.choices import config_dir

TINY = """
defaults:
  - override /model: {model}
  - override /logger: none
model: {{width: 16, embedding_width: 16}}
data: {{sizes: {{train: 600, valid: 10, test: 10}}}}
trainer: {{max_steps: 2}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own = tmp_path / "it's mine"
    (own / "experiment").mkdir(parents=True)
    for model in ("rnn", "bahdanau"):
        text = "# @package _global_" + TINY.format(model=model)
        (own / "experiment" / f"my_{model}.yaml").write_text(text, encoding="utf-8")
    return own


@pytest.mark.slow
def test_experiments_in_a_config_dir_are_trained_and_compared(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    place = ["--config-dir", folder.name, f"data.cache_dir={tmp_path / 'cache'}"]
    (folder / "model").mkdir()
    shutil.copy(config_dir() / "model" / "rnn.yaml", folder / "model" / "mine.yaml")
    assert run(["train", "experiment=my_rnn", "model=mine", *place]) == 0
    metrics = json.loads((tmp_path / "runs/my_rnn-seed1/metrics.json").read_text(encoding="utf-8"))
    assert (metrics["experiment"], metrics["model"]) == ("my_rnn", "rnn")
    assert shlex.split(metrics["command"])[2:4] == ["--config-dir", str(folder)]
    assert run(["compare", *place, "experiments=[my_rnn,my_bahdanau]", "run_dir=study"]) == 0
    assert {path.parent.name for path in Path("study").glob("*/metrics.json")} == {"my_rnn-seed1", "my_bahdanau-seed1"}
    assert "my_bahdanau" in capsys.readouterr().out


@pytest.mark.parametrize("content", [TINY.format(model="rnn"), "model: {width: 16}"], ids=["with choices", "without"])
def test_an_experiment_without_package_directive_is_refused(
    content: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "experiment" / "lost.yaml").write_text(content, encoding="utf-8")
    assert run(["train", f"--config-dir={folder}", "experiment=lost", "dry_run=true"]) == 2
    assert "# @package _global_" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--config-dir"], "--config-dir: expected one argument"),
        (["--config-dir", "nowhere"], "--config-dir nowhere does not exist"),
        (["--config-dir", "{}/.."], "has no GROUP/NAME.yaml"),
        (["--config-dir", "{}", "experiment=my_rn"], "did you mean 'my_rnn'?"),
        (["--config-dir", "{}", "--config-dir", "{}"], "--config-dir is given twice"),
    ],
)
def test_a_wrong_config_dir_or_experiment_is_refused_with_the_reason(
    arguments: list[str], words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", *(text.format(folder) for text in arguments)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["experiment/quickstart.yaml", "train.yaml"])
def test_a_config_dir_file_with_a_taken_name_is_refused(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_text("seed: 2\n", encoding="utf-8")
    assert run(["train", "-cd", str(folder), "experiment=my_rnn"]) == 2
    assert f"{name} would be ignored" in capsys.readouterr().err


@pytest.mark.parametrize("entry", ["model: rnn", "override model: rnn"])
def test_a_defaults_list_without_the_slash_is_refused_with_the_correct_form(
    entry: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "experiment" / "slip.yaml").write_text(f"# @package _global_\ndefaults:\n  - {entry}\n", encoding="utf-8")
    assert run(["train", "--config-dir", str(folder), "experiment=slip"]) == 2
    assert "- override /model: NAME, with a slash" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, words",
    [
        (b"seed: 1\n  x: 2\n", "slip.yaml, line 3, column 4: mapping values are not allowed here"),
        (b"seed:\t1\n\tx: 2\n", "slip.yaml, line 2, column 6: found character"),
        (b"seed: 1\nseed: 2\n", "slip.yaml, line 3, column 1: found duplicate key seed"),
        (b"# caf\xe9\n", "slip.yaml: invalid continuation byte"),
    ],
    ids=["indentation", "tab", "twice", "latin-1"],
)
@pytest.mark.parametrize("command", [["train"], ["compare", "models=[rnn]"]], ids=["train", "compare"])
def test_an_experiment_that_is_not_yaml_or_utf8_is_refused_with_its_place(
    command: list[str], content: bytes, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "experiment" / "slip.yaml").write_bytes(b"# @package _global_\n" + content)
    assert run([*command, "--config-dir", str(folder), "experiment=slip"]) == 2
    printed = capsys.readouterr().err
    assert words in printed and len(printed.strip().splitlines()) <= 2, printed


@pytest.mark.slow
def test_a_sweep_takes_options_from_config_dir_and_searchpath(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    score = tmp_path / "scores" / "model" / "attention" / "score" / "mine.yaml"
    score.parent.mkdir(parents=True)
    text = (config_dir() / "model/attention/score/dot.yaml").read_text(encoding="utf-8")
    score.write_text(text, encoding="utf-8")
    sweep = ["-m", "experiment=my_bahdanau", "model/attention/score=mine", "seed=1,2", "test_splits=[]"]
    assert run(["train", "--config-dir", str(folder), f"hydra.searchpath=[file://{tmp_path}/scores]", *sweep]) == 0
    assert len(list(Path("runs").glob("my_bahdanau-seed*/metrics.json"))) == 2

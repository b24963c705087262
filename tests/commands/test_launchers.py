"""Trainings through Hydra's launchers and sweepers: the objective gets out, and so does an error."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from hydra.errors import MissingConfigException

from seq2seq.cli import run
from seq2seq.commands import compare, configuration, train
from seq2seq.commands.explain import explain
from seq2seq.commands.train import run_dir
from seq2seq.run import Run

SMALL = [
    *("data.sizes={train: 200, valid: 14, test: 14}", "data.maximum_words=9", "tokenizer.vocabulary=450"),
    *("trainer.max_steps=3", "trainer.val_check_interval=3", "search=greedy", "search.max_length_a=1"),
]


@pytest.mark.slow
def test_an_optuna_sweep_maximizes_validation_bleu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    params = ["optimizer.lr=tag(log,interval(0.001,0.01))", "model.width=choice(8,16)", "model.dropout=0.1"]
    assert run(["train", "-m", "recipe=grammar_sweep", *params, *SMALL, "hydra.sweeper.n_trials=2"]) == 0
    runs = [json.loads(path.read_text()) for path in Path("runs").glob("grammar_sweep-*/metrics.json")]
    assert len(runs) == 2 and all(metrics["splits"] == {} for metrics in runs)
    best = yaml.safe_load(Path("runs/grammar_sweep/optimization_results.yaml").read_text())
    assert best["best_value"] == max(metrics["training"]["best_valid_bleu"] for metrics in runs)
    assert set(best["best_params"]) == {"optimizer.lr", "model.width"}
    assert len({metrics["training"]["best_valid_bleu"] for metrics in runs}) == 2


@pytest.mark.slow
def test_a_refused_trial_of_a_sweep_ends_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", "-m", "recipe=grammar_sweep", *SMALL, "model.layers=choice(0,-1)"]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: ") and "layers" in last


def test_a_sweep_with_several_devices_is_refused_outside_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seq2seq.pipeline.train.train", lambda *_: None)
    monkeypatch.setattr(Run, "finished", True)
    monkeypatch.setattr(Run, "read_metrics", lambda self: {"training": {"best_valid_bleu": 0.0}})
    sweep = ["train", "-m", "recipe=grammar_sweep", *SMALL, "hydra.sweeper.n_trials=1"]
    assert run([*sweep, "trainer.devices=2", "trainer.strategy=ddp"]) == 2
    printed = capsys.readouterr().err
    assert "error: trainer.devices=2 trainer.num_nodes=1: the other processes" in printed
    assert "OptunaSweeper" in printed and "hydra/sweeper=basic" in printed
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")  # whose tasks get one trial each
    monkeypatch.setattr(train, "launched", nullcontext)
    assert run([*sweep, "trainer.devices=2", "trainer.strategy=ddp"]) == 0


@pytest.mark.fork
@pytest.mark.slow
def test_an_error_in_a_joblib_worker_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    launcher = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    assert run(["train", "-m", "model=bahdanau", "model.width=0", *SMALL, *launcher]) == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["submitit_slurm", "submitit_local"])
def test_submitit_launchers_compose(name: str) -> None:
    chosen = [f"hydra/launcher={name}", "hydra.launcher.timeout_min=600", "hydra.launcher.gpus_per_node=8"]
    own = ["hydra.launcher.partition=gpu"] if name == "submitit_slurm" else []
    config = configuration.compose("compare", ["models=[rnn,bahdanau]", *chosen, *own])
    launcher = config.hydra.launcher
    assert launcher._target_.startswith("hydra_plugins.hydra_submitit_launcher") and launcher.gpus_per_node == 8
    assert config.hydra.sweep.subdir == "." and launcher.submitit_folder.endswith("/.submitit/%j")


@pytest.mark.parametrize(
    "choice, extra",
    [("hydra/launcher/submitit_slurm", "slurm"), ("hydra/sweeper/optuna", "optuna")],
)
def test_a_missing_plugin_is_named_with_its_extra(choice: str, extra: str) -> None:
    error = MissingConfigException("not found", missing_cfg_file=choice)
    said = explain(error, "train", [])
    assert said.endswith(f"pip install 'seq2seq[{extra}]'") and len(said.splitlines()) == 2


def test_long_run_names_of_a_sweep_are_shortened_and_stay_distinct() -> None:
    config = configuration.compose("train", [])
    choices = {"model": "bahdanau", "data": "grammar"}
    long = [f"trainer.max_steps={number}" for number in range(1000, 1020)]
    names = [run_dir(config, choices, [*long, f"model.width={width}"], sweep=True).name for width in (8, 16)]
    assert names[0] != names[1] and {len(name) for name in names} == {160}
    short = run_dir(config, choices, ["model=bahdanau", "model.width=8"], sweep=True).name
    assert short == "bahdanau-grammar-seed1-model.width=8"


@pytest.mark.slow
def test_progress_reports_finished_runs_and_time_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / name for name in "abcd"]

    def finish(folder: Path) -> None:
        folder.mkdir()
        (folder / "metrics.json").write_text("{}")

    finish(folders[0])
    progress = compare.Progress(folders, began=1000.0)
    monkeypatch.setattr(compare.time, "time", lambda: 1000.0 + 60 * 12)
    assert str(progress) == "1 of 4 runs finished; 12 min"
    finish(folders[1])
    assert str(progress) == "2 of 4 runs finished; 12 min, about 24 min to go"
    finish(folders[2])
    finish(folders[3])
    assert str(progress) == "4 of 4 runs finished; 12 min"

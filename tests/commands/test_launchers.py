"""Trainings through Hydra's launchers and sweepers: the objective gets out, and so does an error."""

import json
import os
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


@pytest.mark.slow
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
    monkeypatch.setattr(train, "worker_training", nullcontext)
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


def study(folder: Path, started: dict[str, float], finished: dict[str, float]) -> None:
    """Runs that were started and finished at these times."""
    for files, times in ((".lock", started), ("metrics.json", finished)):
        for name, moment in times.items():
            (folder / name).mkdir(exist_ok=True)
            (folder / name / files).touch()
            os.utime(folder / name / files, (moment, moment))


@pytest.mark.parametrize(
    ("started", "finished", "now", "expected"),
    [
        ({}, {"a": 900}, 1720, "1 of 4 runs finished; 12 min"),
        ({"b": 1000}, {"a": 900, "b": 1720}, 1720, "2 of 4 runs finished; 12 min, about 24 min to go"),
        (dict.fromkeys("bcd", 1000), {"a": 900, "b": 1540}, 1540, "2 of 4 runs finished; 9 min, about 0 min to go"),
        (dict.fromkeys("bc", 1000), {"a": 900, "b": 1540}, 1540, "2 of 4 runs finished; 9 min, about 4 min to go"),
        ({"b": 500}, {"a": 1600}, 1600, "1 of 4 runs finished; 10 min, about 30 min to go"),
        (dict.fromkeys("abcd", 1000), dict.fromkeys("abcd", 1600), 1600, "4 of 4 runs finished; 10 min"),
    ],
    ids=["nothing new", "one after the other", "side by side", "two at a time", "interrupted before", "all"],
)
def test_progress_estimates_the_time_left_from_finished_runs(
    started: dict[str, float],
    finished: dict[str, float],
    now: float,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study(tmp_path, {}, {name: moment for name, moment in finished.items() if moment < 1000})
    progress = compare.Progress([tmp_path / name for name in "abcd"], began=1000.0)
    study(tmp_path, started, finished)
    monkeypatch.setattr(compare.time, "time", lambda: now)
    assert str(progress) == expected

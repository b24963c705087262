"""The three uses as a person meets them: train and compare, report, translate; all from the command line."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from seq2seq.cli import run
from seq2seq.inference.bundle import load_bundle

SMALL = [
    "data.sizes={train: 300, valid: 14, test: 28}",
    "data.maximum_words=20",
    "tokenizer.vocabulary=600",
    "trainer.max_steps=8",
    "trainer.val_check_interval=4",
    "trainer.threads=1",
    "search=greedy",
    "search.max_length_b=2",
]
WIDTHS = {
    "rnn": ["model.width=16", "model.embedding_width=16"],
    "bahdanau": ["model.width=16", "model.embedding_width=16"],
    "transformer": ["model.width=16", "model.layers=1", "model.feedforward_width=32"],
}
SYSTEMS = ", ".join(f"{name}: {widths}" for name, widths in WIDTHS.items())
COMPARE = ["compare", "models=[rnn,bahdanau,transformer]", f"systems={{{SYSTEMS}}}", "run_dir=study", *SMALL]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished comparison of three models; the tests run in its parent folder."""
    before = Path.cwd()
    root = tmp_path_factory.mktemp("pipeline")
    os.chdir(root)
    assert run(COMPARE) == 0
    yield root / "study"
    os.chdir(before)


def test_compare_writes_scored_runs_and_a_report(study: Path) -> None:
    for name in WIDTHS:
        folder = study / f"{name}-seed1"
        metrics = json.loads((folder / "metrics.json").read_text())
        scores = metrics["splits"]["test"]
        assert scores["segments"] == 28 and metrics["training"]["updates"] == 8
        assert "version:" in scores["bleu"]["signature"]
        assert (scores["alignment_error_rate"] is None) == (name == "rnn")
        for file in ("checkpoints/last.ckpt", "checkpoints/best.ckpt", "bundle/model.safetensors", "train.log"):
            assert (folder / file).is_file(), file
        assert len((folder / "test.hyp.txt").read_text().split("\n")) == 29
        assert (folder / "test.attention.jsonl").is_file() == (name != "rnn")
    for ending in ("html", "md", "json"):
        assert (study / f"report.{ending}").is_file()
    html = (study / "report.html").read_text()
    assert all(name in html for name in WIDTHS)


@pytest.mark.slow
def test_compare_again_trains_nothing(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in study.rglob("*.ckpt")}
    assert run(COMPARE) == 0
    printed = capsys.readouterr()
    assert printed.err.count("is finished") == 3
    assert "report:" in printed.out and "| rnn" in printed.out
    assert {path: path.stat().st_mtime_ns for path in study.rglob("*.ckpt")} == before


def test_train_refuses_a_run_with_other_settings(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "model=rnn", *WIDTHS["rnn"], *SMALL, "run_dir=study/rnn-seed1"]
    assert run([*command, "optimizer.lr=0.5"]) == 2
    assert "optimizer.lr: 0.001 -> 0.5" in capsys.readouterr().err
    assert run([*command, "tokenize=none"]) == 2
    assert 'tokenize: "13a" -> "none"' in capsys.readouterr().err
    assert run(command) == 0


def test_evaluate_repeats_the_scores_of_training(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = study / "bahdanau-seed1"
    recorded = json.loads((folder / "metrics.json").read_text())["splits"]["test"]
    compared = ("bleu", "chrf", "ter", "nll", "alignment_error_rate", "by_length", "length_ratio")
    for checkpoint in (folder, folder / "bundle", folder / "checkpoints" / "best.ckpt"):
        assert run(["evaluate", f"checkpoint={checkpoint}"]) == 0
        scores = json.loads(capsys.readouterr().out)["test"]
        assert {key: scores[key] for key in compared} == {key: recorded[key] for key in compared}


def test_evaluate_of_translated_lines_repeats_the_scores_of_the_run(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = study / "transformer-seed1"
    output = study.parent / "out.txt"
    command = ["translate", f"checkpoint={folder}", f"input={folder / 'test.src.txt'}", f"output={output}"]
    assert run(command) == 0
    assert output.read_bytes() == (folder / "test.hyp.txt").read_bytes()
    files = [f"hypotheses={output}", f"references={folder / 'test.ref.txt'}", f"sources={folder / 'test.src.txt'}"]
    capsys.readouterr()
    assert run(["evaluate", *files]) == 0
    scores = json.loads(capsys.readouterr().out)["out.txt"]
    recorded = json.loads((folder / "metrics.json").read_text())["splits"]["test"]
    assert all(scores[key] == recorded[key] for key in ("bleu", "chrf", "ter", "by_length"))


def test_report_includes_an_external_system(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = study / "rnn-seed1" / "test.ref.txt"
    assert run(["report", "runs=study", "output=other", f"hypotheses={{perfect: {reference}}}", "baseline=rnn"]) == 0
    assert "| perfect" in capsys.readouterr().out
    assert (study.parent / "other" / "report.html").is_file()


def test_report_refuses_hypotheses_named_like_a_run(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = study / "rnn-seed1" / "test.ref.txt"
    assert run(["report", "runs=study", "output=other", f"hypotheses={{rnn: {reference}}}"]) == 2
    assert "rnn is the name of a trained system and of hypotheses by an external system" in capsys.readouterr().err
    assert run(["report", "runs=[]"]) == 2
    assert "runs= names no folder" in capsys.readouterr().err


def test_damaged_metrics_are_refused_by_name(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = study / "rnn-seed1" / "metrics.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    try:
        for command in (
            ["train", "model=rnn", *WIDTHS["rnn"], *SMALL, "run_dir=study/rnn-seed1"],
            ["evaluate", "checkpoint=study/rnn-seed1", "beam_sizes=[1]"],
        ):
            assert run(command) == 2
            assert "metrics.json is damaged" in capsys.readouterr().err
    finally:
        path.write_bytes(whole)


def test_word_counts_use_the_words_of_the_report(study: Path) -> None:
    counts = json.loads((study / "rnn-seed1" / "word_counts.json").read_text())
    assert counts["."] >= 100 and not any(word.endswith(".") for word in counts if word != ".")


TUNE = ["train", "checkpoint=study/bahdanau-seed1", "model=checkpoint", *SMALL]


def first_valid_nll(folder: Path) -> float:
    lines = (json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines())
    return next(line["valid_nll"] for line in lines if "valid_nll" in line)


@pytest.mark.slow
@pytest.mark.parametrize("model", WIDTHS)
def test_train_from_a_checkpoint_fine_tunes_it(
    model: str, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a rate of 0 weights and tokenizers stay the first model's; its settings need not be given again."""
    still = ["optimizer.lr=0", "data.sizes={train: 200, valid: 14, test: 28}"]
    folder = tmp_path / "tuned"
    start = f"study/{model}-seed1"
    assert (
        run(
            [
                "train",
                f"checkpoint={start}",
                "model=checkpoint",
                *SMALL,
                *still,
                "model.dropout=0.1",
                f"run_dir={folder}",
            ]
        )
        == 0
    )
    assert f"the tokenizers are those of checkpoint={start}" in capsys.readouterr().err
    first, tuned = (load_bundle(path) for path in (start, folder))
    assert tuned.tokenizers.state() == first.tokenizers.state()
    weights = tuned.model.state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in first.model.state_dict().items())
    assert tuned.config["model"] == {**first.config["model"], "dropout": 0.1}
    metrics = json.loads((folder / "metrics.json").read_text())
    assert (metrics["checkpoint"], metrics["model"]) == (start, model)
    assert f"Trained further from: {start}" in (folder / "bundle" / "README.md").read_text()
    assert run(["report", f"runs={folder}", f"output={tmp_path}"]) == 0
    assert f"tuned was trained further from {start}" in (tmp_path / "report.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["tokenizer.sampling=0.1"]], ids=["usual", "sampled"])
def test_a_checkpoint_is_not_needed_to_resume_fine_tuning(options: list[str], study: Path, tmp_path: Path) -> None:
    start = tmp_path / "start"
    shutil.copytree(study / "bahdanau-seed1" / "bundle", start)
    command = [*TUNE, *options, f"checkpoint={start}"]
    assert run([*command, f"run_dir={tmp_path / 'whole'}"]) == 0
    assert run([*command, f"run_dir={tmp_path / 'parts'}", "trainer.max_steps=4", "test_splits=[]"]) == 0
    assert first_valid_nll(tmp_path / "parts") < first_valid_nll(study / "bahdanau-seed1")
    (tmp_path / "parts" / "metrics.json").unlink()
    start.rename(tmp_path / "gone")
    assert run([*command, f"run_dir={tmp_path / 'parts'}"]) == 0
    whole, parts = (load_bundle(tmp_path / name).model.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert run([*command, f"run_dir={tmp_path / 'parts'}"]) == 0


@pytest.mark.slow
def test_report_names_the_checkpoint_of_fine_tuned_runs(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = ", ".join(f'"{text}"' for text in WIDTHS["bahdanau"])
    systems = f'systems={{new: [{wide}], tuned: ["model=checkpoint", "checkpoint={study / "bahdanau-seed1"}"]}}'
    assert run(["compare", *SMALL, systems, f"run_dir={tmp_path}"]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert {system["name"] for system in report["systems"]} == {"new", "tuned"}
    assert [note.partition(";")[0] for note in report["notes"]] == [
        f"tuned-seed1 was trained further from {study / 'bahdanau-seed1'}"
    ]
    assert [effect["setting"] for effect in report["effects"]] == ["checkpoint"]


@pytest.mark.slow
def test_a_fine_tuned_run_is_named_after_its_checkpoint(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*TUNE, "test_splits=[]", "trainer.max_steps=1"]) == 0
    assert (study.parent / "runs/grammar-seed1-from-bahdanau-seed1/metrics.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides, words",
    [
        (["checkpoint=nowhere"], ["checkpoint=nowhere does not exist"]),
        (["model=rnn"], ["study/bahdanau-seed1", "holds a model=bahdanau, not rnn"]),
        (["model=bahdanau", "model.width=32"], ["width: 16 -> 32"]),
        (["model=bahdanau", *WIDTHS["bahdanau"], "model/attention/score=dot"], ["score", "AdditiveScore"]),
    ],
)
def test_a_checkpoint_with_other_settings_is_refused_before_writing(
    overrides: list[str], words: list[str], study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "refused"
    assert run([*TUNE, *overrides, f"run_dir={folder}"]) == 2
    printed = capsys.readouterr().err
    assert all(word in printed for word in words), printed
    assert not folder.exists()
    assert run(["compare", *TUNE[1:], "models=[bahdanau]", *overrides, f"run_dir={folder}"]) == 2
    assert not folder.exists()


def test_train_refuses_a_path_without_a_checkpoint(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in ("nowhere", "."):
        assert run(["translate", f"checkpoint={path}"]) == 2
        assert "error: checkpoint=" in capsys.readouterr().err


@pytest.mark.slow
def test_a_dry_run_writes_no_run(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "model=rnn", *WIDTHS["rnn"], *SMALL, "run_dir=looked", "dry_run=true"]
    assert run(command) == 0
    printed = capsys.readouterr().out
    assert "parameters" in printed and "300" in printed
    assert run([*command, "optimizer=muon"]) == 0
    assert run([*command, "optimizer=muon", "optimizer.momentum=2"]) == 2
    assert "momentum must be at least 0 and below 1, got 2" in capsys.readouterr().err
    assert not Path("looked").exists()


def test_python_m_seq2seq_runs_the_command_line() -> None:
    command = [sys.executable, "-m", "seq2seq", "train", "model=nothing"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: model=nothing") and len(done.stderr.splitlines()) <= 2

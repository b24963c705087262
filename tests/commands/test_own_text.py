"""Training on a folder of one's own text: what lets a run go on in its folder, and what is refused there."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from seq2seq.cli import run
from seq2seq.inference.bundle import load_bundle

KEPT = Path(__file__).parent / "kept"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus of lines of digits in a folder; the current one is empty."""
    monkeypatch.chdir(tmp_path)
    for name, size in (("train", 200), ("valid", 12), ("test", 13)):
        for language in ("en", "de"):
            lines = (" ".join(str(row * place % 97) for place in range(1, 3 + row % 5)) for row in range(size))
            path = tmp_path / "text" / f"{name}.{language}"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(line + "\n" for line in lines))
    return tmp_path / "text"


FILES = [
    *("train", "data=files", "run_dir=run", "tokenizer.vocabulary=600", "trainer.max_steps=8", "trainer.threads=1"),
    *("trainer.val_check_interval=4", "search=greedy", "search.max_length_b=2"),
    *("model=rnn", "model.width=16", "model.embedding_width=16"),
]


@pytest.mark.slow
def test_a_streamed_run_finishes_and_its_data_may_move(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*FILES, "data.root=text", "data.streaming=true"]
    assert run([*command, "trainer.max_epochs=2", "trainer.max_steps=null", "trainer.val_check_interval=1.0"]) == 0
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert metrics["training"]["epochs"] == 2 and Path("run/bundle").is_dir()
    assert run(["report", "runs=run"]) == 0
    capsys.readouterr()
    files.rename("moved")
    assert run(["evaluate", "checkpoint=run", "data.root=moved"]) == 0
    assert json.loads(capsys.readouterr().out)["test"]["bleu"] == metrics["splits"]["test"]["bleu"]


@pytest.mark.slow
def test_a_run_resumes_with_another_cache(files: Path) -> None:
    assert run([*FILES, "data.root=text", "trainer.max_steps=4"]) == 0
    Path("run/metrics.json").unlink()
    assert run([*FILES, "data.root=text", "data.cache_dir=elsewhere"]) == 0
    assert json.loads(Path("run/metrics.json").read_text())["training"]["updates"] == 8
    assert Path("elsewhere").is_dir()


def test_a_stream_without_pairs_is_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*FILES, "data.root=text", "data.streaming=true", "data.max_length=1"]) == 2
    assert "no training pair is left" in capsys.readouterr().err


@pytest.mark.slow
def test_leftovers_are_removed_and_other_files_stay(files: Path) -> None:
    theirs = [Path("run", name) for name in ("deep/.config.yaml.abcd1234.tmp", ".mine.tmp", ".bundle.mine/x")]
    ours = [Path("run", name) for name in (".config.yaml.abcd1234.tmp", "checkpoints/.last.ckpt.abcd1234.tmp")]
    for path in (
        *theirs,
        *ours,
        Path("run/.bundle.abcd1234/model.safetensors"),
        Path("run/cache/.text-train-0.1.tmp/x"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert run([*FILES, "data.root=text", "data.cache_dir=run/cache"]) == 0
    assert all(path.exists() for path in theirs)
    assert not any(path.exists() for path in (*ours, Path("run/.bundle.abcd1234")))


@pytest.mark.slow
def test_a_finished_run_resumes_when_its_limit_is_raised(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*FILES, "data.root=text"]
    assert run([*command, "trainer.max_steps=4"]) == 0
    capsys.readouterr()
    assert run([*command, "trainer.max_steps=3"]) == 0
    assert "run is finished" in capsys.readouterr().err
    assert run(command) == 0
    assert json.loads(Path("run/metrics.json").read_text())["training"]["updates"] == 8
    assert run([*command, "run_dir=whole"]) == 0
    one, other = (load_bundle(folder).model.state_dict() for folder in ("run", "whole"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert yaml.safe_load(Path("run/config.yaml").read_text())["trainer"]["max_steps"] == 8


@pytest.mark.slow
def test_a_run_stopped_early_resumes_with_more_patience(files: Path) -> None:
    command = [*FILES, "data.root=text", "optimizer.lr=0", "trainer.val_check_interval=1"]
    for patience, updates in ((2, 3), (2, 3), (3, 4), ("null", 8)):
        assert run([*command, f"trainer.patience={patience}"]) == 0
        assert json.loads(Path("run/metrics.json").read_text())["training"]["updates"] == updates


@pytest.mark.slow
def test_a_run_whose_corpus_has_changed_is_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*FILES, "data.root=text", "data.concatenation.train=1"]
    assert run([*command, "trainer.max_steps=4"]) == 0
    before = Path("run/metrics.json").read_text()
    swapped = [line[::-1] for line in (files / "valid.en").read_text().splitlines()]
    (files / "valid.en").write_text("".join(f"{line}\n" for line in swapped))
    for again in (command, [*command, "trainer.max_steps=4"]):
        assert run(again) == 2
        assert "run is finished, and the corpus is no longer what it was" in capsys.readouterr().err
    assert Path("run/metrics.json").read_text() == before


@pytest.mark.slow
def test_a_run_whose_corpus_has_moved_is_accepted(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*FILES, "data.root=text", "trainer.max_steps=4"]) == 0
    files.rename("text, moved é")
    capsys.readouterr()
    assert run([*FILES, 'data.root="text, moved é"', "trainer.max_steps=4"]) == 0
    assert "run is finished" in capsys.readouterr().err
    assert run([*FILES, "data.root=text", "trainer.max_steps=4"]) == 0
    assert "run is finished" in capsys.readouterr().err
    assert run([*FILES, f'data.root="{Path.cwd()}/text, moved é"', "trainer.max_steps=5"]) == 0
    assert json.loads(Path("run/metrics.json").read_text())["training"]["updates"] == 5


def test_a_corpus_that_is_not_there_leaves_no_run(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*FILES, "data.root=nowhere"]) == 2
    assert "data.root=nowhere is not a folder" in capsys.readouterr().err
    assert not Path("run").exists()


@pytest.mark.slow
def test_a_run_without_a_checkpoint_takes_new_settings(files: Path) -> None:
    assert run([*FILES, "data.root=text", "tokenizer.vocabulary=265"]) == 2
    assert Path("run/config.yaml").exists()
    assert run([*FILES, "data.root=text", "test_splits=[]", "trainer.max_steps=1"]) == 0


@pytest.mark.slow
def test_a_finished_run_is_scored_on_further_test_sets(files: Path) -> None:
    for language in ("en", "de"):
        (files / f"more.{language}").write_text((files / f"test.{language}").read_text())
    more = "+data.test_sets={test_more: 'more.{language}'}"
    command = [*FILES, "data.root=text", "trainer.max_steps=1", more]
    marked = None
    for asked, scored in (
        ("[]", []),
        ("[test]", ["test"]),
        ("[test_more]", ["test", "test_more"]),
        ("null", ["test", "test_more"]),
    ):
        assert run([*command, f"test_splits={asked}"]) == 0
        metrics = json.loads(Path("run/metrics.json").read_text())
        assert list(metrics["splits"]) == scored
        if marked is None and scored:
            marked = metrics["splits"]["test"]["comet"] = {"score": 0.5, "signature": "kept"}
            Path("run/metrics.json").write_text(json.dumps(metrics))
    assert metrics["splits"]["test"]["comet"] == marked


@pytest.mark.slow
def test_a_run_without_newer_keys_resumes(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*FILES, "data.root=text", "test_splits=[]"]
    assert run([*command, "trainer.max_steps=4"]) == 0
    settings = yaml.safe_load(Path("run/config.yaml").read_text())
    for section, key in (("model", "word_dropout"), ("data", "streaming"), ("trainer", "compile")):
        del settings[section][key]
    del settings["tokenize"], settings["checkpoint"]
    Path("run/config.yaml").write_text(yaml.safe_dump(settings))
    assert run([*command, "model.word_dropout=0.2"]) == 2
    assert "model.word_dropout: 0.0 -> 0.2" in capsys.readouterr().err
    assert run(command) == 0


@pytest.mark.slow
def test_a_segment_longer_than_learned_positions_is_refused_before_training(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "test.en").write_text("1 2 3\n" * 4 + "4 " * 50 + "\n" + "5\n" * 8)
    small = ["model=transformer", "model.width=16", "model.layers=1"]
    command = [*FILES[:-3], *small, "data.root=text", "model.positions=learned", "model.maximum_positions=40"]
    for options in ([], ["dry_run=true"]):
        assert run([*command, *options]) == 2
        assert "test: segment 5 has 50 source tokens, and the model positions for 39" in capsys.readouterr().err
    assert not Path("run/checkpoints").exists()
    assert run([*command, "test_splits=[]", "trainer.max_steps=1"]) == 0
    assert run([*command, "test_splits=[]", "run_dir=sampled", "tokenizer.sampling=0.1"]) == 2
    assert "data.max_length=256: the model has positions for 39" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_of_version_0_1_0_is_finished_or_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kept files are those that version 0.1.0 wrote for the same command and text."""
    shutil.copytree(KEPT, "run")
    command = [*FILES, "data.root=text", "logger=none"]
    assert run(command) == 0
    assert "run is finished; its scores are in run/metrics.json" in capsys.readouterr().err
    for limit in (9, 8):
        assert run([*command, f"trainer.max_steps={limit}"]) == 2
        first, second = capsys.readouterr().err.splitlines()
        assert first == "error: cannot resume: run was begun by version 0.1.0 of seq2seq"
        assert second.startswith("Give another run_dir=, with checkpoint=run model=checkpoint")
        assert Path("run/config.yaml").read_bytes() == (KEPT / "config.yaml").read_bytes()
        Path("run/metrics.json").unlink(missing_ok=True)  # as where it was stopped
        Path("run/checkpoints").mkdir(exist_ok=True)
        Path("run/checkpoints/last.ckpt").touch()


def test_a_runs_name_may_hold_percent_signs(files: Path) -> None:
    command = [*FILES, "data.root=text", "logger=none", "test_splits=[]", "trainer.max_steps=1"]
    assert run([*command, "run_dir=50% = x"]) == 0
    assert Path("50% = x/metrics.json").is_file()


def test_doubtful_settings_give_warnings(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train", "valid", "test"):
        (files / f"{name}.de").rename(files / f"{name}.zh")
    command = [*FILES, "data.root=text", "data.target_language=zh", "test_splits=[]", "trainer.max_steps=1"]
    assert run([*command, "data.streaming=true", "trainer.val_check_interval=0.5"]) == 0
    printed = capsys.readouterr().err
    assert printed.count("tokenize=13a finds few words in zh") == 1 and "see tokenize=zh" in printed
    assert "trainer.val_check_interval=0.5: a stream is validated at the end of a pass" in printed


@pytest.mark.slow
@pytest.mark.parametrize("batches, warned", [(1, False), (2, True)])
def test_validation_due_after_the_last_update_gives_a_warning(
    batches: int, warned: bool, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """200 pairs in batches of 10 are 20 an epoch."""
    command = [*FILES, "data.root=text", "data.max_sentences=10", "test_splits=[]", "trainer.max_steps=10"]
    updates = [f"trainer.accumulate_grad_batches={3 - batches}", "trainer.val_check_interval=1.0"]
    assert run([*command, *updates]) == 0
    said = "trainer.val_check_interval=1.0: its 20 updates are more than trainer.max_steps=10"
    assert (said in capsys.readouterr().err) == warned


def test_a_number_as_file_name_is_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*FILES, "data.root=text", "data.test=2016"]) == 2
    assert "data.test=2016 has the wrong type: str" in capsys.readouterr().err

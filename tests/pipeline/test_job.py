"""Jobs from plain settings, and training from Python."""

import copy
from pathlib import Path
from typing import Any

import pytest

import seq2seq
from seq2seq.errors import UserError
from seq2seq.pipeline.job import assemble
from seq2seq.run import FORMAT, Run, upgraded_settings

SMALL = (
    *("data.sizes={train: 200, valid: 7, test: 7}", "data.maximum_words=9", "tokenizer.vocabulary=450"),
    *("model.width=8", "model.embedding_width=8", "trainer.max_steps=4", "trainer.val_check_interval=2"),
    *("trainer.threads=1", "search=greedy", "search.max_length_a=1", "logger=none"),
)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return seq2seq.compose("model=rnn", *SMALL, f"data.cache_dir={tmp_path_factory.mktemp('cache')}")


@pytest.fixture(scope="module")
def run(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return seq2seq.train(assemble(settings), tmp_path_factory.mktemp("runs") / "mine-seed1")


def test_a_training_from_python_gives_a_run_that_translates(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = run.read_metrics()
    assert (metrics["format"], metrics["system"], metrics["seed"]) == (FORMAT, "mine", 1)
    assert metrics["splits"]["test"]["bleu"]["signature"].startswith("nrefs:1")
    (translation,) = seq2seq.Translator.load(run).translate(["The man sees the dog."])
    assert isinstance(translation.text, str)


def test_evaluation_repeats_the_scores_of_a_run(run: Run) -> None:
    found = seq2seq.evaluate(run)["test"]
    assert found["bleu"] == run.read_metrics()["splits"]["test"]["bleu"]


def test_evaluation_on_another_corpus_says_which(run: Run, settings: dict[str, Any]) -> None:
    other = {**settings["data"], "seed": 2}
    found = seq2seq.evaluate(run, data=other)["test"]
    assert found["data"]["corpus"] == "grammar" and found["segments"] == 7
    assert found["data"]["fingerprint"] != run.read_metrics()["corpus"]


def test_evaluation_refuses_a_data_setting_that_the_corpus_lacks(run: Run) -> None:
    with pytest.raises(UserError, match=r"data\.root=elsewhere: corpus grammar does not take it"):
        seq2seq.evaluate(run, data={"root": "elsewhere"})


def test_training_again_returns_the_finished_run(run: Run, settings: dict[str, Any]) -> None:
    before = run.metrics_file.read_bytes()
    again = seq2seq.train(assemble(settings), run.folder)
    assert again.metrics_file.read_bytes() == before


def test_training_with_other_settings_in_the_same_folder_is_refused(run: Run, settings: dict[str, Any]) -> None:
    other = copy.deepcopy(settings)
    other["optimizer"]["lr"] = 0.5
    with pytest.raises(UserError, match=r"other settings: optimizer\.lr: 0\.001 -> 0\.5"):
        seq2seq.train(assemble(other), run.folder)


def test_comparing_trains_each_job_in_its_own_folder(settings: dict[str, Any], tmp_path: Path) -> None:
    jobs = {f"rnn-seed{seed}": assemble({**settings, "seed": seed}) for seed in (1, 2)}
    runs = seq2seq.compare(jobs, tmp_path)
    assert [one.name for one in runs] == ["rnn-seed1", "rnn-seed2"] and all(one.finished for one in runs)
    assert runs[0].best.read_bytes() != runs[1].best.read_bytes()


def test_fine_tuning_takes_the_checkpoint_s_model(run: Run, settings: dict[str, Any], tmp_path: Path) -> None:
    model = {"_target_": None, "dropout": 0.5, "word_dropout": None}
    job = assemble({**settings, "model": model, "checkpoint": str(run)})
    assert job.settings["model"] == {**settings["model"], "dropout": 0.5}
    assert job.data.vocabulary() == job.start.tokenizers.vocabulary()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"_target_": None}}, "model=checkpoint needs checkpoint=RUN"),
        ({"tokenizer": {"_target_": None}}, "tokenizer=checkpoint needs checkpoint=RUN"),
        ({"seed": -1}, "seed=-1"),
        ({"trainer": None}, "the configuration has no trainer"),
        ({"data": {"corpus": "gramar"}}, r"data\.corpus='gramar' is unknown \(did you mean 'grammar'\?\)"),
        ({"data": {"corpus": "grammar", "rows": 3}}, r"data\.rows=3: corpus grammar does not take it"),
        ({"test_splits": ["dev"]}, "no split 'dev'"),
    ],
)
def test_assembling_refuses_what_cannot_work(changes: dict[str, Any], message: str, settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=message):
        assemble({**settings, **changes})


@pytest.mark.parametrize("override", ["model.width=-4", "model.width=0"])
def test_assembling_refuses_widths_that_are_not_positive(override: str) -> None:
    with pytest.raises(UserError, match="widths must be positive, got"):
        assemble(seq2seq.compose("model=rnn", override))


def test_assembling_refuses_r_drop_of_a_mixture() -> None:
    marginal = ("model=luong", "model.width=8", "model/attention/alignment=hard_marginal", "r_drop=1")
    with pytest.raises(UserError, match=r"r_drop=1: a model with alignment=hard_marginal"):
        assemble(seq2seq.compose(*marginal))


@pytest.mark.parametrize("model", ["rnn", "bahdanau", "luong", "conditional_gru", "conv", "transformer"])
def test_assembling_refuses_r_drop_without_dropout(model: str) -> None:
    overrides = (f"model={model}", "model.width=8", "r_drop=1", "model.dropout=0")
    with pytest.raises(UserError, match=r"r_drop=1.*differ by dropout"):
        assemble(seq2seq.compose(*overrides))
    assert assemble(seq2seq.compose(*overrides, "model.word_dropout=0.1")).criterion.r_drop == 1


def test_assembling_needs_no_hydra(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hydra", None)
    assert assemble(settings).trainer.max_steps == 4


def test_settings_of_version_0_1_0_are_upgraded() -> None:
    old = {
        "data": {
            "root": None,
            "source_language": "en",
            "target_language": "de",
            "cache_dir": "data/cache",
            "max_length": 256,
            "corpus": {
                "_target_": "seq2seq.data.corpus.FilesCorpus",
                "source_language": "en",
                "target_language": "de",
                "splits": {"train": "a.{language}", "valid": "b.{language}", "test": None},
                "root": "text",
                "source_column": None,
                "target_column": None,
                "cache_dir": "data/cache",
            },
        },
        "trainer": {"_target_": "seq2seq.training.trainer.TrainerSettings", "max_steps": 5},
        "callbacks": {"_target_": "seq2seq.training.callbacks.CallbackSettings", "patience": 3},
    }
    new = upgraded_settings(old)
    assert new["trainer"] == {"_target_": "seq2seq.training.settings.TrainerSettings", "max_steps": 5, "patience": 3}
    assert new["data"] == {
        "corpus": "files",
        "source_language": "en",
        "target_language": "de",
        "root": "text",
        "train": "a.{language}",
        "valid": "b.{language}",
        "test": None,
        "source_column": None,
        "target_column": None,
        "cache_dir": "data/cache",
        "max_length": 256,
    }
    assert "callbacks" not in new and upgraded_settings(new) == new

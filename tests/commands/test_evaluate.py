"""`seq2seq evaluate` by a run's own protocol; the effect of the beam and COMET, which go into metrics.json."""

import errno
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from seq2seq.cli import run
from seq2seq.errors import UserError
from seq2seq.inference.bundle import load_bundle
from seq2seq.pipeline import evaluate as pipeline
from seq2seq.run import Run, RunInUse

TRAIN = [
    *("train", "model=bahdanau", "model.width=16", "model.embedding_width=16", "run_dir=run", "logger=none"),
    *("data.sizes={train: 300, valid: 14, test: 28}", "data.maximum_words=12", "tokenizer.vocabulary=500"),
    *("trainer.max_steps=4", "trainer.val_check_interval=4", "trainer.threads=1", "tokenize=none", "lowercase=true"),
    *("search.beam_size=2", "search.max_length_b=2", "search.max_length_a=1"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("evaluate"))
    assert run(TRAIN) == 0
    yield Path.cwd() / "run"
    os.chdir(before)


def metrics(folder: Path) -> dict[str, Any]:
    return Run(folder).read_metrics()


def evaluate(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["evaluate", "checkpoint=run", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["test"]
    return found


@pytest.mark.slow
def test_evaluations_on_another_corpus_are_compared_under_its_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Path("own")
    own.mkdir()
    for split in ("train", "valid", "test"):
        for language, kind in (("en", "src"), ("es", "ref")):
            lines = (folder / f"test.{kind}.txt").read_text().splitlines(keepends=True)
            (own / f"{split}.{language}").write_text("".join(lines[:12]))
    for _ in range(2):
        found = evaluate(capsys, "data=pydocs", "data.root=own", "output=elsewhere/one")
    assert (found["data"]["name"], found["data"]["corpus"]) == ("pydocs", "files")
    scored = metrics(Path("elsewhere/one"))
    assert (scored["data"], scored["system"], scored["languages"]) == ("pydocs", "bahdanau", ["en", "es"])
    assert scored["splits"] == {"test": found} and "evaluate checkpoint=run data=pydocs" in scored["command"]
    assert run(["report", "runs=elsewhere"]) == 0
    assert capsys.readouterr().err == "note: one is run, trained on grammar and scored on pydocs\n"
    report = json.loads(Path("elsewhere/report.json").read_text())
    assert (report["title"], report["data"]) == ("pydocs en→es, test", "pydocs")
    assert report["systems"][0]["bleu"]["score"] == found["bleu"]["score"]


@pytest.mark.slow
def test_evaluation_on_the_runs_own_corpus_names_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = evaluate(capsys, "output=same")["data"]
    assert data == {"name": "grammar", "corpus": "grammar", "fingerprint": metrics(folder)["corpus"]}
    assert run(["report", "runs=same"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kept", ["config.yaml", "checkpoints/last.ckpt", "bundle/config.yaml"])
def test_evaluations_stay_out_of_folders_of_trainings(
    folder: Path, capsys: pytest.CaptureFixture[str], kept: str
) -> None:
    training = Path("begun") / kept.replace("/", "-")
    (training / kept).parent.mkdir(parents=True)
    (training / kept).write_bytes((folder / kept).read_bytes())
    with pytest.raises(UserError, match="is the folder of a run"):
        pipeline.evaluate("run", output=training)
    for arguments in (["checkpoint=run"], ["hypotheses=run/test.hyp.txt", "references=run/test.ref.txt"]):
        assert run(["evaluate", *arguments, f"output={training}"]) == 2
        assert f"Give another folder, such as output={training}/evaluation" in capsys.readouterr().err
    assert [path for path in training.rglob("*") if path.is_file()] == [training / kept]


def test_a_folder_in_use_takes_no_evaluation(folder: Path) -> None:
    with Run("used").held(), pytest.raises(RunInUse, match="give another output="):
        pipeline.evaluate("run", output="used")
    assert not Run("used").exists


def test_an_evaluation_is_no_finished_training(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(capsys, "output=scored/bahdanau-seed1")
    assert run([*TRAIN, "run_dir=scored/bahdanau-seed1"]) == 2
    refusal = "scored/bahdanau-seed1 holds an evaluation of run\nGive another run_dir=.\n"
    assert capsys.readouterr().err == f"error: {refusal}"
    own = [text for text in TRAIN[1:] if not text.startswith(("model=", "run_dir="))]
    assert run(["compare", "models=[bahdanau,luong]", "seeds=[1]", "run_dir=scored", *own]) == 2
    assert capsys.readouterr().err == f"error: bahdanau-seed1: {refusal}"
    assert not Path("scored/luong-seed1").exists()


def test_evaluations_by_different_searches_are_not_averaged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*TRAIN, "seed=2", "run_dir=run2"]) == 0
    evaluate(capsys, "output=searches/seed1", "search.beam_size=1")
    assert run(["evaluate", "checkpoint=run2", "output=searches/seed2", "search.beam_size=4"]) == 0
    assert Run("searches/seed2").read_settings()["search"]["beam_size"] == 4
    assert run(["report", "runs=searches"]) == 0
    found = json.loads(Path("searches/report.json").read_text())["systems"]
    assert {one["name"] for one in found} == {f"bahdanau (search.beam_size={size})" for size in (1, 4)}


def test_an_evaluation_keeps_its_own_tokenize_and_lowercase(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(capsys, "output=cased", "tokenize=13a", "lowercase=false")
    settings = Run("cased").read_settings()
    assert (settings["tokenize"], settings["lowercase"]) == ("13a", False)


def test_a_checkpoint_without_scores_is_not_said_to_be_scored_on_other_text(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder, "bare", ignore=shutil.ignore_patterns("metrics.json"))
    assert run(["evaluate", "checkpoint=bare", "output=bare-scores"]) == 0
    capsys.readouterr()
    assert run(["report", "runs=bare-scores"]) == 0
    assert capsys.readouterr().err == ""


def test_an_evaluation_says_itself_what_produced_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = metrics(folder)
    old = {"created": "2001-01-01", "versions": {"seq2seq": "0"}, "commit": "old", "machine": "old"}
    Run(folder).write_metrics({**known, **old})
    try:
        evaluate(capsys, "output=fresh/whole")
        assert run(["evaluate", "checkpoint=run/checkpoints/last.ckpt", "output=fresh/same"]) == 0
        changed = load_bundle(folder)
        with torch.no_grad():
            next(changed.model.parameters()).mul_(1 + 1e-6)
        changed.save(folder / "other")
        assert run(["evaluate", "checkpoint=run/other", "output=fresh/other"]) == 0
    finally:
        Run(folder).write_metrics(known)
    own = {"format", "name", "data", "corpus", "command", "evaluated", "splits", *old}
    for name, training in (("whole", known["training"]), ("same", known["training"]), ("other", {})):
        found = metrics(Path("fresh") / name)
        assert all(found[key] != value for key, value in old.items()) and found["training"] == training
        kept = {key: value for key, value in found.items() if key not in own and key != "training"}
        carried = ("system", "study", "seed", "model", "parameters", "languages", "sizes", "checkpoint")
        assert kept == {key: known[key] for key in carried}
    assert run(["report", "runs=fresh"]) == 0


def test_evaluate_uses_the_tokenize_and_lowercase_of_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = metrics(folder)["splits"]["test"]["bleu"]
    assert "case:lc" in kept["signature"] and "tok:none" in kept["signature"]
    assert evaluate(capsys)["bleu"] == kept
    other = evaluate(capsys, "tokenize=13a", "lowercase=false")["bleu"]["signature"]
    assert "case:mixed" in other and "tok:13a" in other


@pytest.mark.slow
def test_beam_sizes_are_added_to_the_metrics_of_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = metrics(folder)
    found = evaluate(capsys, "beam_sizes=[1,2,4]")["by_beam_size"]
    assert [beam["beam_size"] for beam in found] == [1, 2, 4]
    after = metrics(folder)
    assert after["splits"]["test"].pop("by_beam_size") == found
    assert after == before
    assert found[1]["bleu"]["score"] == before["splits"]["test"]["bleu"]["score"]
    greedy = evaluate(capsys, "search=greedy", "search.max_length_b=2", "search.max_length_a=1")["bleu"]
    assert {key: found[0]["bleu"][key] for key in ("score", "low", "high")}.items() <= greedy.items()


@pytest.mark.slow
def test_a_search_option_changes_the_search_of_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = metrics(folder)["splits"]["test"]
    same = evaluate(capsys, "search.beam_size=2")
    assert (same["bleu"], same["nll"]) == (kept["bleu"], kept["nll"])
    found = evaluate(capsys, "search.max_length_a=0")["decoding"]["search"]
    assert found == {**kept["decoding"]["search"], "max_length_a": 0}


@pytest.mark.slow
def test_scores_by_other_settings_are_not_added_to_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = metrics(folder)
    assert run(["evaluate", "checkpoint=run", "tokenize=char", "beam_sizes=[3]"]) == 0
    assert "not kept in" in capsys.readouterr().err
    assert metrics(folder) == before


@pytest.mark.slow
def test_scores_of_other_weights_are_not_added_to_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = metrics(folder)
    changed = load_bundle(folder)
    with torch.no_grad():
        next(changed.model.parameters()).mul_(1 + 1e-6)
    changed.save(folder / "changed")
    assert run(["evaluate", "checkpoint=run/changed", "beam_sizes=[3]"]) == 0
    assert "checkpoint=run/changed is not the model that was scored" in capsys.readouterr().err
    assert metrics(folder) == before


@pytest.mark.slow
def test_scores_of_a_runs_bundle_are_added_to_the_run(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "bundle")
    assert run(["evaluate", "checkpoint=.", "beam_sizes=[3]"]) == 0
    found = json.loads(capsys.readouterr().out)["test"]["by_beam_size"]
    assert metrics(folder)["splits"]["test"]["by_beam_size"] == found


def test_files_are_scored_without_sources(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["evaluate", "hypotheses=run/test.hyp.txt", "references=run/test.ref.txt", "tokenize=none"]
    found = []
    for sources in ([], ["sources=run/test.src.txt"]):
        capsys.readouterr()
        assert run([*files, *sources]) == 0
        found.append(json.loads(capsys.readouterr().out)["test.hyp.txt"])
    without, whole = found
    assert (without.pop("by_length"), without.pop("retention"), without.pop("units")["source"]) == ([], None, None)
    assert without.items() <= whole.items()
    assert run([*files, "comet=some/model"]) == 2
    assert "comet= needs sources=FILE" in capsys.readouterr().err


def test_scores_are_printed_where_the_run_cannot_be_written(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = metrics(folder)

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Run, "write_metrics", lambda self, _: refuse(self.metrics_file))
    assert run(["evaluate", "checkpoint=run", "beam_sizes=[2]"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["test"]["by_beam_size"][0]["beam_size"] == 2
    assert "run/metrics.json: Read-only file system" in printed.err
    assert metrics(folder) == before


@pytest.mark.slow
def test_comet_scores_are_added_to_the_run(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("comet")
    predictor = SimpleNamespace(predict=lambda rows, **_: SimpleNamespace(scores=[0.5] * len(rows)))
    module.download_model = lambda name: name  # type: ignore[attr-defined]
    module.load_from_checkpoint = lambda path, local_files_only: predictor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "comet", module)
    found = evaluate(capsys, "comet=some/model")["comet"]
    assert (found["score"], found["low"], found["high"]) == (0.5, 0.5, 0.5)
    assert metrics(folder)["splits"]["test"]["comet"] == found
    files = [f"{kind}=run/test.{short}.txt" for kind, short in (("hypotheses", "hyp"), ("references", "ref"))]
    assert run(["evaluate", *files, "sources=run/test.src.txt", "comet=some/model"]) == 0
    assert json.loads(capsys.readouterr().out)["test.hyp.txt"]["comet"] == found


@pytest.mark.slow
def test_targets_in_a_saved_configuration_other_than_corpora_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = folder.parent / "mark"
    evil = {"_target_": "seq2seq.files.hold", "path": str(mark)}
    path, whole = folder / "config.yaml", (folder / "config.yaml").read_text()
    settings = yaml.safe_load(whole)
    corpora = (evil, {"_target_": "seq2seq.data.catalogue.bible", "root": evil}, [evil])
    try:
        for place in ({"x": evil}, {"sizes": evil}, *({"corpus": corpus} for corpus in corpora)):
            path.write_text(yaml.safe_dump({**settings, "data": {**settings["data"], **place}}))
            assert run(["evaluate", "checkpoint=run"]) == 2
            assert capsys.readouterr().err.startswith("error: ") and not mark.exists()
    finally:
        path.write_text(whole)


@pytest.mark.slow
def test_evaluate_refuses_exports(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "checkpoint=run", "output=run/onnx", "format=onnx"]) == 0
    assert run(["evaluate", "checkpoint=run/onnx"]) == 2
    assert "is an export" in capsys.readouterr().err


@pytest.mark.slow
def test_evaluate_refuses_impossible_combinations(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [f"{kind}=run/test.{short}.txt" for kind, short in (("hypotheses", "hyp"), ("references", "ref"))]
    for arguments, word in (
        ([*files, "sources=run/test.src.txt", "beam_sizes=[1]"], "checkpoint=RUN"),
        ([*files, "sources=run/test.src.txt", "splits=[valid]"], "splits="),
        ([*files, "sources=run/test.src.txt", "data.root=run"], "data= and search= go with checkpoint="),
        ([*files, "sources=run/test.src.txt", "search.beam_size=3"], "search"),
        (["checkpoint=run", "references=run/test.ref.txt"], "hypotheses="),
        (["checkpoint=run", "data.root=run"], "data.root=run: corpus grammar does not take it"),
        (["checkpoint=run", "beam_sizes=[0]"], "beam_size"),
        (["checkpoint=run", "beam_sizes=3"], "beam_sizes"),
        (["checkpoint=run", "comet=nowhere.ckpt"], "nowhere.ckpt"),
    ):
        assert run(["evaluate", *arguments]) == 2
        assert word in capsys.readouterr().err

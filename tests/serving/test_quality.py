"""The scores that the service shows: of the weights that it serves, with the search that earned them."""

from __future__ import annotations

from pathlib import Path

from service import KEPT, RNN, SOURCES, random_bundle, run_folder

from seq2seq.inference.bundle import load_bundle
from seq2seq.serving.pages import main_page, other_searches
from seq2seq.serving.quality import quality_by_length
from seq2seq.serving.served import load_models


def quality(*paths: Path, search: str | None = None):
    models = load_models(paths, search=search)
    return quality_by_length({model.name: model.run for model in models}), [model.description() for model in models]


def test_quality_of_another_model_in_a_runs_folder_is_unknown(tmp_path):
    folder = run_folder(tmp_path / "run", load_bundle(KEPT), [40.0, 38.0])
    random_bundle(RNN).save(folder / "other")
    assert quality(folder / "other") == (None, quality(folder / "other")[1])
    found, _ = quality(folder, folder / "other")
    assert list(found["buckets"][0]["scores"]) == ["run"]
    assert found["segments"] == len(SOURCES)


def test_quality_with_damaged_metrics_is_unknown(tmp_path):
    folder = run_folder(tmp_path / "run", load_bundle(KEPT), [40.0, 38.0])
    (folder / "metrics.json").write_text("{")
    assert quality(folder)[0] is None


def test_quality_names_the_search_that_was_scored(tmp_path):
    folder = run_folder(tmp_path / "run", load_bundle(KEPT), [40.0, 38.0])
    found, models = quality(folder)
    assert found["searches"]["run"] == models[0]["search"]
    assert other_searches(models, found) == []
    found, models = quality(folder, search="greedy")
    (sentence,) = other_searches(models, found)
    assert sentence.startswith("run was scored with method beam, ")
    assert "it answers here with method greedy" in sentence
    assert sentence in main_page(models, found)

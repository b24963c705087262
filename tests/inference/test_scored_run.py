"""Scores are those of the weights, tokenizer and search that earned them, wherever the files lie."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from seq2seq.cli import run
from seq2seq.errors import UserError
from seq2seq.inference.bundle import Bundle, load_bundle
from seq2seq.inference.card import model_card
from seq2seq.inference.scored_run import SCORED_MODEL, scored_run
from seq2seq.run import Run

BEAM = {"_target_": "seq2seq.search.BeamSearch", "beam_size": 3}
BLEU = {"score": 81.87, "low": 71.7, "high": 93.4, "signature": "nrefs:1"}


def checkpoint(bundle: Bundle, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    config = {"model": bundle.config["model"], "search": tiny.SEARCH, "languages": bundle.config["languages"]}
    state = {f"model.{name}": value for name, value in bundle.model.state_dict().items()}
    torch.save(
        {"state_dict": state, "seq2seq": {"config": config, "tokenizers": bundle.tokenizers.state()}},
        path,
    )


def scores(bundle: Bundle) -> dict[str, Any]:
    return {
        "model": "transformer",
        "data": "grammar",
        "parameters": sum(parameter.numel() for parameter in bundle.model.parameters()),
        SCORED_MODEL: bundle.digest(),
        "training": {"updates": 12},
        "splits": {"test": {"segments": 30, "bleu": BLEU, "decoding": {"search": BEAM}}},
    }


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scored run with its best weights in bundle/ and best.ckpt, and other models in and below its folder."""
    folder = tmp_path_factory.mktemp("study") / "run"
    pair = tiny.tokenizers()
    best, last, other = (tiny.bundle(seed=seed, pair=pair) for seed in range(3))
    best.save(folder / "bundle", scores(best))
    checkpoint(best, folder / "checkpoints" / "best.ckpt")
    checkpoint(last, folder / "checkpoints" / "last.ckpt")
    other.save(folder / "average")
    tiny.bundle(tiny.RNN, pair=pair).save(folder / "rnn")
    best.save(folder / "exports" / "copy")
    Run(folder).write_metrics(scores(best))
    return folder


@pytest.fixture
def folder(kept: Path, tmp_path: Path) -> Path:
    shutil.copytree(kept, tmp_path / "run")
    return tmp_path / "run"


PLACES = {
    "": True,
    "bundle": True,
    "checkpoints/best.ckpt": True,
    "exports/copy": True,
    "checkpoints/last.ckpt": False,
    "average": False,
    "rnn": False,
}


@pytest.mark.parametrize(("place", "own"), PLACES.items())
@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_scored_run_of_a_path_depends_on_its_weights(version: str, place: str, own: bool, folder: Path) -> None:
    if version == "0.1.0":
        metrics = json.loads((folder / "metrics.json").read_text())
        del metrics["format"], metrics[SCORED_MODEL]
        (folder / "metrics.json").write_text(json.dumps(metrics))
    found = scored_run(folder / place, load_bundle(folder / place))
    assert (found is not None) is own


def test_scored_run_of_an_old_run_whose_bundle_was_replaced_is_none(folder: Path) -> None:
    metrics = json.loads((folder / "metrics.json").read_text())
    del metrics["format"], metrics[SCORED_MODEL]
    (folder / "metrics.json").write_text(json.dumps(metrics))
    shutil.rmtree(folder / "bundle")
    assert scored_run(folder / "checkpoints" / "best.ckpt", load_bundle(folder / "checkpoints" / "best.ckpt")) is None
    shutil.copytree(folder / "rnn", folder / "bundle")
    assert scored_run(folder, load_bundle(folder)) is None


def test_scored_run_with_one_weight_changed_is_none(folder: Path) -> None:
    path = folder / "bundle" / "model.safetensors"
    weights = load_file(path)
    name = min(weights)
    weights[name].view(-1)[0] += 1e-3
    save_file(weights, path)
    assert scored_run(folder, load_bundle(folder)) is None


def test_digest_depends_on_weights_settings_and_tokenizers_only() -> None:
    pair = tiny.tokenizers()
    bundle = tiny.bundle(pair=pair)
    same = Bundle(bundle.model, pair, {**bundle.config, "search": None, "seq2seq": "9.9"})
    assert same.digest() == bundle.digest() == tiny.bundle(pair=pair).digest()
    settings = {**bundle.config, "model": {**bundle.config["model"], "heads": 4}}
    others = [
        replace(bundle, config=settings),
        replace(bundle, tokenizers=tiny.tokenizers(byte_fallback=True)),
        tiny.bundle(seed=1, pair=pair),
    ]
    assert len({one.digest() for one in (bundle, *others)}) == 4
    half = tiny.bundle(pair=pair)
    half.model.bfloat16()
    assert half.digest() != bundle.digest()


def test_scored_run_with_damaged_metrics_is_refused(folder: Path) -> None:
    (folder / "metrics.json").write_text("{")
    with pytest.raises(UserError, match=r"metrics\.json is damaged"):
        scored_run(folder, load_bundle(folder))


@pytest.mark.parametrize(("place", "own"), PLACES.items())
def test_exported_card_has_scores_of_its_own_weights_only(place: str, own: bool, folder: Path, tmp_path: Path) -> None:
    assert run(["export", f"checkpoint={folder / place}", f"output={tmp_path / 'out'}"]) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert ("| test | 30 | 81.87 [71.7, 93.4] |" in card) is own
    assert ("12 updates" in card) is own
    assert ("BeamSearch(beam_size=3)" in card) is own


def test_quantized_card_has_its_verification_and_no_scores() -> None:
    bundle = tiny.bundle()
    verified = "verified on 12 segments: greedy search gives the same tokens in 91.7%"
    card = model_card(bundle.config, 7, scores(bundle), verified, "int8")
    assert "81.87" not in card
    assert "The int8 weights were not scored. Compared with the original model: verified on 12 segments" in card
    card = model_card(bundle.config, 7, scores(bundle), verified)
    assert "Measured with the original model, before the export." in card
    assert "81.87" in card and "91.7%" in card

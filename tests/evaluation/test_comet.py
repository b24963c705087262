"""COMET at its seam: what goes in, what is made of what comes out, and what is said where it cannot be had."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from seq2seq.errors import UserError
from seq2seq.evaluation.comet import Comet, load_comet


class Recorder:
    """Scores a sample by the length of its translation, and keeps what it was given."""

    def predict(self, samples, batch_size, gpus, progress_bar):
        self.given = (samples, gpus)
        return SimpleNamespace(scores=[len(sample["mt"]) / 10 for sample in samples])


@pytest.fixture
def package(monkeypatch):
    """A stand-in for unbabel-comet that notes its calls."""
    module = ModuleType("comet")
    module.calls = []
    module.download_model = lambda name: module.calls.append(("download", name)) or "/hub/model.ckpt"
    module.load_from_checkpoint = lambda path, local_files_only: (
        module.calls.append(("load", path, local_files_only)) or Recorder()
    )
    monkeypatch.setitem(sys.modules, "comet", module)
    return module


def test_the_score_is_the_mean_and_the_interval_a_bootstrap_of_segments():
    model = Recorder()
    hypotheses, numbers = ["a" * length for length in range(1, 13)], [str(row) for row in range(12)]
    result = Comet(model, "toy", gpus=2).score(hypotheses, numbers, numbers, samples=200, seed=5)
    rows = [{"src": n, "mt": h, "ref": n} for n, h in zip(numbers, hypotheses, strict=True)]
    assert model.given == (rows, 2)
    assert result["score"] == pytest.approx(0.65)
    draws = np.random.default_rng(5).choice(12, size=(200, 12), replace=True)
    means = np.sort((np.arange(1, 13) / 10)[draws].mean(axis=1))
    assert result["low"] == pytest.approx(means[5]) and result["high"] == pytest.approx(means[-6])
    assert result["signature"].startswith("comet:toy|version:")


def test_segments_of_a_group_are_drawn_together_and_few_have_no_interval():
    lines = ["a" * length for length in range(1, 13)]
    once = Comet(Recorder(), "toy").score(lines, lines, lines, samples=50)
    twice = Comet(Recorder(), "toy").score(lines * 2, lines * 2, lines * 2, samples=50, groups=[*range(12)] * 2)
    assert (twice["low"], twice["high"]) == pytest.approx((once["low"], once["high"]))
    assert Comet(Recorder(), "toy").score(lines[:9], lines[:9], lines[:9])["low"] is None


def test_a_file_is_read_without_network_and_named_by_its_content(package, tmp_path):
    names = []
    for content in (b"one", b"two"):
        (tmp_path / "model.ckpt").write_bytes(content)
        names.append(load_comet(str(tmp_path / "model.ckpt")).name)
    assert package.calls == [("load", str(tmp_path / "model.ckpt"), True)] * 2
    assert all(name.startswith("model-") for name in names) and names[0] != names[1]


def test_a_name_is_fetched_from_the_hub(package):
    loaded = load_comet("Unbabel/wmt22-comet-da", gpus=1)
    assert (loaded.name, loaded.gpus) == ("wmt22-comet-da", 1)
    assert package.calls == [("download", "Unbabel/wmt22-comet-da"), ("load", "/hub/model.ckpt", False)]


def test_missing_package_or_model_is_named_with_the_way_out(package, monkeypatch):
    with pytest.raises(UserError, match=r"nowhere\.ckpt is not there\n"):
        load_comet("nowhere.ckpt")
    assert package.calls == []

    def offline(name: str) -> Path:
        raise OSError("no network\nmore of it")

    package.download_model = offline
    with pytest.raises(UserError, match=r"^comet=a/b cannot be loaded: no network\nCheck"):
        load_comet("a/b")
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(UserError, match=r"pip install 'seq2seq\[comet\]'"):
        load_comet("a/b")

"""Whose run a checkpoint is."""

import pytest

from seq2seq.inference.folders import scored_folder


@pytest.fixture
def run(tmp_path):
    """A scored run in a folder that is not, with a bundle, a checkpoint and exports."""
    folder = tmp_path / "study" / "run"
    for file in ("bundle/model.safetensors", "checkpoints/best.ckpt", "onnx/onnx.json", "exports/int8/model.bin"):
        (folder / file).parent.mkdir(parents=True)
        (folder / file).touch()
    (folder / "metrics.json").touch()
    return folder


@pytest.mark.parametrize("place", ["", "bundle", "checkpoints/best.ckpt", "onnx", "exports/int8"])
def test_all_that_lies_in_a_runs_folder_is_of_the_run(place, run, monkeypatch):
    assert scored_folder(run / place) == run
    if (run / place).is_dir():
        monkeypatch.chdir(run / place)
        assert scored_folder(".") == run


def test_a_run_has_the_scores_of_no_other(run):
    inner = run / "more" / "checkpoints" / "best.ckpt"
    inner.parent.mkdir(parents=True)
    inner.touch()
    assert scored_folder(run / "more") is None and scored_folder(run.parent) is None

"""The run that a checkpoint belongs to."""

import pytest

from seq2seq.run import Run


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
def test_scored_run_of_a_path_in_its_folder_is_found(place, run, monkeypatch):
    assert Run.scored(run / place).folder == run
    if (run / place).is_dir():
        monkeypatch.chdir(run / place)
        assert Run.scored(".").folder == run


def test_scored_run_of_an_inner_run_or_an_outer_folder_is_none(run):
    inner = run / "more" / "checkpoints" / "best.ckpt"
    inner.parent.mkdir(parents=True)
    inner.touch()
    assert Run.scored(run / "more") is None and Run.scored(run.parent) is None

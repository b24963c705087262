"""Checkpoint files: whole or not at all, plain, averaged by hand."""

import pickle
import resource
import signal
from pathlib import Path

import pytest
import torch
from toy import toy_fit

from seq2seq.errors import UserError
from seq2seq.training.averaging import RecentWeights, average
from seq2seq.training.checkpoint import duplicate, model_weights, read_checkpoint, write_checkpoint


def checkpoint(**weights: torch.Tensor) -> dict:
    state = {f"model.{name}": value for name, value in weights.items()}
    return {"state_dict": {**state, "criterion.baseline": torch.tensor(1.0)}, "seq2seq": {"config": {}}}


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.ckpt"
    content = {**checkpoint(w=torch.arange(3.0)), "seq2seq": {"tokenizers": {"tokenizer": bytes(range(256))}}}
    write_checkpoint(content, path)
    found = read_checkpoint(path)
    assert found["seq2seq"] == content["seq2seq"]
    assert model_weights(found["state_dict"]).keys() == {"w"}
    assert [each.name for each in path.parent.iterdir()] == ["a.ckpt"]


def test_a_full_disk_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    write_checkpoint(checkpoint(w=torch.zeros(3)), path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"cannot write the checkpoint .*a\.ckpt"):
            write_checkpoint(checkpoint(w=torch.zeros(100000)), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["a.ckpt"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the checkpoint"):
        write_checkpoint(checkpoint(), tmp_path / "file" / "a.ckpt")


class Evil:
    def __reduce__(self):
        return (Path("/tmp/seq2seq-was-here").touch, ())


def test_nothing_in_a_checkpoint_is_run(tmp_path: Path) -> None:
    path = tmp_path / "evil.ckpt"
    torch.save({**checkpoint(), "evil": Evil()}, path)
    with pytest.raises(UserError, match=r"evil\.ckpt"):
        read_checkpoint(path)
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(UserError, match=r"evil\.ckpt"):
        read_checkpoint(path)
    assert not Path("/tmp/seq2seq-was-here").exists()


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.ckpt"
    torch.save({"state_dict": {}}, path)
    with pytest.raises(UserError, match="no seq2seq checkpoint"):
        read_checkpoint(path)
    with pytest.raises(UserError, match="there is no checkpoint"):
        read_checkpoint(tmp_path / "missing.ckpt")
    with pytest.raises(UserError, match="cannot read"):
        read_checkpoint(tmp_path)


def test_a_checkpoint_holds_all_that_translation_needs_and_is_plain(tmp_path: Path) -> None:
    result = toy_fit(tmp_path, trainer={"max_steps": 2})
    found = torch.load(result.checkpoint, weights_only=True)
    assert found["seq2seq"]["config"] == {"model": {"width": 16}}
    assert found["seq2seq"]["tokenizers"] == {"tokenizer": b"letters\x00\xff"}
    assert "loops" not in found


def test_duplicate_replaces(tmp_path: Path) -> None:
    first, second = tmp_path / "best.ckpt", tmp_path / "last.ckpt"
    first.write_text("new")
    second.write_text("old")
    duplicate(first, second)
    duplicate(first, second)
    assert second.read_text() == "new"
    write_checkpoint(checkpoint(), first)
    assert second.read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"best.ckpt", "last.ckpt"}


class TestAverage:
    def test_is_the_mean(self) -> None:
        def load(name: str) -> dict[str, torch.Tensor]:
            return {"w": torch.full((2,), float(name)), "steps": torch.tensor(int(name))}

        mean = average(["1", "2", "6"], load)
        assert mean["w"].tolist() == [3.0, 3.0] and mean["w"].dtype == torch.float32
        assert mean["steps"].item() == 6
        assert mean.keys() == {"w", "steps"}

    def test_refuses_what_does_not_fit_together(self) -> None:
        with pytest.raises(UserError, match=r"b\.ckpt holds another model"):
            average(["a.ckpt", "b.ckpt"], lambda name: {"w": torch.zeros(2 if name == "a.ckpt" else 3)})
        with pytest.raises(UserError, match="no checkpoint"):
            average([], lambda name: {})

    def test_recent_weights(self, tmp_path: Path) -> None:
        recent = RecentWeights(tmp_path, 2)
        for update in (5, 10, 100):
            recent.add(update, {"w": torch.tensor([float(update)])})
        assert [int(path.stem) for path in recent.paths()] == [10, 100]
        assert recent.average()["w"].tolist() == [55.0]
        recent.forget_after(50)
        assert [int(path.stem) for path in recent.paths()] == [10]

"""A training with a shortlist, and the commands that use it."""

import json
from pathlib import Path

import pytest

from seq2seq.cli import run
from seq2seq.inference.bundle import load_bundle

TRAIN = [
    "train",
    "model=rnn",
    "model.width=16",
    "model.embedding_width=16",
    "data.sizes={train: 300, valid: 14, test: 28}",
    "data.maximum_words=20",
    "tokenizer.vocabulary=600",
    "trainer.max_steps=4",
    "trainer.val_check_interval=4",
    "trainer.threads=1",
    "search=greedy",
    "search.max_length_b=2",
    "search.shortlist=3",
    "run_dir=run",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shortlist")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert run(TRAIN) == 0
    return root / "run"


@pytest.mark.slow
def test_training_keeps_a_shortlist_with_which_its_test_sets_are_translated(folder: Path, tmp_path: Path) -> None:
    bundle = load_bundle(folder)
    assert bundle.search.shortlist == 3
    assert bundle.shortlist is not None and bundle.shortlist.candidates.shape == (len(bundle.tokenizers.source), 3)
    scores = json.loads((folder / "metrics.json").read_text())["splits"]["test"]
    assert scores["decoding"]["search"]["shortlist"] == 3
    for own, other in (("", True), ("search.shortlist=3", True), ("search.shortlist=0", False)):
        output = tmp_path / "out.txt"
        source = f"input={folder / 'test.src.txt'}"
        assert run(["translate", f"checkpoint={folder}", source, f"output={output}", *own.split()]) == 0
        assert (output.read_bytes() == (folder / "test.hyp.txt").read_bytes()) == other


@pytest.mark.slow
def test_shortlist_is_refused_where_the_table_has_too_few_or_is_not_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"input={folder / 'test.src.txt'}"
    assert run(["translate", f"checkpoint={folder}", source, "search.shortlist=9"]) == 2
    assert "Give at most 3" in capsys.readouterr().err
    best = f"checkpoint={folder / 'checkpoints' / 'best.ckpt'}"
    assert run(["translate", best, source, "search.shortlist=2"]) == 2
    assert "search.shortlist=0 does without" in capsys.readouterr().err
    assert run(["translate", best, source]) == 0

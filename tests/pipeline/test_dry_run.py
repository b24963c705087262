"""Report of `dry_run=true` on the training that would come."""

from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from seq2seq.cli import run
from seq2seq.pipeline import dry_run


def test_the_time_is_that_of_the_batches_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take a second, by this clock; there are fewer than would be taken."""
    monkeypatch.setattr(dry_run, "time", SimpleNamespace(perf_counter=count().__next__))
    small = ["model.width=8", "model.embedding_width=8", "data.sizes={train: 60, valid: 10, test: 10}"]
    data = [f"data.cache_dir={tmp_path}", "data.maximum_words=12", "tokenizer.vocabulary=350"]
    trainer = ["trainer.max_steps=6000", "trainer.accumulate_grad_batches=3", "trainer.threads=1"]
    assert run(["train", "model=rnn", *small, *data, *trainer, "dry_run=true"]) == 0
    printed = capsys.readouterr().out
    batches = printed.count("update ")
    assert 0 < batches < dry_run.UPDATES
    assert f"an epoch    {batches} batches, about 0.0 minutes" in printed
    assert f"training    6,000 updates, about {300 / batches:.1f} minutes" in printed

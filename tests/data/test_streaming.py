"""A streamed corpus: every pair once a pass, shared among processes, resumed exactly, never kept on disk."""

from itertools import islice
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from test_translation_data import SETTINGS, data, decoded, same
from toy_text import kept_mates, lines

from seq2seq.data import streaming
from seq2seq.data.corpora import FilesCorpus
from seq2seq.data.hub_corpus import HubCorpus
from seq2seq.data.tokenizer import TokenizerSettings
from seq2seq.data.translation_data import TranslationData
from seq2seq.errors import UserError


@pytest.fixture(autouse=True)
def small_pools(monkeypatch):
    monkeypatch.setattr(streaming, "POOL", 70)


def stream(loader):
    while True:
        for batch in loader:
            yield batch, loader.state_dict()


def a_pass(module):
    return list(module.train_loader())


def test_pass_equals_the_filtered_text_and_is_not_kept(root):
    module = data(root, streaming=True)
    expected = dict(enumerate(zip(lines("train", "x"), lines("train", "y"), strict=True)))
    for left_out in (3, 5, 7):
        del expected[left_out]
    loader = module.train_loader()
    first, second = list(loader), list(loader)
    for batches in (first, second):
        seen = {}
        for batch in batches:
            assert not seen.keys() & set(batch.rows.tolist())
            assert batch.target_out.numel() <= 300 or len(batch) == 1
            seen |= decoded(module, batch)
        assert seen == expected
    assert not all(same(a, b) for a, b in zip(first, second, strict=False))
    assert module.sizes == {"valid": 20, "test": 30}
    assert module.pairs("test") == (lines("test", "x"), lines("test", "y"))
    assert not list((root / "cache").glob("*-train*"))


def test_stream_is_read_only_when_asked_for(root, monkeypatch):
    read = []
    pairs = FilesCorpus.read_pairs
    monkeypatch.setattr(FilesCorpus, "read_pairs", lambda self, split: read.append(split) or pairs(self, split))
    module = data(root, streaming=True)
    assert not read
    assert module.corpus.splits() == ["valid", "test"] and module.fingerprint
    assert read.count("valid") == read.count("test") == 1


@pytest.mark.parametrize("sampling", [0.0, 0.3])
def test_resume_at_every_batch_continues_exactly(root, sampling):
    settings = TokenizerSettings(vocabulary=320, sampling=sampling)
    count = len(a_pass(data(root, settings, streaming=True)))
    expected = list(islice(stream(data(root, settings, streaming=True).train_loader()), 2 * count + 2))
    for stop in range(1, count + 3):
        resumed = data(root, settings, streaming=True).train_loader()
        resumed.load_state_dict(expected[stop - 1][1])
        for (ours, _), (theirs, _) in zip(islice(stream(resumed), 4), expected[stop:], strict=False):
            assert same(ours, theirs), stop
    assert [state["epoch"] for _, state in expected] == [0] * count + [1] * count + [2] * 2


class Words:
    """In place of a tokenizer: one id a word."""

    def encode(self, texts):
        return [[5] * len(text.split()) for text in texts]


def test_batch_mates_of_a_pool_change_from_pass_to_pass(root, monkeypatch):
    monkeypatch.setattr(streaming, "POOL", 14_000)
    random = np.random.default_rng(0)
    sources = np.clip(random.gamma(9, 1.6, 28_000), 1, 90).astype(int)
    targets = np.clip(sources * random.normal(1, 0.1, len(sources)), 1, 90).astype(int)
    pairs = [(" x" * a, " y" * b) for a, b in zip(sources, targets, strict=True)]
    corpus = SimpleNamespace(read_pairs=lambda split: iter(pairs))
    tokenizers = SimpleNamespace(source=Words(), target=Words())
    loader = streaming.StreamLoader(corpus, tokenizers, streaming.Filters(), 1024, seed=1)
    first, second = ([batch.rows.tolist() for batch in loader] for _ in range(2))
    assert kept_mates(first, second) < 0.15


def test_processes_share_a_pass_without_overlap(root):
    module = data(root, streaming=True)
    module.prepare()
    keywords = (streaming.Filters(100), 300, 1)
    shares = [
        list(streaming.StreamLoader(module._streamed, module.tokenizers, *keywords, rank=rank, world_size=3))
        for rank in range(3)
    ]
    assert len({len(share) for share in shares}) == 1
    rows = torch.cat([batch.rows for share in shares for batch in share]).tolist()
    assert len(rows) == len(set(rows)) == 297


def test_hub_folder_gives_the_batches_of_text_files(root):
    folder = root / "set"
    folder.mkdir()
    for split in ("train", "valid"):
        table = datasets.Dataset.from_dict(
            {"translation": [{"x": a, "y": b} for a, b in zip(lines(split, "x"), lines(split, "y"), strict=True)]}
        )
        table.to_json(folder / f"{'validation' if split == 'valid' else split}.jsonl")
    corpus = HubCorpus(str(folder), "x", "y", {"train": "train", "valid": "validation"}, cache_dir=root / "cache")
    ours = TranslationData(corpus, SETTINGS, max_tokens=300, max_length=100, streaming=True, cache_dir=root / "cache")
    for a, b in zip(a_pass(ours), a_pass(data(root, streaming=True)), strict=True):
        assert same(a, b)


def test_corpora_that_cannot_be_streamed_are_refused(root):
    with pytest.raises(UserError, match=r"data\.concatenation\.train=1"):
        data(root, streaming=True, concatenation={"train": 2})
    module = data(root, streaming=True)
    (root / "train.y").write_text("one\n")
    with pytest.raises(UserError, match=r"train\.x has 300 lines but .*train\.y has 1"):
        a_pass(module)


def test_states_of_another_order_are_refused(root):
    state = data(root).train_loader().state_dict()
    with pytest.raises(UserError, match=r"(?s)cannot resume: .*data\.streaming"):
        data(root, streaming=True).train_loader().load_state_dict(state)
    state = data(root, streaming=True).train_loader().state_dict()
    for module in (data(root), data(root, streaming=True, seed=2)):
        with pytest.raises(UserError, match="cannot resume"):
            module.train_loader().load_state_dict(state)


@pytest.mark.parametrize("streaming", [True, False])
def test_fingerprint_follows_the_text(root, streaming):
    first, same = (data(root, streaming=streaming).fingerprint for _ in range(2))
    (root / "train.x").write_text("".join(f"{line} more\n" for line in (root / "train.x").read_text().splitlines()))
    assert first == same != data(root, streaming=streaming).fingerprint

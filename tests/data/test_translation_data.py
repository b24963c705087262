"""From corpus to batches: the model sees the whole text, in an order that resumes exactly."""

import logging
import re
from itertools import islice

import numpy as np
import pytest
import torch
from toy_text import lines

from seq2seq.data import preparation
from seq2seq.data.corpora import FilesCorpus
from seq2seq.data.preparation import TokenStore
from seq2seq.data.tokenizer import TokenizerSettings
from seq2seq.data.translation_data import TranslationData
from seq2seq.errors import UserError

SETTINGS = TokenizerSettings(vocabulary=320)


def data(root, tokenizer=SETTINGS, **options) -> TranslationData:
    splits = {split: f"{split}.{{language}}" for split in ("train", "valid", "test")}
    corpus = FilesCorpus("x", "y", splits, root, cache_dir=root / "cache")
    keywords = {"max_tokens": 300, "max_length": 100, "cache_dir": root / "cache", **options}
    return TranslationData(corpus, tokenizer, **keywords)


def tensors(batch):
    return [
        getattr(batch, name) for name in ("source", "source_mask", "target_in", "target_out", "target_mask", "rows")
    ]


def same(first, second) -> bool:
    return all(torch.equal(a, b) for a, b in zip(tensors(first), tensors(second), strict=True))


def decoded(module, batch):
    pair = module.tokenizers
    return {
        row: (pair.source.decode(source), pair.target.decode(target))
        for row, source, target in zip(
            batch.rows.tolist(), batch.source.tolist(), batch.target_out.tolist(), strict=True
        )
    }


@pytest.mark.slow
@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("sampling", [0.0, 0.3])
def test_epoch_equals_the_filtered_training_text(root, joint, sampling):
    module = data(root, TokenizerSettings(vocabulary=300, joint=joint, sampling=sampling))
    module.prepare()
    seen = {}
    for batch in module.train_loader():
        assert not seen.keys() & set(batch.rows.tolist())
        seen |= decoded(module, batch)
    expected = dict(enumerate(zip(lines("train", "x"), lines("train", "y"), strict=True)))
    for left_out in (3, 5, 7):
        del expected[left_out]
    assert seen == expected
    assert module.sizes == {"train": 297, "valid": 20, "test": 30}
    assert module.vocabulary()["joint_vocabulary"] == joint


def test_evaluation_keeps_every_segment(root):
    module = data(root)
    seen = {}
    for batch in module.evaluation_batches("test", max_tokens=64):
        seen |= decoded(module, batch)
    sources, references = module.pairs("test")
    assert (sources, references) == (lines("test", "x"), lines("test", "y"))
    assert seen == dict(enumerate(zip(sources, references, strict=True)))
    with pytest.raises(UserError, match="no split 'dev'"):
        next(module.evaluation_batches("dev"))


def test_filters_and_overlap_are_reported(root, caplog):
    with caplog.at_level(logging.INFO, logger="seq2seq.data"):
        data(root, length_ratio=1.5).prepare()
    assert "left out 3 of 300 training pairs: 2 with an empty side, 1 longer than data.max_length=100" in caplog.text
    assert (
        "test: 3 of 30 source segments are in the training data too, 2 of them with the same translation" in caplog.text
    )
    assert "valid:" not in caplog.text


@pytest.mark.parametrize("streaming", [False, True])
def test_text_that_the_tokenizer_cannot_write_is_reported(root, caplog, streaming):
    data(root, TokenizerSettings("word", 10, byte_fallback=False), streaming=streaming).prepare()
    split = "valid" if streaming else "train"
    assert re.search(rf"{split}: \d\d% of the source tokens are unknown .*raise tokenizer\.vocabulary", caplog.text)
    caplog.clear()
    data(root, streaming=streaming).prepare()
    assert "unknown" not in caplog.text


def test_text_of_another_script_than_the_tokenizers_is_reported_with_its_share_of_bytes(root, caplog):
    module = data(root)
    module.prepare()
    for split in ("train", "valid", "test"):
        texts = [f"\u05d0\u05d1{number} \u05d2\n" for number in range(len(lines(split, "x")))]
        (root / f"{split}.x").write_text("".join(texts), encoding="utf-8")
    assert "bytes" not in caplog.text
    data(root, tokenizers=module.tokenizers).prepare()
    assert re.search(
        r"train: \d\d% of the source tokens are single bytes: .*train a tokenizer on this text", caplog.text
    )
    assert "of the target tokens" not in caplog.text


def test_pairs_longer_than_a_batch_are_reported(root, caplog):
    data(root, max_tokens=10).prepare()
    assert re.search(r"\d+ training pairs have more than data.max_tokens=10 tokens, the longest \d+: ", caplog.text)


def test_max_words_filters_training_sources_alone(root, caplog):
    module = data(root, max_words=6)
    kept = {row for batch in module.train_loader() for row in batch.rows.tolist()}
    words = [len(source.split()) for source in lines("train", "x")]
    assert kept == {row for row, count in enumerate(words) if count <= 6} - {3, 5, 7}
    assert module.sizes["test"] == len(lines("test", "x"))
    longer = sum(count > 6 for row, count in enumerate(words) if row not in (3, 5, 7))
    assert f"{longer} of more than data.max_words=6 words" in caplog.text
    streamed = {row for batch in data(root, max_words=6, streaming=True).train_loader() for row in batch.rows.tolist()}
    assert streamed == kept
    with pytest.raises(UserError, match="max_words=0 must be positive"):
        data(root, max_words=0)


def test_target_that_repeats_the_source_is_reported(root, caplog):
    data(root).prepare()
    assert "are the same" not in caplog.text
    (root / "train.y").write_bytes((root / "train.x").read_bytes())
    data(root).prepare()
    assert "source and target of the first 100 training pairs are the same (x, y)" in caplog.text


def test_length_ratio_drops_unequal_pairs(root):
    (root / "train.y").write_text("".join(line + "\n" for line in ["word " * 60, *lines("train", "y")[1:]]))
    for ratio, kept in ((3.0, False), (100.0, True)):
        module = data(root, length_ratio=ratio, max_length=200)
        assert kept == (0 in {row for batch in module.train_loader() for row in batch.rows.tolist()})


@pytest.mark.parametrize("streaming", [True, False])
def test_unreadable_test_set_is_reported_before_tokenizers_are_trained(root, streaming):
    (root / "test.y").write_text("one\n")
    with pytest.raises(UserError, match=r"test\.x has 30 lines but .*test\.y has 1"):
        data(root, streaming=streaming).prepare()
    assert not list((root / "cache").glob("tokenizer*"))


def test_filters_that_leave_nothing_are_an_error(root):
    with pytest.raises(UserError, match="no training pair is left"):
        data(root, max_length=1).prepare()


def test_second_start_builds_nothing(root, monkeypatch):
    first = data(root)
    first.prepare()
    monkeypatch.setattr(preparation, "train_tokenizer", None)
    monkeypatch.setattr(preparation, "_encode", None)
    monkeypatch.setattr(preparation, "_overlap", None)
    second = data(root)
    second.prepare()
    second.prepare()
    assert second.sizes == first.sizes and second.tokenizers.state() == first.tokenizers.state()
    for a, b in zip(first.train_loader(), second.train_loader(), strict=True):
        assert same(a, b)


@pytest.mark.parametrize("change", ["tokenizer", "max_length", "length_ratio", "text", "joining"])
def test_changed_corpus_tokenizer_or_filter_never_reuses_ids(root, change):
    def train_ids(**options):
        module = data(root, **options)
        module.prepare()
        return {path.name for path in (root / "cache").glob("ids-train-*")}

    before = train_ids()
    if change == "text":
        (root / "train.x").write_text("".join(line + "!\n" for line in lines("train", "x")))
    options = {
        "tokenizer": {"tokenizer": TokenizerSettings(vocabulary=310)},
        "max_length": {"max_length": 99},
        "length_ratio": {"length_ratio": 3.0},
        "joining": {"concatenation": {"train": 2}},
    }
    assert train_ids(**options.get(change, {})) > before


@pytest.mark.parametrize("sampling", [0.0, 0.3])
def test_resume_at_any_batch_continues_exactly(root, sampling):
    settings = TokenizerSettings(vocabulary=320, sampling=sampling)

    def stream(loader):
        while True:
            yield from loader

    whole = data(root, settings).train_loader()
    count = len(whole)
    expected = list(islice(stream(whole), 2 * count + 3))
    for stop in (0, 1, count - 1, count, count + 2):
        interrupted = data(root, settings).train_loader()
        list(islice(stream(interrupted), stop))
        resumed = data(root, settings).train_loader()
        resumed.load_state_dict(interrupted.state_dict())
        for ours, theirs in zip(stream(resumed), expected[stop:], strict=False):
            assert same(ours, theirs), stop


def test_processes_share_an_epoch_without_overlap(root):
    shares = [[batch.rows.tolist() for batch in data(root).train_loader(rank, 2)] for rank in range(2)]
    assert len(shares[0]) == len(shares[1])
    rows = [row for share in shares for batch in share for row in batch]
    assert len(rows) == len(set(rows)) == 297


def test_joined_segments_reach_the_model(root):
    module = data(root, concatenation={"train": 3, "test": [2]})
    module.prepare()
    assert module.sizes["test_x2"] == 15 and module.sizes["test"] == 30
    assert 75 < module.sizes["train"] < 200


def test_pad_to_multiple_rounds_widths_up(root):
    for batch in data(root, pad_to_multiple_of=8).train_loader():
        assert batch.source.shape[1] % 8 == batch.target_in.shape[1] % 8 == 0


def test_trained_tokenizers_are_used_unchanged(root):
    module = data(root)
    module.prepare()
    again = data(root, TokenizerSettings(vocabulary=500), tokenizers=module.tokenizers)
    again.prepare()
    assert again.tokenizers is module.tokenizers and again.sizes == module.sizes


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char", "word"])
def test_sampling_needs_tokenizers_with_several_segmentations(root, kind):
    module = data(root, TokenizerSettings(kind, vocabulary=300))
    module.prepare()
    sampling = TokenizerSettings("bpe", sampling=0.1)
    if kind in ("unigram", "bpe"):
        data(root, sampling, tokenizers=module.tokenizers)
    else:
        with pytest.raises(UserError, match=r"tokenizer\.sampling=0\.1: these tokenizers have one segmentation"):
            data(root, sampling, tokenizers=module.tokenizers)


def test_large_vocabularies_need_wider_ids(root, monkeypatch):
    module = data(root)
    module.prepare()
    monkeypatch.setattr(type(module.tokenizers.source), "__len__", lambda self: 1 << 17)
    folder = root / "wide"
    folder.mkdir()
    preparation._encode(folder, module.corpus, "valid", module.tokenizers, None)
    wide, narrow = TokenStore(folder), module._store("valid")
    assert same(wide.batch(np.arange(20)), narrow.batch(np.arange(20)))
    assert (folder / "ids.bin").stat().st_size == 4 * (wide.source_lengths.sum() + wide.target_lengths.sum())


@pytest.mark.parametrize("option", ["max_tokens", "max_sentences", "max_length", "length_ratio", "pad_to_multiple_of"])
def test_impossible_values_are_refused(root, option):
    with pytest.raises(UserError, match=rf"data\.{option}=0"):
        data(root, **{option: 0})

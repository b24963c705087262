"""`TranslationData`: everything between a corpus and a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seq2seq.data.batching import BatchLoader, Integers, TokenBatchSampler, collate, cut
from seq2seq.data.cache import content_key
from seq2seq.data.concatenation import ConcatenatedCorpus
from seq2seq.data.corpora import Corpus, check_split
from seq2seq.data.preparation import SIDES, Filters, TokenStore, find_overlap, prepare_split, prepare_tokenizers
from seq2seq.data.streaming import EvaluationSplits, StreamedCorpus, StreamLoader, stream_tokenizers, texts_key
from seq2seq.data.table import Table
from seq2seq.data.tokenizer import TokenizerPair, TokenizerSettings
from seq2seq.errors import UserError
from seq2seq.interfaces import UNK, Batch

logger = logging.getLogger(__name__)

SAMPLE_TOKENS = 4096
"""Padded tokens of a batch of `TranslationData.sample_batches`."""


class TranslationData:
    """A corpus, its tokenizers and its batches.

    corpus: see seq2seq.data.corpora. tokenizer: how to train tokenizers. seed: for data order and subword sampling.
    tokenizers: trained ones; then only `sampling` of `tokenizer` counts. concatenation: keywords of
    ConcatenatedCorpus (`train`, `valid`, `test`, `passes`, `seed`).
    max_length, length_ratio, max_words: see Filters. max_tokens, max_sentences: size of a training batch, see
    TokenBatchSampler. pad_to_multiple_of: batch widths are rounded up to a multiple of it. pin_memory: training batches
    in pinned memory, where there is a GPU.
    streaming: read the training split while training instead of keeping it on disk, see StreamLoader. cache_dir: folder
    of tables, tokenizers and ids.

    `prepare()` first (it is idempotent and cheap when all is cached); then `tokenizers`, `sizes`, `vocabulary()`,
    `train_loader()`, `pairs(split)` and `evaluation_batches(split)` can be used.
    """

    tokenizers: TokenizerPair
    sizes: dict[str, int]
    """Pairs per split; "train" counts those that the filters keep, and is absent when streaming."""

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: TokenizerSettings,
        seed: int = 1,
        tokenizers: TokenizerPair | None = None,
        concatenation: Mapping[str, Any] | None = None,
        max_length: int = 256,
        length_ratio: float | None = None,
        max_words: int | None = None,
        max_tokens: int = 4096,
        max_sentences: int | None = None,
        pad_to_multiple_of: int = 1,
        pin_memory: bool = False,
        streaming: bool = False,
        cache_dir: str | Path = "data/cache",
    ):
        for name, value in (("max_tokens", max_tokens), ("pad_to_multiple_of", pad_to_multiple_of)):
            if value < 1:
                raise UserError(f"data.{name}={value} must be positive.")
        if max_sentences is not None and max_sentences < 1:
            raise UserError(f"data.max_sentences={max_sentences} must be positive.")
        if tokenizer.sampling and tokenizers and not (tokenizers.source.varies and tokenizers.target.varies):
            raise UserError(
                f"tokenizer.sampling={tokenizer.sampling}: these tokenizers have one segmentation of every word."
            )
        self._streamed: StreamedCorpus | None = None
        if streaming:
            if not isinstance(corpus, StreamedCorpus):
                raise UserError("data.streaming=true works with data=files, data=hub and others read from files.")
            if concatenation and (concatenation.get("train", 1) > 1 or concatenation.get("passes", 1) > 1):
                raise UserError("data.streaming=true cannot join training segments: set data.concatenation.train=1.")
            self._streamed = corpus
            corpus = EvaluationSplits(corpus, cache_dir)
        self.corpus = ConcatenatedCorpus(corpus, **(concatenation or {}), cache_dir=cache_dir)
        self.seed = seed
        self.filters = Filters(max_length, length_ratio, max_words)
        self.max_tokens = max_tokens
        self.max_sentences = max_sentences
        self.pad_to_multiple_of = pad_to_multiple_of
        self.pin_memory = pin_memory and torch.cuda.is_available()
        self.cache_dir = cache_dir
        self._tokenizer, self._trained = tokenizer, tokenizers
        self._stores: dict[str, TokenStore] | None = None

    @property
    def source_language(self) -> str:
        return self.corpus.source_language

    @property
    def target_language(self) -> str:
        return self.corpus.target_language

    def prepare(self) -> None:
        """Train or fetch tokenizers, encode every split. Raises UserError for anything wrong with the data."""
        if self._stores is not None:
            return
        for split in self.corpus.splits():
            self.corpus.load(split)  # unreadable text is reported before tokenizers are trained
        if self._trained:
            self.tokenizers = self._trained
        elif self._streamed:
            self.tokenizers = stream_tokenizers(self._streamed, self._tokenizer, self.cache_dir)
        else:
            self.tokenizers = prepare_tokenizers(self.corpus, self._tokenizer, self.cache_dir)
        stores = {}
        for split in self.corpus.splits():
            filters = self.filters if split == "train" else None
            stores[split] = prepare_split(self.corpus, split, self.tokenizers, filters, self.cache_dir)
        checked = "valid" if self._streamed else "train"
        if checked in stores:
            self._report_unknown(checked, stores[checked])
        if not self._streamed:
            self._report(stores["train"])
        self.sizes = {split: len(store) for split, store in stores.items()}
        self._stores = stores

    def _report(self, train: TokenStore) -> None:
        counts, filters = train.counts, self.filters
        logger.info("%d training pairs", len(train))
        if len(train) < counts["pairs"]:
            reasons = {
                "empty": "with an empty side",
                "too_long": f"longer than data.max_length={filters.max_length} tokens",
                "ratio": f"beyond data.length_ratio={filters.length_ratio}",
                "words": f"of more than data.max_words={filters.max_words} words",
            }
            logger.warning(
                "left out %d of %d training pairs: %s",
                counts["pairs"] - len(train),
                counts["pairs"],
                ", ".join(f"{counts[name]} {reason}" for name, reason in reasons.items() if counts[name]),
            )
        if not len(train):
            raise UserError("no training pair is left: see data.max_length, data.length_ratio and data.max_words.")
        lengths = np.maximum(train.source_lengths, train.target_lengths)
        if alone := int((lengths >= self.max_tokens).sum()):
            logger.warning(
                "%d training pairs have more than data.max_tokens=%d tokens, the longest %d: each is a batch alone, "
                "beyond that size, and slow; lower data.max_length",
                alone,
                self.max_tokens,
                lengths.max(),
            )
        first = self.corpus.load("train").rows(range(min(100, counts["pairs"])))
        if first["source"] == first["target"]:
            logger.warning(
                "source and target of the first %d training pairs are the same (%s, %s): see data.source_language, "
                "data.target_language and the names of the files or columns",
                len(first["source"]),
                self.source_language,
                self.target_language,
            )
        for split, shared in find_overlap(self.corpus, self.cache_dir).items():
            if shared["sources"]:
                logger.warning(
                    "%s: %d of %d source segments are in the training data too, %d of them with the same translation",
                    split,
                    shared["sources"],
                    shared["segments"],
                    shared["pairs"],
                )

    def _report_unknown(self, split: str, store: TokenStore) -> None:
        """Warn of text that the tokenizers lose, or spell in bytes because they were trained on other characters."""
        tokenizers = (self.tokenizers.source, self.tokenizers.target)
        for side, tokenizer, ids in zip(SIDES, tokenizers, store.sample(), strict=True):
            unknown, spelled = (
                np.isin(ids, pieces).sum() / max(1, len(ids)) for pieces in ([UNK], tokenizer.byte_pieces)
            )
            if unknown > 0.1:
                logger.warning(
                    "%s: %.0f%% of the %s tokens are unknown to the tokenizer, and lost; "
                    "raise tokenizer.vocabulary or set tokenizer.byte_fallback=true",
                    split,
                    100 * unknown,
                    side,
                )
            if spelled > 0.1:
                logger.warning(
                    "%s: %.0f%% of the %s tokens are single bytes: most of its characters are not in the vocabulary, "
                    "which makes it long and hard to learn; train a tokenizer on this text%s",
                    split,
                    100 * spelled,
                    side,
                    ", in a new run instead of one that continues a checkpoint" if self._trained else "",
                )

    def vocabulary(self) -> dict[str, Any]:
        """See `TokenizerPair.vocabulary`."""
        self.prepare()
        return self.tokenizers.vocabulary()

    def train_loader(self, rank: int = 0, world_size: int = 1) -> BatchLoader | StreamLoader:
        """Training batches, or the share of one process: each `iter` resumes where the last one stopped."""
        self.prepare()
        if self._streamed:
            return self._stream(rank, world_size, self._tokenizer.sampling)
        return self._batches(rank, world_size)

    @property
    def streaming(self) -> bool:
        """True if the training split is read while training instead of from a table."""
        return self._streamed is not None

    def _stream(self, rank: int, world_size: int, sampling: float) -> StreamLoader:
        assert self._streamed
        return StreamLoader(
            self._streamed,
            self.tokenizers,
            self.filters,
            self.max_tokens,
            self.seed,
            self.max_sentences,
            self.pad_to_multiple_of,
            sampling,
            self.pin_memory,
            rank,
            world_size,
        )

    def _batches(self, rank: int, world_size: int) -> BatchLoader:
        store = self._store("train")
        sampler = TokenBatchSampler(
            store.source_lengths,
            store.target_lengths,
            self.max_tokens,
            self.seed,
            self.max_sentences,
            self.pad_to_multiple_of,
            rank,
            world_size,
            store.order,
        )
        sampling = self._tokenizer.sampling
        make = self._sampled(sampler, sampling) if sampling else self._stored(store)
        return BatchLoader(sampler, make, self.pin_memory)

    def _store(self, split: str) -> TokenStore:
        self.prepare()
        check_split(self.corpus, split)
        assert self._stores
        return self._stores[split]

    def _stored(self, store: TokenStore) -> Callable[[Integers], Batch]:
        return lambda indices: store.batch(indices, self.pad_to_multiple_of)

    def _sampled(self, sampler: TokenBatchSampler, alpha: float) -> Callable[[Integers], Batch]:
        """Encode the texts of each batch again, seeded by the place of the batch in the training.

        Batches are cut by unsampled lengths, so that they may exceed max_tokens somewhat; a segment sampled longer
        than max_length keeps its usual ids.
        """
        table, store = self.corpus.load("train"), self._store("train")

        def make(indices: Integers) -> Batch:
            place = [self.seed, sampler.epoch, sampler.consumed, sampler.rank]
            seeds = np.random.SeedSequence(place).generate_state(2).tolist()
            rows = store.rows(indices)
            texts = table.rows(rows.tolist())
            sides = []
            for side, tokenizer, seed in zip(
                ("source", "target"), (self.tokenizers.source, self.tokenizers.target), seeds, strict=True
            ):
                sides.append(tokenizer.sample(texts[side], alpha, seed, self.filters.max_length))
            return collate(list(zip(*sides, strict=True)), rows, self.pad_to_multiple_of)

        return make

    def evaluation_batches(self, split: str, max_tokens: int | None = None) -> Iterator[Batch]:
        """Every pair of the split exactly once, sorted by length.

        max_tokens: as in training, data.max_tokens if None. Nothing is shortened or dropped.
        """
        store = self._store(split)
        yield from self._in_order(store, store.order, max_tokens or self.max_tokens)

    def sample_batches(self, count: int) -> Iterator[Batch]:
        """About `count` training pairs without subword sampling, the same in each call: evenly from the whole split and
        sorted by length; of a stream, the first."""
        if self._streamed:
            left = count
            for batch in self._stream(0, 1, sampling=0.0):
                yield batch
                if (left := left - len(batch)) <= 0:
                    return
            return
        store = self._store("train")
        yield from self._in_order(store, store.order[:: -(-len(store) // count)], SAMPLE_TOKENS)

    def _in_order(self, store: TokenStore, order: NDArray[np.int32], max_tokens: int) -> Iterator[Batch]:
        widths = np.maximum(store.source_lengths, store.target_lengths)[order].astype(np.int64) + 1
        for start, end in pairwise(cut(widths, max_tokens).tolist()):
            yield store.batch(order[start:end], self.pad_to_multiple_of)

    def longest(self, split: str, side: str) -> tuple[int, int]:
        """Tokens (without EOS) of the longest segment of a side, "source" or "target", and its row in the split."""
        store = self._store(split)
        lengths = {"source": store.source_lengths, "target": store.target_lengths}[side]
        if not len(lengths):
            return 0, 0
        place = int(np.argmax(lengths))
        return int(lengths[place]), int(store.rows(np.array([place]))[0])

    def table(self, split: str) -> Table:
        """The split as a memory-mapped table: columns source, target and, where the corpus has it, alignment."""
        return self.corpus.load(split)

    def pairs(self, split: str) -> tuple[list[str], list[str]]:
        """Untouched source and target texts of a whole split, in order, for evaluation."""
        table = self.table(split)
        return table.column("source"), table.column("target")

    @cached_property
    def fingerprint(self) -> str:
        """Key of the corpus; for a stream, of its evaluation splits and first pairs."""
        first = list(islice(self._streamed.read_pairs("train"), 1000)) if self._streamed else []
        return content_key(self.corpus.fingerprint(), texts_key(first))

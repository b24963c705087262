"""Batches of a corpus too large for a table on disk: read, encoded and batched pool by pool while training."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.batching import TokenBatchSampler, collate
from seq2seq.data.cache import cached_folder, content_key
from seq2seq.data.corpora import Corpus, check_split, load_table
from seq2seq.data.preparation import Filters, train_pair
from seq2seq.data.readers import Pair, batches
from seq2seq.data.table import Table
from seq2seq.data.tokenizer import TokenizerPair, TokenizerSettings
from seq2seq.errors import UserError
from seq2seq.interfaces import Batch

logger = logging.getLogger(__name__)

POOL = 50_000
"""Pairs that are batched together."""


@runtime_checkable
class StreamedCorpus(Corpus, Protocol):
    """A corpus that can be read without keeping it."""

    def read_pairs(self, split: str) -> Iterator[Pair]:
        """The split's pairs, in order, from their source."""
        ...


class EvaluationSplits:
    """The evaluation splits of a streamed corpus, kept as tables keyed by their text."""

    def __init__(self, corpus: StreamedCorpus, cache_dir: str | Path):
        self.source_language = corpus.source_language
        self.target_language = corpus.target_language
        self.cache_dir = cache_dir
        self._corpus = corpus

    @cached_property
    def _pairs(self) -> dict[str, list[Pair]]:
        return {split: list(self._corpus.read_pairs(split)) for split in self.splits()}

    def splits(self) -> list[str]:
        return [split for split in self._corpus.splits() if split != "train"]

    def load(self, split: str) -> Table:
        check_split(self, split)
        pairs = self._pairs[split]
        return load_table(self.cache_dir, f"text-{split}", texts_key(pairs), lambda: batches(pairs))

    def fingerprint(self) -> str:
        return content_key({split: texts_key(pairs) for split, pairs in self._pairs.items()})


def _lengths(side: list[list[int]]) -> NDArray[np.int32]:
    return np.fromiter(map(len, side), np.int32, len(side))


def texts_key(pairs: list[Pair]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for text in chain.from_iterable(pairs):
        data = text.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def stream_tokenizers(corpus: StreamedCorpus, settings: TokenizerSettings, cache_dir: str | Path) -> TokenizerPair:
    """Train tokenizers on the first pairs of the stream, up to settings.sentences sentences."""
    count = max(1, settings.sentences // 2 if settings.joint else settings.sentences)
    pairs = list(islice(corpus.read_pairs("train"), count))
    trained_by = {name: value for name, value in asdict(settings).items() if name != "sampling"}

    def build(folder: Path) -> None:
        logger.info("training %s tokenizers on the first %d pairs of the stream", settings.kind, len(pairs))
        train_pair(lambda *sides: (pair[side] for pair in pairs for side in sides), len(pairs), settings).save(folder)

    return TokenizerPair.load(cached_folder(cache_dir, "tokenizer", content_key(texts_key(pairs), trained_by), build))


class StreamLoader:
    """Training batches of a stream; each `iter` is one pass over it.

    POOL pairs of the stream at a time are encoded, filtered, and batched as TokenBatchSampler does: every pair once per
    pass, the same number of batches for each process, without overlap. All processes read and encode the whole stream;
    a pool of fewer pairs than processes is left out. Pairs never leave their pool, so a stream should come shuffled.

    An `iter` resumes where the last one stopped: `state_dict` holds the pass ("epoch"), the pool and the batches handed
    out of it ("handed_out"). To resume, earlier pairs are read but not encoded. The number of batches in a pass is not
    known: "batches" is 0, and "consumed" is 1 once the pass is done.
    """

    def __init__(
        self,
        corpus: StreamedCorpus,
        tokenizers: TokenizerPair,
        filters: Filters,
        max_tokens: int,
        seed: int,
        max_sentences: int | None = None,
        multiple: int = 1,
        sampling: float = 0.0,
        pin_memory: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ):
        self._corpus = corpus
        self._tokenizers = tokenizers
        self._filters = filters
        self._max_tokens, self._max_sentences, self._multiple = max_tokens, max_sentences, multiple
        self._seed, self._sampling, self._pin_memory = seed, sampling, pin_memory
        self._rank, self._world_size = rank, world_size
        self._state = {"epoch": 0, "pool": 0, "handed_out": 0, "done": 0}

    def __iter__(self) -> Iterator[Batch]:
        state = self._state
        if state["done"]:
            state.update(epoch=state["epoch"] + 1, pool=0, handed_out=0, done=0)
        pairs = self._corpus.read_pairs("train")
        first = state["pool"] * POOL
        if sum(1 for _ in islice(pairs, first)) < first:
            raise UserError("cannot resume: the stream is shorter than it was.")
        upcoming = list(islice(pairs, POOL))
        while upcoming:
            pool, upcoming = upcoming, list(islice(pairs, POOL))
            for last, batch in self._pool_batches(pool, state["pool"] * POOL):
                state["handed_out"] += 1
                state["done"] = int(last and not upcoming)
                yield batch.pin_memory() if self._pin_memory else batch
            if upcoming:
                state.update(pool=state["pool"] + 1, handed_out=0)
        state["done"] = 1

    def _pool_batches(self, pool: list[Pair], first: int) -> Iterator[tuple[bool, Batch]]:
        """Remaining batches of the pool, each after a flag: is it the last? first: the first row of the pool."""
        epoch, number = self._state["epoch"], self._state["pool"]
        order_seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        side_seeds = np.random.SeedSequence([self._seed, epoch, number]).generate_state(2).tolist()
        tokenizers = (self._tokenizers.source, self._tokenizers.target)
        texts = [[pair[side] for pair in pool] for side in (0, 1)]
        sides = [tokenizer.encode(each) for tokenizer, each in zip(tokenizers, texts, strict=True)]
        kept = np.flatnonzero(self._filters.keep(_lengths(sides[0]), _lengths(sides[1]), texts[0]))
        if len(kept) < len(pool) and not (first or epoch):
            logger.warning(
                "left out %d of the first %d training pairs: an empty side, or beyond data.max_length, "
                "data.length_ratio or data.max_words",
                len(pool) - len(kept),
                len(pool),
            )
        if self._sampling:
            sides = [
                tokenizer.sample(each, self._sampling, seed, self._filters.max_length)
                for tokenizer, each, seed in zip(tokenizers, texts, side_seeds, strict=True)
            ]
        lengths = [_lengths(side) for side in sides]
        if len(kept) < self._world_size:
            return
        sampler = TokenBatchSampler(
            lengths[0][kept],
            lengths[1][kept],
            self._max_tokens,
            order_seed,
            self._max_sentences,
            self._multiple,
            self._rank,
            self._world_size,
        )
        sampler.epoch, sampler.consumed = epoch, self._state["handed_out"]
        if sampler.consumed >= len(sampler):
            return
        for indices in sampler:
            rows = kept[indices]
            pairs = [(sides[0][row], sides[1][row]) for row in rows.tolist()]
            yield sampler.consumed == len(sampler), collate(pairs, first + rows, self._multiple)

    def state_dict(self) -> dict[str, int]:
        fixed = {"seed": self._seed, "world_size": self._world_size, "consumed": self._state["done"], "batches": 0}
        return {**self._state, **fixed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises UserError if the state is not one of this stream's."""
        own = self.state_dict()
        for name in own:
            if name not in state or (name in ("seed", "world_size") and state[name] != own[name]):
                raise UserError(
                    f"cannot resume: the checkpoint's data order has {name} {state.get(name)}, this run {own[name]}.\n"
                    "Resume with the same corpus, seed, number of processes and data.streaming, or start a new run."
                )
        self._state = {name: state[name] for name in self._state}

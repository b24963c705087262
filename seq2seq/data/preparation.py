"""From text tables to cached token ids: training of tokenizers, encoding, filtering, overlap of splits."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.batching import Integers, collate_flat, sort_by_length
from seq2seq.data.cache import cached_folder, content_key
from seq2seq.data.corpora import Corpus
from seq2seq.data.table import Table
from seq2seq.data.tokenizer import TokenizerPair, TokenizerSettings, train_tokenizer
from seq2seq.errors import UserError
from seq2seq.interfaces import Batch

logger = logging.getLogger(__name__)

VERSION = 3
"""Part of every key: raise it when preparation changes what it writes."""

SIDES = ("source", "target")


@dataclass(frozen=True)
class Filters:
    """Limits that training pairs must keep, besides having text on both sides. None: no limit.

    max_length: tokens of the longer side, without end marks. length_ratio: how many times as long as the shorter side
    the longer one may be. max_words: words of the source, separated by spaces.
    """

    max_length: int = 256
    length_ratio: float | None = None
    max_words: int | None = None

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise UserError(f"data.max_length={self.max_length} must be positive.")
        if self.length_ratio is not None and self.length_ratio < 1:
            raise UserError(f"data.length_ratio={self.length_ratio} must be at least 1.")
        if self.max_words is not None and self.max_words < 1:
            raise UserError(f"data.max_words={self.max_words} must be positive.")

    def keep(
        self, source: Integers, target: Integers, sources: Sequence[str], counts: dict[str, int] | None = None
    ) -> NDArray[np.bool_]:
        """Flags (n,) of the pairs that stay, by their lengths (n,) in tokens and their source texts.

        Dropped pairs are added to counts "empty", "too_long", "ratio" and "words".
        """
        shorter, longer = np.minimum(source, target), np.maximum(source, target)
        dropped = {"empty": shorter == 0, "too_long": longer > self.max_length}
        if self.length_ratio is not None:
            dropped["ratio"] = longer > self.length_ratio * shorter
        if self.max_words is not None:
            dropped["words"] = np.array([len(text.split()) > self.max_words for text in sources], dtype=bool)
        left = np.ones(len(source), dtype=bool)
        for name, flags in dropped.items():
            if counts is not None:
                counts[name] += int((left & flags).sum())
            left &= ~flags
        return left


def prepare_tokenizers(corpus: Corpus, settings: TokenizerSettings, cache_dir: str | Path) -> TokenizerPair:
    """Tokenizers trained on the training split alone, from the cache if they are there."""
    trained_by = {name: value for name, value in asdict(settings).items() if name != "sampling"}
    key = content_key(VERSION, corpus.fingerprint(), trained_by)

    def build(folder: Path) -> None:
        table = corpus.load("train")
        logger.info("training %s tokenizers on %d pairs", settings.kind, len(table))
        train_pair(lambda *sides: texts(table, *(SIDES[side] for side in sides)), len(table), settings).save(folder)

    return TokenizerPair.load(cached_folder(cache_dir, "tokenizer", key, build))


def train_pair(sides: Callable[..., Iterable[str]], count: int, settings: TokenizerSettings) -> TokenizerPair:
    """Train a pair on `count` text pairs. sides(0), sides(1) and sides(0, 1) yield source, target and all texts."""
    if settings.joint:
        tokenizer = train_tokenizer(lambda: sides(0, 1), 2 * count, settings)
        return TokenizerPair(tokenizer, tokenizer)
    return TokenizerPair(
        train_tokenizer(lambda: sides(0), count, settings), train_tokenizer(lambda: sides(1), count, settings)
    )


def texts(table: Table, *columns: str) -> Iterator[str]:
    """All texts of these columns, one table batch in memory at a time."""
    for batch in table.batches(*columns):
        for column in columns:
            yield from batch[column]


class TokenStore:
    """Token ids of one split, in a flat file that is read pair by pair, so that memory does not grow with the corpus.

    source_lengths, target_lengths (n,): tokens without end marks. order (n,): pairs sorted by length. counts: pairs in
    the split, and dropped ones by reason.
    """

    def __init__(self, folder: Path):
        self.source_lengths: Integers = np.load(folder / "source_lengths.npy")
        self.target_lengths: Integers = np.load(folder / "target_lengths.npy")
        self.order: NDArray[np.int32] = np.load(folder / "order.npy", mmap_mode="r")
        description = json.loads((folder / "description.json").read_text(encoding="utf-8"))
        self.counts: dict[str, int] = description["counts"]
        self._type = np.dtype(description["type"])
        self._file = open(folder / "ids.bin", "rb", buffering=0)  # noqa: SIM115 (open as long as the store)
        size = os.fstat(self._file.fileno()).st_size // self._type.itemsize
        self._starts: Integers = np.zeros(len(self) + 1, np.uint32 if size < 1 << 32 else np.int64)
        np.cumsum(self.source_lengths, out=self._starts[1:])
        self._starts[1:] += np.cumsum(self.target_lengths, dtype=self._starts.dtype)
        kept = folder / "rows.npy"
        self._rows: Integers | None = np.load(kept, mmap_mode="r") if kept.exists() else None

    def __len__(self) -> int:
        return len(self.source_lengths)

    def rows(self, indices: Integers) -> Integers:
        """Positions of these pairs in their split."""
        return indices if self._rows is None else self._rows[indices]

    def batch(self, indices: Integers, multiple: int = 1) -> Batch:
        """The Batch of these pairs; `Batch.rows` are their positions in the split."""
        source, target = self._read(indices)
        lengths = self.source_lengths[indices], self.target_lengths[indices]
        return collate_flat(source, lengths[0], target, lengths[1], self.rows(indices), multiple)

    def sample(self) -> tuple[Integers, Integers]:
        """Tokens of the source and of the target of about a thousand pairs, evenly from the whole split."""
        return self._read(np.arange(0, len(self), len(self) // 1000 + 1))

    def _read(self, indices: Integers) -> tuple[Integers, Integers]:
        size = self._type.itemsize
        starts = (self._starts[indices].astype(np.int64) * size).tolist()
        ends = (self._starts[indices + 1].astype(np.int64) * size).tolist()
        handle = self._file.fileno()
        joined = b"".join([os.pread(handle, end - start, start) for start, end in zip(starts, ends, strict=True)])
        ids = np.frombuffer(joined, dtype=self._type)
        lengths = np.stack([self.source_lengths[indices], self.target_lengths[indices]], axis=1).reshape(-1)
        is_source = np.repeat(np.arange(len(lengths)) % 2 == 0, lengths)
        return ids[is_source], ids[~is_source]


def prepare_split(
    corpus: Corpus, split: str, tokenizers: TokenizerPair, filters: Filters | None, cache_dir: str | Path
) -> TokenStore:
    """The split's token ids, from the cache if they are there. filters None keeps every pair."""
    models = {name: content_key(model.hex()) for name, model in tokenizers.state().items()}
    key = content_key(VERSION, corpus.fingerprint(), split, models, asdict(filters) if filters else None)
    folder = cached_folder(
        cache_dir, f"ids-{split}", key, lambda folder: _encode(folder, corpus, split, tokenizers, filters)
    )
    return TokenStore(folder)


def _encode(folder: Path, corpus: Corpus, split: str, tokenizers: TokenizerPair, filters: Filters | None) -> None:
    table = corpus.load(split)
    largest = max(len(tokenizers.source), len(tokenizers.target))
    id_type = np.dtype(np.uint16 if largest <= 1 << 16 else np.int32)
    threads = cores()
    counts = {"pairs": 0, "empty": 0, "too_long": 0, "ratio": 0, "words": 0}
    kept: list[tuple[Integers, Integers, Integers]] = []
    with open(folder / "ids.bin", "wb") as stream:
        for batch in table.batches("source", "target"):
            source = tokenizers.source.encode_arrays(batch["source"], threads)
            target = tokenizers.target.encode_arrays(batch["target"], threads)
            lengths = [np.fromiter(map(len, side), np.int32, len(side)) for side in (source, target)]
            rows = np.arange(counts["pairs"], counts["pairs"] + len(source))
            counts["pairs"] += len(source)
            if filters:
                keep = filters.keep(lengths[0], lengths[1], batch["source"], counts)
                source, target = list(compress(source, keep)), list(compress(target, keep))
                rows, lengths = rows[keep], [side[keep] for side in lengths]
            if source:
                ids = np.concatenate(list(chain.from_iterable(zip(source, target, strict=True))))
                stream.write(ids.astype(id_type).tobytes())
            kept.append((rows, lengths[0], lengths[1]))
    all_rows, all_source, all_target = (_compact(np.concatenate(parts)) for parts in zip(*kept, strict=True))
    np.save(folder / "source_lengths.npy", all_source)
    np.save(folder / "target_lengths.npy", all_target)
    np.save(folder / "order.npy", sort_by_length(all_source, all_target))
    if len(all_rows) < counts["pairs"]:
        np.save(folder / "rows.npy", all_rows)
    (folder / "description.json").write_text(json.dumps({"type": id_type.str, "counts": counts}), encoding="utf-8")


def cores() -> int:
    """CPU cores that this process may use, which taskset or SLURM may have made fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _compact(values: Integers) -> Integers:
    """The same values in the smallest of uint16, int32 and int64."""
    largest = int(values.max(initial=0))
    return values.astype(np.uint16 if largest < 1 << 16 else np.int32 if largest < 1 << 31 else np.int64)


def find_overlap(corpus: Corpus, cache_dir: str | Path) -> dict[str, dict[str, int]]:
    """Count the sources and the pairs of each evaluation split that the training split holds too."""

    def build(folder: Path) -> None:
        (folder / "overlap.json").write_text(json.dumps(_overlap(corpus)), encoding="utf-8")

    folder = cached_folder(cache_dir, "overlap", content_key(VERSION, corpus.fingerprint()), build)
    found: dict[str, dict[str, int]] = json.loads((folder / "overlap.json").read_text(encoding="utf-8"))
    return found


def _overlap(corpus: Corpus) -> dict[str, dict[str, int]]:
    import pyarrow as pa
    import pyarrow.compute as compute

    splits = {split: corpus.load(split).read() for split in corpus.splits() if split != "train"}
    wanted = pa.array(sorted({text for columns in splits.values() for text in columns["source"]} - {""}), pa.string())
    sources: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for batch in corpus.load("train").record_batches:
        shared: Any = batch.filter(compute.is_in(batch["source"], value_set=wanted))
        shared_sources, shared_targets = shared["source"].to_pylist(), shared["target"].to_pylist()
        sources.update(shared_sources)
        pairs.update(zip(shared_sources, shared_targets, strict=True))
    return {
        split: {
            "segments": len(columns["source"]),
            "sources": sum(text in sources for text in columns["source"]),
            "pairs": sum(pair in pairs for pair in zip(columns["source"], columns["target"], strict=True)),
        }
        for split, columns in splits.items()
    }

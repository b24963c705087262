"""Longer segments from short ones: training segments joined from neighbors, test sets joined k by k.

So a corpus of short sentences can show how models translate segments of more than 40 words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq.data.cache import content_key
from seq2seq.data.corpora import Corpus, load_table
from seq2seq.data.table import Columns, Table
from seq2seq.errors import UserError

VERSION = 1
ROWS = 10_000


class ConcatenatedCorpus:
    """A corpus whose segments are joined, with a space, from consecutive segments of another.

    train, valid: each segment of that split is joined from 1..k neighbors, the number drawn evenly; every original is
    used once (in training, once in each of `passes` differently joined copies, one after the other).
    test: for each k a further split `<test set>_x<k>` of every test set, joined from exactly k consecutive segments:
    row i holds the originals k*i .. k*i+k-1; fewer than k at the end are dropped. The test sets themselves stay.
    For more than one k also `<test set>_joined`, the segments of all of them together: from short to long in one set,
    so that one curve can be drawn through all lengths.
    Gold alignments are shifted with their words.
    """

    def __init__(
        self,
        corpus: Corpus,
        train: int = 1,
        valid: int = 1,
        test: Sequence[int] = (),
        passes: int = 1,
        seed: int = 1,
        cache_dir: str | Path = "data/cache",
    ):
        if isinstance(test, int):
            raise UserError(f"data.concatenation.test={test}: give a list, such as [{test}].")
        for name, value in (("train", train), ("valid", valid), ("passes", passes), *(("test", k) for k in test)):
            if value < 1:
                raise UserError(f"data.concatenation.{name}: {value} must be at least 1.")
        if passes > 1 and train == 1:
            raise UserError("data.concatenation.passes above 1 needs data.concatenation.train above 1.")
        self.source_language = corpus.source_language
        self.target_language = corpus.target_language
        self.corpus = corpus
        self.cache_dir = cache_dir
        self.passes = passes
        self.seed = seed
        self._most = {"train": train, "valid": valid}
        self._exactly: dict[str, tuple[str, tuple[int, ...]]] = {}
        sizes = tuple(sorted(set(test)))
        for split in corpus.splits():
            if split not in self._most:
                self._exactly |= {f"{split}_x{k}": (split, (k,)) for k in sizes if k > 1}
                if len(sizes) > 1:
                    self._exactly[f"{split}_joined"] = (split, sizes)
        if clash := set(self._exactly) & set(corpus.splits()):
            raise UserError(f"data.concatenation.test: the corpus already has a split {sorted(clash)[0]!r}.")

    def splits(self) -> list[str]:
        return [*self.corpus.splits(), *self._exactly]

    def fingerprint(self) -> str:
        return content_key(VERSION, self.corpus.fingerprint(), self._most, self._exactly, self.passes, self.seed)

    def origin(self, split: str) -> tuple[str, list[range]] | None:
        """The test set that a joined one is made of, and its segments in each row; None for other splits."""
        if split not in self._exactly:
            return None
        original, sizes = self._exactly[split]
        total = len(self.corpus.load(original))
        return original, [range(end - k, end) for k in sizes for end in range(k, total + 1, k)]

    def load(self, split: str) -> Table:
        original, sizes = self._exactly.get(split, (split, (self._most.get(split, 1),)))
        if split not in self._exactly and sizes == (1,):
            return self.corpus.load(split)
        joined = sizes if len(sizes) > 1 else sizes[0]
        key = content_key(VERSION, self.corpus.fingerprint(), original, joined, self.passes, self.seed)
        kind = f"text-{split}" if split in self._exactly else f"text-{split}-1to{sizes[0]}"
        return load_table(self.cache_dir, kind, key, lambda: self._tables(split))

    def _tables(self, split: str) -> Iterator[Columns]:
        if split in self._exactly:
            original, sizes = self._exactly[split]
            table = self.corpus.load(original)
            for k in sizes:
                if k > len(table):
                    raise UserError(f"data.concatenation.test: {k} is more than {original} has, {len(table)} segments.")
                yield from _join(table, (k for _ in range(len(table) // k)))
            return
        table = self.corpus.load(split)
        for copy in range(self.passes if split == "train" else 1):
            random = np.random.default_rng([self.seed, copy])
            yield from _join(table, _sizes(len(table), self._most[split], random))


def _sizes(total: int, most: int, random: np.random.Generator) -> Iterator[int]:
    """Numbers from 1 to `most` that add up to `total`."""
    while total:
        size = min(total, int(random.integers(1, most + 1)))
        total -= size
        yield size


def _join(table: Table, sizes: Iterator[int]) -> Iterator[Columns]:
    """Join consecutive rows of the table, groups of these sizes, in bounded memory."""
    rows = _rows(table)
    joined: Columns = {column: [] for column in table.column_names}
    for size in sizes:
        group = [next(rows) for _ in range(size)]
        for column, values in joined.items():
            parts = [row[column] for row in group]
            values.append(_shift(group) if column == "alignment" else _words(parts))
        if len(joined["source"]) == ROWS:
            yield joined
            joined = {column: [] for column in table.column_names}
    if joined["source"]:
        yield joined


def _rows(table: Table) -> Iterator[dict[str, Any]]:
    for batch in table.batches():
        yield from (dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True))


def _words(parts: list[str]) -> str:
    return " ".join(part.strip(" ") for part in parts if part.strip(" "))


def _shift(group: list[dict[str, Any]]) -> list[list[int]]:
    """Alignment links of all parts, each moved by the words before it."""
    links = []
    source = target = 0
    for row in group:
        links += [[source + a, target + b] for a, b in row["alignment"]]
        source += len(row["source"].split())
        target += len(row["target"].split())
    return links

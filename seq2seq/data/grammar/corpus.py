"""The built-in corpus: a synchronous English-German grammar that yields any number of aligned pairs.

Every English sentence has exactly one translation. The reordering is real: verb second with inversion, verb-final
subordinate and relative clauses, participles and infinitives at the end, separable verbs.
"""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
from multiprocessing import current_process, get_all_start_methods, get_context, get_start_method
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seq2seq.data.cache import cached_folder, content_key, file_digest
from seq2seq.data.grammar.lexicon import SHIFT
from seq2seq.data.grammar.phrases import Piece
from seq2seq.data.grammar.sampler import Sampler
from seq2seq.data.grammar.variants import variants
from seq2seq.data.table import Table
from seq2seq.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

SPLITS = ("train", "valid", "test")
BUCKETS = ((1, 9), (10, 19), (20, 29), (30, 39), (40, 49), (50, 59), (60, 10_000))
"""Source lengths in words, first and last, of each length bucket."""

SHORTEST, LONGEST = 3, 200
CHUNK_ROWS = 1000
_SHARES = 20
_SHARE_OF_SPLIT = {"valid": 0, "test": 1}
_ATTEMPTS = 100_000


@dataclass(frozen=True)
class _Recipe:
    """All settings that decide the text, and no others; picklable for worker processes.

    limits: shortest and longest source in words, of training and validation, and of tests.
    """

    seed: int
    limits: tuple[int, int]
    test_limits: tuple[int, int]
    weights: tuple[float, ...]
    reverse: bool
    variants: int = 1

    def buckets(self, split: str = "train") -> list[tuple[int, int, float]]:
        """(first length, last length, weight) of the buckets in use; for tests beyond training, all within limits."""
        own = self.limits if split != "test" else self.test_limits
        found = []
        for (low, high), weight in zip(BUCKETS, self.weights, strict=True):
            first, last = max(low, own[0]), min(high, own[1])
            trained = low <= self.limits[1] and high >= self.limits[0]
            if first <= last and (weight > 0 or not trained):
                found.append((first, last, weight))
        return found

    def generator(self, *key: object) -> Callable[[], float]:
        text = "/".join(map(str, (self.seed, *key)))
        return random.Random(int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")).random

    def orient(self, piece: Piece) -> Piece:
        """The pair with its source first."""
        if not self.reverse:
            return piece
        english, german, links, n, m = piece
        mask = (1 << SHIFT) - 1
        return german, english, tuple(sorted((link & mask) << SHIFT | link >> SHIFT for link in links)), m, n

    def chunk(self, number: int, rows: int) -> list[Piece]:
        """Rows number * CHUNK_ROWS and following of the training split, whatever other chunks hold."""
        uniform = self.generator("train", number)
        sampler = Sampler(uniform)
        buckets = self.buckets()
        total = sum(weight for _, _, weight in buckets)
        low, high = self.limits
        pairs: list[Piece] = []
        while len(pairs) < CHUNK_ROWS:
            first, last = _bucket(buckets, uniform() * total)
            piece = sampler.sentence(first + int(uniform() * (last - first + 1))).render()
            for variant in variants(piece, self.variants, uniform) if self.variants > 1 else (piece,):
                pair = self.orient(variant)
                if _share(pair[0]) > 1 and low <= pair[3] <= high:
                    pairs.append(pair)
        if self.variants > 1:
            pairs = [pair for _, pair in sorted((uniform(), pair) for pair in pairs[:CHUNK_ROWS])]
        return pairs[:rows]

    def evaluation(self, split: str, rows: int) -> list[Piece]:
        """Distinct sources that training never shows, the same number from every length bucket in use."""
        uniform = self.generator(split)
        sampler = Sampler(uniform)
        buckets, share = self.buckets(split), _SHARE_OF_SPLIT[split]
        seen: set[str] = set()
        pairs: list[Piece] = []
        for row in range(rows):
            first, last, _ = buckets[row % len(buckets)]
            for _ in range(_ATTEMPTS):
                pair = self.orient(sampler.sentence(first + int(uniform() * (last - first + 1))).render())
                source = pair[0]
                if _share(source) == share and source not in seen and first <= pair[3] <= last:
                    break
            else:
                raise UserError(
                    f"data.sizes.{split}={rows}: the grammar has too few distinct sentences of {first}-{last} words; "
                    f"{row} rows are possible here, or raise data.minimum_words"
                )
            seen.add(source)
            pairs.append(pair)
        return pairs


def _bucket(buckets: Sequence[tuple[int, int, float]], draw: float) -> tuple[int, int]:
    """Shortest and longest of the bucket in which `draw`, from 0 to the sum of their weights, falls."""
    for first, last, weight in buckets:
        draw -= weight
        if draw < 0:
            return first, last
    return buckets[-1][:2]


def _share(source: str) -> int:
    """0: validation, 1: test, 2 and above: training. A stable hash, so that splits are disjoint at any size."""
    return zlib.crc32(source.encode()) % _SHARES


def _record_batch(pairs: Sequence[Piece]) -> pa.RecordBatch:
    import pyarrow as pa

    links = np.fromiter((link for pair in pairs for link in pair[2]), np.int32)
    ends = np.cumsum([0, *(len(pair[2]) for pair in pairs)], dtype=np.int32)
    values = np.stack([links >> SHIFT, links & ((1 << SHIFT) - 1)], axis=1).reshape(-1)
    couples = pa.ListArray.from_arrays(pa.array(np.arange(0, len(values) + 1, 2, dtype=np.int32)), pa.array(values))
    columns = {
        "source": pa.array([pair[0] for pair in pairs], pa.string()),
        "target": pa.array([pair[1] for pair in pairs], pa.string()),
        "alignment": pa.ListArray.from_arrays(pa.array(ends), couples),
    }
    return pa.RecordBatch.from_pydict(columns)


def _training_batch(recipe: _Recipe, number: int, rows: int) -> pa.RecordBatch:
    return _record_batch(recipe.chunk(number, rows))


class GrammarCorpus:
    """English-German pairs from the built-in grammar, with gold word alignments.

    seed, sizes (rows of "train", "valid" and "test"), the length limits (words of the source, 3 to 200) and
    length_weights decide every sentence; the same values give the same text on every machine, and any 1000 rows of
    the training split can be generated alone. minimum_words and maximum_words hold for all splits; the limits that
    begin with `train_` replace them for training and validation, so that tests can go beyond the lengths of training.
    length_weights are seven relative frequencies of the source lengths 1-9, 10-19, ..., 50-59, 60 and more in the
    training split (None: every length is as frequent); within a bucket all lengths are equally likely. valid and test
    take the same number of segments from every bucket in use, hold no source twice, and share no source with another
    split.

    A word is a whitespace-separated token of the raw text, its punctuation included: "schläft," is one word. The
    column `alignment` lists pairs [source word, target word], 0-based and sorted. Every word is aligned. Words without
    a counterpart are aligned as the word that they belong to: do-support with the German finite verb, the
    auxiliary of the Perfekt and a separated prefix with the English verb, both words of "in the" with "im".

    With source_language="de" the columns are swapped; lengths are then drawn for the English side and the limits
    hold for the German one.

    variants > 1 draws that many training sentences from each derivation, exchanging nouns, adjectives, verbs, names and
    adverbs of one class: much faster, for corpora of millions of pairs, at the price of fewer distinct structures.
    processes > 1 generates the training split in parallel, with the same result. Splits are written once below
    cache_dir and memory-mapped from there.
    """

    def __init__(
        self,
        seed: int = 1,
        sizes: Mapping[str, int] | None = None,
        minimum_words: int = 3,
        maximum_words: int = 70,
        train_minimum_words: int | None = None,
        train_maximum_words: int | None = None,
        length_weights: Sequence[float] | None = None,
        source_language: str = "en",
        target_language: str = "de",
        variants: int = 1,
        processes: int = 1,
        cache_dir: str | Path = "data/cache",
    ) -> None:
        self.sizes = {"train": 40_000, "valid": 300, "test": 800}
        for split, rows in dict(sizes or {}).items():
            if split not in SPLITS:
                raise UserError(f"data.sizes.{split}: no such split; the grammar has train, valid and test")
            if not isinstance(rows, int) or rows < 1:
                raise UserError(f"data.sizes.{split}={rows}: must be a whole number, 1 or more")
            self.sizes[split] = rows
        tested = minimum_words, maximum_words
        trained = (
            minimum_words if train_minimum_words is None else train_minimum_words,
            maximum_words if train_maximum_words is None else train_maximum_words,
        )
        for prefix, (least, most) in (("", tested), ("train_", trained)):
            if not SHORTEST <= least <= most <= LONGEST:
                raise UserError(
                    f"data.{prefix}minimum_words={least}, data.{prefix}maximum_words={most}: "
                    f"must satisfy {SHORTEST} <= minimum <= maximum <= {LONGEST}"
                )
        if (source_language, target_language) not in (("en", "de"), ("de", "en")):
            raise UserError(
                f"data.source_language={source_language}, data.target_language={target_language}: "
                "the grammar speaks en and de, in either direction"
            )
        for key, value in (("variants", variants), ("processes", processes)):
            if value < 1:
                raise UserError(f"data.{key}={value}: must be 1 or more")
        if length_weights is None:
            weights = [float(max(0, min(high, trained[1]) - max(low, trained[0]) + 1)) for low, high in BUCKETS]
        else:
            weights = [float(weight) for weight in length_weights]
        reverse = source_language == "de"
        self._recipe = _Recipe(seed, trained, tested, tuple(weights), reverse, variants)
        if len(weights) != len(BUCKETS) or min(weights) < 0 or not self._recipe.buckets():
            raise UserError(
                f"data.length_weights={weights}: needs {len(BUCKETS)} numbers, none negative, and one above 0 for a "
                f"length from {trained[0]} to {trained[1]}"
            )
        self.source_language = source_language
        self.target_language = target_language
        self.processes = processes
        self.cache_dir = cache_dir

    def splits(self) -> list[str]:
        return list(SPLITS)

    def fingerprint(self) -> str:
        """Changes with every setting that changes the text, and with the grammar itself."""
        here = Path(__file__).parent
        grammar = [file_digest(path) for path in sorted([*here.glob("*.py"), *here.glob("words/*.tsv")])]
        return content_key(asdict(self._recipe), self.sizes, grammar)

    def load(self, split: str) -> Table:
        """The split as a memory-mapped table with columns source, target and alignment."""
        if split not in SPLITS:
            raise UserError(f"no split {split!r} in this corpus; it has {', '.join(SPLITS)}.")
        if self.processes > 1 and getattr(current_process(), "_inheriting", False):
            # A process of the pool is importing the script that made it, and would wait here for its own parent.
            raise UserError(
                f"processes={self.processes} imports the calling script in each of them\n"
                "Put the script's work under `if __name__ == '__main__':`, or use processes=1."
            )
        name = f"grammar-{split}"
        folder = cached_folder(self.cache_dir, name, self.fingerprint(), partial(self._write, split))
        return Table(folder / "table.arrow")

    def _write(self, split: str, folder: Path) -> None:
        import pyarrow as pa

        batches = self._batches(split)
        first = next(batches)
        with pa.OSFile(str(folder / "table.arrow"), "wb") as sink, pa.ipc.new_stream(sink, first.schema) as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)

    def _batches(self, split: str) -> Iterator[pa.RecordBatch]:
        """The split in order; of the training split only a few batches exist at a time."""
        rows, recipe = self.sizes[split], self._recipe
        if split != "train":
            yield _record_batch(recipe.evaluation(split, rows))
            return
        chunks = [(k, min(CHUNK_ROWS, rows - k * CHUNK_ROWS)) for k in range(-(-rows // CHUNK_ROWS))]
        if self.processes == 1 or len(chunks) == 1:
            for number, size in chunks:
                yield _training_batch(recipe, number, size)
            return
        if get_start_method() not in get_all_start_methods():
            raise UserError("data.processes above 1 does not work under hydra/launcher=joblib\nSet data.processes=1.")
        with ProcessPoolExecutor(self.processes, mp_context=get_context("spawn")) as pool:
            waiting: deque[Future[pa.RecordBatch]] = deque()
            try:
                for number, size in chunks:
                    waiting.append(pool.submit(_training_batch, recipe, number, size))
                    if len(waiting) > 4 * self.processes:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            except BrokenProcessPool as error:
                raise UserError(
                    "a process that generates text has died: see above for the reason, if it gave one\n"
                    "Set data.processes=1 to do without them."
                ) from error

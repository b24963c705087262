"""Corpora: anything that yields splits of text pairs, kept as memory-mapped tables.

A corpus names its languages and splits; `load(split)` gives a table whose rows never move, and `fingerprint()` changes
whenever the text or its settings do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

from seq2seq.data import readers, table_files
from seq2seq.data.cache import cached_folder, content_key, file_digest
from seq2seq.data.table import Columns, Table
from seq2seq.errors import UserError

VERSION = 1
"""Part of every key: raise it when reading changes what a table holds."""


class Corpus(Protocol):
    """Parallel text. Splits are "train", "valid", "test" and further test sets ("test_2017")."""

    source_language: str
    target_language: str

    def splits(self) -> list[str]: ...

    def load(self, split: str) -> Table:
        """The split as a memory-mapped table with string columns `source` and `target`.

        Corpora with gold word alignments add `alignment`: for each row a list of [source word, target word], from 0.
        """
        ...

    def fingerprint(self) -> str:
        """Key of the content and settings of the whole corpus."""
        ...


def load_table(cache_dir: str | Path, name: str, key: str, tables: Callable[[], Iterable[Columns]]) -> Table:
    """The cached table of that name and key, written batch by batch from `tables()` if need be.

    Raises UserError if there are no rows.
    """
    folder = cached_folder(cache_dir, name, key, partial(_write_table, name=name, tables=tables))
    return Table(folder / "table.arrow")


def _write_table(folder: Path, name: str, tables: Callable[[], Iterable[Columns]]) -> None:
    import pyarrow as pa

    schema = None
    with open(folder / "table.arrow", "wb") as sink:
        writer = None
        for columns in tables():
            if writer is None:
                types = {"alignment": pa.list_(pa.list_(pa.int32()))}
                schema = pa.schema([(column, types.get(column, pa.string())) for column in columns])
                writer = pa.ipc.new_stream(sink, schema)
            writer.write_batch(pa.RecordBatch.from_pydict(columns, schema=schema))
        if writer is None:
            raise UserError(f"{name} is empty: a split needs at least one pair.")
        writer.close()


def check_split(corpus: Corpus, split: str) -> None:
    """Raises UserError if the corpus has no such split."""
    if split not in corpus.splits():
        raise UserError(f"no split {split!r} in this corpus; it has {', '.join(corpus.splits())}.")


class FilesCorpus:
    """A user's own parallel text.

    splits maps each split to where it is, relative to `root` (null: there is none):
    - a path with ``{language}``: two line-aligned files, one per language (``train.{language}``);
    - a list of two paths, source and target;
    - one .tsv (with a header line), .jsonl / .json (an object per line) or .parquet file. Its columns are
      `source_column` and `target_column`, by default the language codes, `translation.<code>`, or source and target.
    Text may be plain or .gz, .xz, .zst; the name may lack that ending. Encoding is UTF-8.
    """

    def __init__(
        self,
        source_language: str,
        target_language: str,
        splits: Mapping[str, str | Sequence[str] | None],
        root: str | Path | None = None,
        source_column: str | None = None,
        target_column: str | None = None,
        cache_dir: str | Path = "data/cache",
    ):
        self.source_language = source_language
        self.target_language = target_language
        self.root = Path(root or ".").expanduser()
        self.columns = (source_column, target_column)
        self.cache_dir = cache_dir
        self._where = {split: where for split, where in splits.items() if where is not None}
        if "train" not in self._where:
            raise UserError("a corpus needs a training split: set data.train.")
        if any(self.columns) and all(not isinstance(at, str) or "{language}" in at for at in self._where.values()):
            raise UserError(
                f"data.source_column={source_column}, data.target_column={target_column}: no split is a table.\n"
                "Leave them out, or give one .tsv, .jsonl or .parquet file per split."
            )

    def splits(self) -> list[str]:
        return list(self._where)

    def load(self, split: str) -> Table:
        check_split(self, split)
        key = content_key(VERSION, self._digests[split], self.columns, self._languages)
        return load_table(self.cache_dir, f"text-{split}", key, lambda: self._read(split))

    def fingerprint(self) -> str:
        return content_key(VERSION, self._digests, self.columns, self._languages)

    @property
    def _languages(self) -> tuple[str, str]:
        return self.source_language, self.target_language

    @cached_property
    def _files(self) -> dict[str, tuple[Path, ...]]:
        if not self.root.is_dir():
            beside = "" if self.root.is_absolute() else f" in {Path.cwd()}"
            raise UserError(
                f"data.root={self.root} is not a folder{beside}.\nGive data.root=DIR, the folder of the text."
            )
        return {split: self._find(split, where) for split, where in self._where.items()}

    @cached_property
    def _digests(self) -> dict[str, list[str]]:
        return {split: [path.name + file_digest(path) for path in paths] for split, paths in self._files.items()}

    def _find(self, split: str, where: str | Sequence[str]) -> tuple[Path, ...]:
        if not isinstance(where, str | Sequence):
            raise UserError(f"split {split!r}: {where} is not a file's name; write it in quotes, as '\"{where}\"'.")
        if isinstance(where, str) and "{language}" not in where:
            return (self._existing(where),)
        if isinstance(where, str):
            where = [where.replace("{language}", language) for language in self._languages]
        if len(where) != 2:
            raise UserError(f"split {split!r}: expected two files, source and target, not {len(where)}.")
        paths = tuple(self._existing(path) for path in where)
        if paths[0] == paths[1]:
            raise UserError(
                f"split {split!r}: {paths[0]} would be both source and target.\n"
                "Set data.source_language and data.target_language, or name two files."
            )
        for path in paths:
            if _kind(path) in TABLES:
                raise UserError(
                    f"split {split!r}: {path} is a table, which holds both sides, where a file of lines must be.\n"
                    "Give one table per split (several joined into one), or rename it if its lines are plain text."
                )
        return paths

    def _existing(self, name: str) -> Path:
        for ending in readers.COMPRESSIONS:
            if (path := self.root / f"{name}{ending}").is_file():
                return path
        raise UserError(
            f"no file {self.root / name} (nor with .gz, .xz, .zst).\n"
            "Set data.root, the languages, or the split's own key (null for a split that you don't have)."
        )

    def _read(self, split: str) -> Iterator[Columns]:
        rows = 0
        for table in readers.batches(self.read_pairs(split)):
            rows += len(table["source"])
            yield table
        if not rows:
            raise UserError(f"split {split!r} is empty: no lines in {' and '.join(map(str, self._files[split]))}.")
        for path, digest in zip(self._files[split], self._digests[split], strict=True):
            if path.name + file_digest(path) != digest:
                raise UserError(f"{path} changed while it was read.\nStart again when it is complete.")

    def read_pairs(self, split: str) -> Iterator[readers.Pair]:
        """Pairs of the split straight from the files, in order."""
        paths = self._files[split]
        if len(paths) == 2:
            return readers.read_parallel(*paths)
        read = TABLES.get(_kind(paths[0]))
        if read is None:
            raise UserError(
                f"split {split!r}: {paths[0]} is one file, so it must be .tsv, .jsonl or .parquet.\n"
                "For two files write NAME.{language} or [SOURCE_FILE,TARGET_FILE]; for .csv use data=hub."
            )
        return read(paths[0], self.columns, self._languages)


TABLES: dict[str | None, Callable[..., Iterator[readers.Pair]] | None] = {
    ".tsv": table_files.read_tsv,
    ".jsonl": table_files.read_json_lines,
    ".json": table_files.read_json_lines,
    ".parquet": table_files.read_parquet,
    ".csv": None,
}
"""Readers of files that hold both sides, by ending; None: not supported."""


def _kind(path: Path) -> str | None:
    """Ending of the file, without that of its compression."""
    suffixes = [suffix.lower() for suffix in reversed(path.suffixes)]
    return next((suffix for suffix in suffixes if suffix not in readers.COMPRESSIONS), None)

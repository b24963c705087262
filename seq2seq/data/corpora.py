"""Corpora: anything that yields splits of text pairs, kept as memory-mapped tables.

A corpus names its languages and splits; `load(split)` gives a table whose rows never move, `fingerprint()` changes
whenever any text could.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

from seq2seq.data import readers, table_files
from seq2seq.data.cache import cached_folder, content_key, file_digest
from seq2seq.data.table import Columns, Table
from seq2seq.errors import UserError

VERSION = 2
"""Part of every key: raise it when reading changes what a table holds."""


class Corpus(Protocol):
    """Parallel text. Splits are "train", "valid", "test" and further test sets ("test_2017")."""

    source_language: str
    target_language: str

    def splits(self) -> list[str]: ...

    def load(self, split: str) -> Table:
        """The split as a memory-mapped table with string columns `source` and `target`.

        Corpora with gold word alignments add `alignment`: a list of [source word, target word] a row, from 0.
        """
        ...

    def fingerprint(self) -> str:
        """Key of the whole corpus' content and settings."""
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
    if split not in corpus.splits():
        raise UserError(f"no split {split!r} in this corpus; it has {', '.join(corpus.splits())}.")


class FilesCorpus:
    """A user's own parallel text.

    splits maps each split to where it is, relative to `root` (null entries are left out):
    - a path with ``{language}``: two line-aligned files, the languages put in (``train.{language}``);
    - a list of two paths, source and target;
    - one .tsv (with a header line), .jsonl / .json (an object a line) or .parquet file. Its columns are
      `source_column` and `target_column`, by default the language codes, `translation.<code>`, or source and target.
    Text may be plain or .gz, .xz, .zst; the ending may be left out. Encoding is UTF-8.
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
        if not self.root.is_dir():
            beside = "" if self.root.is_absolute() else f" in {Path.cwd()}"
            raise UserError(
                f"data.root={self.root} is not a folder{beside}.\nGive data.root=DIR, the folder of the text."
            )
        if any(self.columns) and all(not isinstance(at, str) or "{language}" in at for at in self._where.values()):
            raise UserError(
                f"data.source_column={source_column}, data.target_column={target_column}: no split is a table.\n"
                "Leave them out, or give one .tsv, .jsonl or .parquet file a split."
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
        for path in paths:
            if _kind(path) in TABLES:
                raise UserError(
                    f"split {split!r}: {path} is a table, which holds both sides, where a file of lines must be.\n"
                    "Give one table a split (join several into one), or rename it if its lines are plain text."
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
        """The split's pairs straight from the files, in order."""
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
"""Endings of files that hold both sides, and what reads them."""


def _kind(path: Path) -> str | None:
    """The file's ending, that of its compression left aside."""
    suffixes = [suffix.lower() for suffix in reversed(path.suffixes)]
    return next((suffix for suffix in suffixes if suffix not in readers.COMPRESSIONS), None)


class HubCorpus:
    """A data set from the Hugging Face hub, or a local folder in one of its forms (data files, or `save_to_disk`).

    splits maps ours to theirs ({"valid": "validation"}; their slicing syntax works, null leaves one out). Columns as in
    FilesCorpus; WMT's and OPUS' `translation` columns are found by language.
    """

    def __init__(
        self,
        path: str | None,
        source_language: str,
        target_language: str,
        splits: Mapping[str, str | None],
        name: str | None = None,
        revision: str | None = None,
        source_column: str | None = None,
        target_column: str | None = None,
        cache_dir: str | Path = "data/cache",
    ):
        if not path:
            raise UserError("data=hub needs data.root=NAME: the data set's name on the hub, or a folder.")
        self.source_language = source_language
        self.target_language = target_language
        self.path = str(Path(path).expanduser()) if path.startswith("~") else path
        self.name, self.revision = name, revision
        self.columns = (source_column, target_column)
        self.cache_dir = cache_dir
        self._theirs = {ours: theirs for ours, theirs in splits.items() if theirs is not None}
        self._loaded: dict[str, Any] = {}

    def splits(self) -> list[str]:
        return list(self._theirs)

    def load(self, split: str) -> Table:
        check_split(self, split)
        key = content_key(VERSION, *self._identity(split))
        return load_table(self.cache_dir, f"text-{split}", key, lambda: self._read(split))

    def fingerprint(self) -> str:
        return content_key(VERSION, {split: self._identity(split) for split in self._theirs})

    def _identity(self, split: str) -> list[Any]:
        source = self._source(split)
        shape = [source.num_rows, source.column_names]
        content = self._folder_digest if Path(self.path).is_dir() else source._fingerprint
        return [content, shape, self._theirs[split], self.columns, self.source_language, self.target_language]

    @cached_property
    def _folder_digest(self) -> list[str]:
        """Names and contents of the local folder's files; those of the cache, which may lie in it, aside."""
        own = Path(self.cache_dir).resolve()
        seen: set[Path] = set()
        files = []
        for folder, inner, names in os.walk(self.path, followlinks=True):
            here = Path(folder)
            inner[:] = [name for name in inner if (here / name).resolve() not in {own, *seen}]
            seen.update((here / name).resolve() for name in inner)
            files += [here / name for name in names if (here / name).is_file()]
        return [f"{path.relative_to(self.path)} {file_digest(path)}" for path in sorted(files)]

    @cached_property
    def _prepared(self) -> str:
        """Folder of the library's own cache: one per content of a local folder, which the library does not check."""
        folder = Path(self.cache_dir) / "hub"
        return str(folder / content_key(self._folder_digest) if Path(self.path).is_dir() else folder)

    def _source(self, split: str) -> Any:
        if split not in self._loaded:
            self._loaded[split] = self._open(self._theirs[split])
        return self._loaded[split]

    def read_pairs(self, split: str) -> Iterator[readers.Pair]:
        """The split's pairs in order, streamed from the hub (or the local files) without keeping them."""
        for columns in self._columns(self._open(self._theirs[split], streaming=True)):
            yield from zip(columns["source"], columns["target"], strict=True)

    def _open(self, theirs: str, streaming: bool = False) -> Any:
        """A Dataset, or when streaming something that can be iterated in the same way."""
        import datasets

        if streaming and "[" in theirs:
            raise UserError(f"split {theirs}: a part of a split cannot be streamed\nGive data.streaming=false.")
        try:
            if any((Path(self.path) / name).is_file() for name in ("dataset_dict.json", "dataset_info.json")):
                return _saved_split(datasets.load_from_disk(self.path), theirs)
            settings: dict[str, Any] = {"name": self.name, "revision": self.revision, "cache_dir": self._prepared}
            is_csv = hasattr(datasets.load_dataset_builder(self.path, **settings).config, "keep_default_na")
            if is_csv:
                settings["keep_default_na"] = False  # "null" and "NA" are text
            found = datasets.load_dataset(self.path, split=theirs, streaming=streaming, **settings)
            if is_csv and not streaming:
                text = datasets.Features({name: datasets.Value("string") for name in found.column_names})
                if found.features != text:  # "007" is text
                    found = datasets.load_dataset(self.path, split=theirs, features=text, **settings)
            return found
        except Exception as error:
            local = Path(self.path).exists() or Path(self.path).is_absolute()
            way_out = (
                "Check the folder's files and the split's own key (null for a split that you don't have)."
                if local
                else "Check name and network, or point data.root to a local copy."
            )
            where = f"{self.path} ({self.name or 'default'}), split {theirs}"
            raise UserError(f"cannot load {where}: {_reason(error)}\n{way_out}") from error

    def _read(self, split: str) -> Iterator[Columns]:
        return self._columns(self._source(split))

    def _columns(self, table: Any) -> Iterator[Columns]:
        sides = (("source", self.columns[0], self.source_language), ("target", self.columns[1], self.target_language))
        missing = table_files.MissingCells(self.path)
        for batch in table.iter(batch_size=readers.BATCH_ROWS):
            columns = {}
            for side, wanted, language in sides:
                name = table_files.find_column(self.path, _names(batch), wanted, language, side)
                head, _, inner = name.partition(".")
                texts = batch[name] if name in batch else [cell and cell[inner] for cell in batch[head]]
                if not all(isinstance(text, str | None) for text in texts):
                    raise UserError(f"{self.path}: column {name!r} does not hold text.")
                columns[side] = [missing.clean(text) for text in texts]
            yield columns
        missing.report()


def _reason(error: BaseException) -> str:
    """In a line, what the error and the first of its causes say."""
    first = error
    while first.__cause__:
        first = first.__cause__
    said = [str(each).strip().partition("\n")[0][:200] or type(each).__name__ for each in (error, first)]
    return ": ".join(dict.fromkeys(said))


def _saved_split(saved: Any, theirs: str) -> Any:
    """What `theirs`, a split's name or a slice such as train[:80%], is of a saved DatasetDict or Dataset; the latter
    goes by the name it was saved with, or train."""
    import datasets

    named = saved if isinstance(saved, dict) else {str(saved.split or "train"): saved}
    sizes = {name: len(part) for name, part in named.items()}
    places = datasets.ReadInstruction.from_spec(theirs).to_absolute(sizes)
    parts = [named[place.splitname].select(range(place.from_, place.to)) for place in places]
    return parts[0] if len(parts) == 1 else datasets.concatenate_datasets(parts)


def _names(batch: Columns) -> list[str]:
    """Names of a batch's columns, and column.key for those that hold dictionaries."""
    first = {name: next((cell for cell in cells if cell is not None), None) for name, cells in batch.items()}
    nested = [f"{name}.{key}" for name, cell in first.items() if isinstance(cell, dict) for key in cell]
    return [*batch, *nested]

"""Corpora: anything that yields splits of text pairs, kept as memory-mapped tables.

A corpus names its languages and splits; `load(split)` gives a table whose rows never move, `fingerprint()` changes
whenever any text could.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

from seq2seq.data import readers
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
            raise UserError(f"data.root={self.root} is not a folder.")
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
        if not isinstance(where, str):
            if len(where) != 2:
                raise UserError(f"split {split!r}: expected two files, source and target, not {len(where)}.")
            return tuple(self._existing(path) for path in where)
        if "{language}" in where:
            return tuple(self._existing(where.replace("{language}", language)) for language in self._languages)
        return (self._existing(where),)

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

    def read_pairs(self, split: str) -> Iterator[readers.Pair]:
        """The split's pairs straight from the files, in order."""
        paths = self._files[split]
        if len(paths) == 2:
            return readers.read_parallel(*paths)
        suffixes = [suffix.lower() for suffix in reversed(paths[0].suffixes)]
        kind = next((suffix for suffix in suffixes if suffix not in readers.COMPRESSIONS), "")
        read = {
            ".tsv": readers.read_tsv,
            ".jsonl": readers.read_json_lines,
            ".json": readers.read_json_lines,
            ".parquet": readers.read_parquet,
        }.get(kind)
        if read is None:
            raise UserError(
                f"split {split!r}: {paths[0]} is one file, so it must be .tsv, .jsonl or .parquet.\n"
                "For two files write NAME.{language} or [SOURCE_FILE,TARGET_FILE]."
            )
        return read(paths[0], self.columns, self._languages)


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
        files = sorted(path for path in Path(self.path).rglob("*") if path.is_file())
        return [f"{path.relative_to(self.path)} {file_digest(path)}" for path in files]

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
            prepared = str(Path(self.cache_dir) / "hub")
            return datasets.load_dataset(
                self.path, self.name, split=theirs, revision=self.revision, cache_dir=prepared, streaming=streaming
            )
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
        for batch in table.iter(batch_size=readers.BATCH_ROWS):
            columns = {}
            for side, wanted, language in sides:
                name = readers.find_column(self.path, _names(batch), wanted, language, side)
                head, _, inner = name.partition(".")
                texts = batch[name] if name in batch else [cell and cell[inner] for cell in batch[head]]
                if not all(isinstance(text, str | None) for text in texts):
                    raise UserError(f"{self.path}: column {name!r} does not hold text.")
                columns[side] = [readers.clean(text) for text in texts]
            yield columns


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

"""Corpora from the Hugging Face hub, or from local folders of the same forms."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from seq2seq.data import readers, table_files
from seq2seq.data.cache import content_key, file_digest
from seq2seq.data.corpora import check_split, load_table
from seq2seq.data.table import Columns, Table
from seq2seq.errors import UserError

VERSION = 2
"""Part of every key: raise it when reading changes what a table holds."""


class HubCorpus:
    """A data set from the Hugging Face hub, or a local folder in one of its forms (data files, or `save_to_disk`).

    splits maps our names to theirs ({"valid": "validation"}; null: there is none); slices such as train[:80%] work.
    Columns as in FilesCorpus; the `translation` columns of WMT and OPUS are found by language.
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
        """Names and contents of the files in the local folder, except those of our cache, which may lie in it."""
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
        """Pairs of the split in order, streamed from the hub (or the local files) without keeping them."""
        for columns in self._columns(self._open(self._theirs[split], streaming=True)):
            yield from zip(columns["source"], columns["target"], strict=True)

    def _open(self, theirs: str, streaming: bool = False) -> Any:
        """A Dataset, or an IterableDataset when streaming."""
        import datasets

        if streaming and "[" in theirs:
            raise UserError(f"split {theirs}: a slice of a split cannot be streamed.\nSet data.streaming=false.")
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
        languages = self.source_language, self.target_language
        missing = table_files.MissingCells(self.path)
        for batch in table.iter(batch_size=readers.BATCH_ROWS):
            columns = {}
            found = table_files.find_columns(self.path, _names(batch), self.columns, languages)
            for side, name in zip(("source", "target"), found, strict=True):
                head, _, inner = name.partition(".")
                texts = batch[name] if name in batch else [cell and cell[inner] for cell in batch[head]]
                if not all(isinstance(text, str | None) for text in texts):
                    raise UserError(f"{self.path}: column {name!r} does not hold text.")
                columns[side] = [missing.clean(text) for text in texts]
            yield columns
        missing.report()


def _reason(error: BaseException) -> str:
    """Messages of the error and of its first cause, on one line."""
    first = error
    while first.__cause__:
        first = first.__cause__
    said = [str(each).strip().partition("\n")[0][:200] or type(each).__name__ for each in (error, first)]
    return ": ".join(dict.fromkeys(said))


def _saved_split(saved: Any, theirs: str) -> Any:
    """Rows of a saved DatasetDict or Dataset that `theirs` names: a split or a slice such as train[:80%].

    A Dataset has the split name that it was saved with, or train.
    """
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

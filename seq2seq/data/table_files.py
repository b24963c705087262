"""Text pairs from tables: TSV, JSON lines and Parquet, errors named with file and line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seq2seq.data.readers import BATCH_ROWS, Pair, check_line_ends, clean, read_lines
from seq2seq.errors import UserError

logger = logging.getLogger(__name__)

Names = tuple[str | None, str | None]


class MissingCells:
    """Counts the cells of a table that hold no text (null), and reports them once."""

    def __init__(self, where: object):
        self.where = where
        self.count = 0

    def clean(self, text: str | None) -> str:
        """`clean` of a cell, null counted."""
        self.count += text is None
        return clean(text)

    def report(self) -> None:
        if self.count:
            logger.warning("%s: %d cells without text (null) are taken as empty", self.where, self.count)


def find_columns(
    path: object, names: Sequence[str], wanted: Names, languages: tuple[str, str], hint: str = ""
) -> tuple[str, str]:
    """The columns of source and target: as named, or called after the language, or inside a `translation` column.

    Spaces around a name do not count. hint: what else the user can do if one is missing.
    """
    left = _find_column(path, names, wanted[0], languages[0], "source", hint)
    right = _find_column(path, names, wanted[1], languages[1], "target", hint)
    if left == right:
        raise UserError(
            f"{path}: column {left!r} would be both source and target.\n"
            "Name two columns with data.source_column and data.target_column."
        )
    return left, right


def _find_column(path: object, names: Sequence[str], wanted: str | None, language: str, side: str, hint: str) -> str:
    choices = [wanted] if wanted else [language, f"translation.{language}", side]
    stripped = [name.strip() for name in names]
    found = next((choice for choice in choices if choice.strip() in stripped), None)
    if found is None:
        raise UserError(
            f"{path} has no column {' or '.join(map(repr, choices))}; it has {_listed(names)}.\n"
            f"{hint}Name the column with data.{side}_column=NAME."
        )
    if (count := stripped.count(found.strip())) > 1:
        raise UserError(f"{path} has {count} columns called {found!r}: rename all but one.")
    return names[stripped.index(found.strip())]


def _listed(names: Sequence[str]) -> str:
    """The first names, shortened: a file without a header may hold whole lines, or all of its text, in their place."""
    shown = [repr(name if len(name) <= 40 else f"{name[:40]}...") for name in names[:10]]
    return ", ".join(shown) + (f" and {len(names) - 10} more" if len(names) > 10 else "") if shown else "none"


def read_tsv(path: Path, columns: Names, languages: tuple[str, str]) -> Iterator[Pair]:
    """Tab-separated values with a header line. Quotes mean nothing; a field cannot hold a tab or a line end."""
    lines = read_lines(path)
    header = next(lines, "")
    check_line_ends(path, header)
    names = header.split("\t")
    hint = f"The first line of a TSV names its columns: put {languages[0]}<TAB>{languages[1]} on top. "
    left, right = map(names.index, find_columns(path, names, columns, languages, hint))
    quoted = False
    for number, line in enumerate(lines, start=2):
        fields = line.split("\t")
        if len(fields) != len(names):
            raise UserError(
                f"{path}, line {number}: {len(fields)} fields where the header has {len(names)}.\n"
                "A text cannot hold a tab or a line end: put spaces in their place."
            )
        if not quoted and '""' in line and (_is_quoted(fields[left]) or _is_quoted(fields[right])):
            quoted = True
            logger.warning(
                "%s, line %d: a quoted field is taken with its quotes; let what quotes fields write .jsonl or .parquet",
                path,
                number,
            )
        yield fields[left], fields[right]


def _is_quoted(field: str) -> bool:
    """True if the field looks as the csv module and pandas write a text that holds quotes."""
    return field.startswith('"') and field.endswith('"') and '""' in field[1:-1]


def read_json_lines(path: Path, columns: Names, languages: tuple[str, str]) -> Iterator[Pair]:
    """One JSON object per line; `a.b` names the value of "b" inside that of "a"; null is empty text."""
    names: tuple[str, str] | None = None
    missing = MissingCells(path)
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        record = _flatten(_json_object(line, where))
        if names is None:
            found = list(record)
            if record.get("translation", where) is None:
                found += [f"translation.{language}" for language in languages]
            names = find_columns(where, found, columns, languages)
        texts = []
        for name in names:
            value = record.get(name, where)
            if value is where and record.get(name.partition(".")[0], where) is None:
                value = None
            if value is where or not isinstance(value, str | None):
                raise UserError(f"{where}: no text under {name!r}.")
            texts.append(missing.clean(value))
        yield texts[0], texts[1]
    missing.report()


def _json_object(line: str, where: str) -> dict[str, Any]:
    """The JSON object on a line. where: its file and line, for the UserError that anything else raises."""
    try:
        record = json.loads(line, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not a JSON object ({error}).") from error
    if not isinstance(record, dict):
        raise UserError(f"{where}: not a JSON object (expected {{ ... }} on each line, not a list of them).")
    return record


def _unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(items)
    if len(record) != len(items):
        raise ValueError("a key appears twice")
    return record


def _flatten(record: dict[str, Any]) -> dict[str, Any]:
    flat = {}
    for key, value in record.items():
        flat[key] = value
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": text for inner, text in value.items()})
    return flat


def read_parquet(path: Path, columns: Names, languages: tuple[str, str]) -> Iterator[Pair]:
    """Two string columns (or fields of struct columns) of a Parquet file; null is empty text."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    missing = MissingCells(path)
    try:
        with parquet.ParquetFile(path) as file:
            names = [name for field in file.schema_arrow for name in _nested_names(field, pa)]
            left, right = find_columns(path, names, columns, languages)
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=[left, right]):
                texts = [_column(batch, name, path) for name in (left, right)]
                yield from zip(*([missing.clean(text) for text in side] for side in texts), strict=True)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"cannot read {path} as Parquet: {str(error).splitlines()[0]}") from error
    missing.report()


def _nested_names(field: Any, pa: Any) -> list[str]:
    inner = [f"{field.name}.{child.name}" for child in field.type] if pa.types.is_struct(field.type) else []
    return [field.name, *inner]


def _column(batch: Any, name: str, path: Path) -> list[str | None]:
    head, _, rest = name.partition(".")
    column = batch.column(name) if name in batch.schema.names else batch.column(head).field(rest)
    values: list[Any] = column.to_pylist()
    if not all(isinstance(value, str | None) for value in values):
        raise UserError(f"{path}: column {name!r} does not hold text.")
    return values

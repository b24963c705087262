"""Rows of a corpus on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 20_000

Columns = dict[str, list[Any]]
"""Values of some rows by the name of their column."""


class Table:
    """An Arrow stream (.arrow), memory-mapped: only rows that are asked for are read."""

    def __init__(self, path: str | Path):
        import pyarrow as pa

        reader = pa.ipc.open_stream(pa.memory_map(str(path)))
        self.column_names: list[str] = reader.schema.names
        self.record_batches: list[pa.RecordBatch] = list(reader)
        self._ends = np.cumsum([batch.num_rows for batch in self.record_batches])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def column(self, name: str) -> list[Any]:
        return [value for batch in self.record_batches for value in batch.column(name).to_pylist()]

    def read(self) -> Columns:
        """All rows."""
        return {name: self.column(name) for name in self.column_names}

    def rows(self, indices: Sequence[int]) -> Columns:
        """These rows, in this order."""
        batches = np.searchsorted(self._ends, indices, side="right").tolist()
        places = [
            (self.record_batches[batch], index - int(self._ends[batch - 1] if batch else 0))
            for batch, index in zip(batches, indices, strict=True)
        ]
        return {name: [batch.column(name)[place].as_py() for batch, place in places] for name in self.column_names}

    def batches(self, *columns: str) -> Iterator[Columns]:
        """All rows in order, about BATCH_ROWS at a time. columns: all if none is named."""
        names = columns or self.column_names
        found: Columns = {name: [] for name in names}
        for number, batch in enumerate(self.record_batches, 1):
            for name, values in found.items():
                values += batch.column(name).to_pylist()
            if len(found[names[0]]) >= BATCH_ROWS or number == len(self.record_batches):
                yield found
                found = {name: [] for name in names}

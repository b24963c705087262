import pyarrow as pa
import pytest

from seq2seq.data import table
from seq2seq.data.table import Table

SIZES = (3, 1, 4)


@pytest.fixture
def numbers(tmp_path):
    """Rows 0 to 7 in three record batches."""
    path = tmp_path / "table.arrow"
    schema = pa.schema([("source", pa.string()), ("alignment", pa.list_(pa.int32()))])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        first = 0
        for size in SIZES:
            rows = range(first, first + size)
            columns = {"source": [f"s{n}" * 1000 for n in rows], "alignment": [[n] for n in rows]}
            writer.write_batch(pa.RecordBatch.from_pydict(columns, schema=schema))
            first += size
    return path


def test_columns_and_rows_equal_the_written_values(numbers):
    found = Table(numbers)
    assert len(found) == 8 and found.column_names == ["source", "alignment"]
    assert found.column("alignment") == [[n] for n in range(8)]
    assert found.read()["source"] == [f"s{n}" * 1000 for n in range(8)]
    picked = found.rows([7, 0, 3, 2, 4, 0])
    assert picked["alignment"] == [[7], [0], [3], [2], [4], [0]]
    assert picked["source"] == [f"s{n}" * 1000 for n in (7, 0, 3, 2, 4, 0)]
    with pytest.raises(IndexError):
        found.rows([8])


@pytest.mark.parametrize(("rows", "sizes"), [(1, [3, 1, 4]), (4, [4, 4]), (5, [8]), (100, [8])])
def test_batches_join_small_record_batches(numbers, monkeypatch, rows, sizes):
    monkeypatch.setattr(table, "BATCH_ROWS", rows)
    batches = list(Table(numbers).batches("alignment"))
    assert [len(batch["alignment"]) for batch in batches] == sizes
    assert [number for batch in batches for (number,) in batch["alignment"]] == list(range(8))
    assert all(set(batch) == {"alignment"} for batch in batches)


def test_table_is_mapped_and_not_read(numbers):
    before = pa.total_allocated_bytes()
    found = Table(numbers)
    assert pa.total_allocated_bytes() == before
    assert found.rows([5])["source"] == ["s5" * 1000]

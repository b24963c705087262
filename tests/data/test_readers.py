"""The readers against plain Python on random bytes, and against every kind of damage."""

import bz2
import gzip
import io
import json
import lzma

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.data import readers, table_files
from seq2seq.errors import UserError

COMPRESS = {
    "plain": bytes,
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": lambda data: zstandard.ZstdCompressor().compress(data),
}
SEPARATORS = "\u2028\u2029\x0b\x0c\x1c\x1d\x1e\x85\0\t\r\ufeff "
LINE = st.text(
    st.one_of(st.sampled_from(SEPARATORS), st.characters(exclude_characters="\n", exclude_categories=["Cs"]))
)


@pytest.mark.parametrize("kind", COMPRESS)
@settings(max_examples=60, deadline=None)
@given(lines=st.lists(LINE, max_size=8), ending=st.sampled_from(["\n", "\r\n"]), last=st.booleans(), bom=st.booleans())
def test_read_lines_ends_lines_at_line_feeds_alone(tmp_path_factory, kind, lines, ending, last, bom):
    data = b"".join((line + ending).encode() for line in lines)
    if not last and lines and lines[-1]:  # the last line end may be missing
        data = data[: -len(ending)]
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes(COMPRESS[kind]((readers.BOM if bom else b"") + data))
    text = data.removeprefix(b"" if bom else readers.BOM).decode()
    expected = text.split("\n")
    if expected[-1] == "":
        expected.pop()
    assert list(readers.read_lines(path)) == [line.removesuffix("\r") for line in expected]


def test_files_whose_lines_end_in_cr_are_named(tmp_path):
    (tmp_path / "cr").write_bytes(b"one\rtwo\r")
    (tmp_path / "lf").write_bytes(b"one and two\n")
    for files in (("cr", "lf"), ("lf", "cr")):
        with pytest.raises(UserError, match=r"cr: lines end in CR .*\n.*tr '\\r'"):
            list(readers.read_parallel(*(tmp_path / name for name in files)))
    (tmp_path / "t.tsv").write_bytes(b"en\tde\r" + b"a\tb\r" * 1000)
    with pytest.raises(UserError, match=r"t.tsv: lines end in CR"):
        list(table_files.read_tsv(tmp_path / "t.tsv", (None, None), ("en", "de")))


@pytest.mark.parametrize("chunk", [3, 4, 7, 64])
def test_read_lines_of_any_chunk_size_gives_the_same(tmp_path, monkeypatch, chunk):
    lines = ["", "äöü€😀", "a\rb", "x" * 50, "\u2028", "end"]
    path = tmp_path / "text"
    path.write_bytes(readers.BOM + "\r\n".join(lines).encode())
    monkeypatch.setattr(readers, "CHUNK", chunk)
    assert list(readers.read_lines(path)) == lines


def test_read_lines_joins_several_zstd_frames(tmp_path):
    compress = COMPRESS["zst"]
    (tmp_path / "text.zst").write_bytes(compress(b"one\ntw") + compress(b"o\n"))
    assert list(readers.read_lines(tmp_path / "text.zst")) == ["one", "two"]


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=60))
def test_read_lines_of_any_bytes_gives_lines_or_one_clear_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "text"
    path.write_bytes(data)
    try:
        lines = list(readers.read_lines(path))
    except UserError as error:
        assert str(path) in str(error)
    else:
        assert all("\n" not in line for line in lines)


@pytest.mark.parametrize("kind", ["gz", "xz", "zst"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_read_lines_of_truncated_compression_is_refused(tmp_path, kind, share):
    data = COMPRESS[kind]("\n".join(str(number**5) for number in range(3000)).encode())
    path = tmp_path / f"text.{kind}"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UserError, match=r"damaged or cut short after line \d+"):
        list(readers.read_lines(path))


def test_read_lines_of_invalid_utf8_names_file_and_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"fine\nalso fine\nbr\xffken\nfine\n")
    with pytest.raises(UserError, match="text, line 3: not valid UTF-8"):
        list(readers.read_lines(path))
    path.write_text("hello\n", encoding="utf-16")
    with pytest.raises(UserError, match=r"line 1: .*looks like UTF-16"):
        list(readers.read_lines(path))


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 1)])
def test_read_parallel_of_unequal_files_is_refused(tmp_path, left, right):
    (tmp_path / "s").write_text("x\n" * left)
    (tmp_path / "t").write_text("y\n" * right)
    with pytest.raises(UserError, match=f"s has {left} lines but .*t has {right}: line {min(left, right) + 1} "):
        list(readers.read_parallel(tmp_path / "s", tmp_path / "t"))


def test_read_tsv_finds_columns_and_refuses_ragged_rows(tmp_path):
    path = tmp_path / "data.tsv"
    path.write_text('id\tde\ten\n1\tein "Wort\ta "word\n2\t\tb\n')
    assert list(table_files.read_tsv(path, (None, None), ("en", "de"))) == [('a "word', 'ein "Wort'), ("b", "")]
    assert next(table_files.read_tsv(path, ("id", "de"), ("en", "de"))) == ("1", 'ein "Wort')
    with pytest.raises(UserError, match=r"no column 'fr' or 'translation.fr' or 'target'; it has 'id', 'de', 'en'"):
        list(table_files.read_tsv(path, (None, None), ("en", "fr")))
    path.write_text("en\tde\na\tb\na\n")
    with pytest.raises(UserError, match=r"line 3: 1 fields where the header has 2.\nA text cannot hold a tab"):
        list(table_files.read_tsv(path, (None, None), ("en", "de")))
    path.write_text("en\tde\ten\na\tb\tc\n")
    with pytest.raises(UserError, match="2 columns called 'en'"):
        list(table_files.read_tsv(path, (None, None), ("en", "de")))


def test_read_tsv_without_a_header_is_explained_briefly(tmp_path):
    path = tmp_path / "data.tsv"
    path.write_text("\t".join(["In the beginning " * 100] * 30) + "\n")
    with pytest.raises(UserError, match=r" and 20 more\.\nThe first line .*: put en<TAB>de on top") as caught:
        list(table_files.read_tsv(path, (None, None), ("en", "de")))
    assert len(str(caught.value)) < 1000


def test_quoted_fields_are_kept_with_one_warning(tmp_path, caplog):
    path = tmp_path / "data.tsv"
    quoted = '"He said ""yes"""'
    path.write_text('en\tde\n""a"" b\t"c"\n' + f"{quoted}\tx\n" * 3)
    assert list(table_files.read_tsv(path, (None, None), ("en", "de"))) == [('""a"" b', '"c"'), *[(quoted, "x")] * 3]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [f"{path}, line 3"]


def test_read_json_lines_finds_nested_text_and_refuses_the_rest(tmp_path):
    path = tmp_path / "data.jsonl"
    rows = [{"translation": {"en": "a\nb", "de": "\u2028"}}, {"translation": {"en": None, "de": "\ud800x"}}]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert list(table_files.read_json_lines(path, (None, None), ("en", "de"))) == [("a b", "\u2028"), ("", "\ufffdx")]
    missing = {"translation": None}
    for some in ([missing, rows[0]], [rows[0], missing]):
        path.write_text("\n".join(map(json.dumps, some)))
        expected = [("a b", "\u2028") if row is rows[0] else ("", "") for row in some]
        assert list(table_files.read_json_lines(path, (None, None), ("en", "de"))) == expected
    for text, message in {
        '{"en": "a", "de": 3}': "line 1: no text under 'de'",
        '{"en": "a", "de": "b"}\n{"en": "a"}': "line 2: no text under 'de'",
        '{"en": "a", "en": "b"}': "line 1: not a JSON object .*twice",
        "[1]": "line 1: not a JSON object",
        '{"en": ': "line 1: not a JSON object",
        "[" * 100_000: "line 1: not a JSON object",
    }.items():
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            list(table_files.read_json_lines(path, (None, None), ("en", "de")))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_null_cells_are_reported_once_and_words_like_null_are_text(tmp_path, caplog, kind):
    path = tmp_path / f"data.{kind}"
    records = [{"en": "null", "de": None}, {"en": "NA", "de": "nan"}, {"en": None, "de": "None"}]
    if kind == "jsonl":
        path.write_text("\n".join(map(json.dumps, records)))
        found = table_files.read_json_lines(path, (None, None), ("en", "de"))
    else:
        parquet.write_table(pa.Table.from_pylist(records), path)
        found = table_files.read_parquet(path, (None, None), ("en", "de"))
    assert list(found) == [("null", ""), ("NA", "nan"), ("", "None")]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 2 cells without text (null) are taken as empty"
    ]


def test_spaces_around_column_names_do_not_count(tmp_path):
    path = tmp_path / "data.tsv"
    path.write_bytes(readers.BOM + b" en\tde \r\na\tb\n")
    assert list(table_files.read_tsv(path, (None, None), ("en", "de"))) == [("a", "b")]
    path.write_text("en\ten \tde\na\tb\tc\n")
    with pytest.raises(UserError, match="2 columns called 'en'"):
        list(table_files.read_tsv(path, (None, None), ("en", "de")))


def test_read_parquet_finds_nested_text_and_refuses_the_rest(tmp_path):
    path = tmp_path / "data.parquet"
    parquet.write_table(pa.table({"translation": [{"en": "a", "de": "b"}, {"en": "c\r\nd", "de": None}]}), path)
    assert list(table_files.read_parquet(path, (None, None), ("en", "de"))) == [("a", "b"), ("c d", "")]
    parquet.write_table(pa.table({"en": ["a"], "de": [1]}), path)
    with pytest.raises(UserError, match="column 'de' does not hold text"):
        list(table_files.read_parquet(path, (None, None), ("en", "de")))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"cannot read .* as Parquet"):
        list(table_files.read_parquet(path, (None, None), ("en", "de")))


def test_batches_are_bounded_in_rows_and_characters(monkeypatch):
    monkeypatch.setattr(readers, "BATCH_ROWS", 4)
    monkeypatch.setattr(readers, "BATCH_CHARACTERS", 10)
    pairs = [("a", "b")] * 6 + [("x" * 20, "y")] * 2
    tables = list(readers.batches(pairs))
    assert [len(table["source"]) for table in tables] == [4, 3, 1]
    assert [pair for table in tables for pair in zip(table["source"], table["target"], strict=True)] == pairs


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hello\n".encode("utf-16-le"), "looks like UTF-16"),
        ("hello\n".encode("utf-16-be"), "looks like UTF-16"),
        (gzip.compress("hello\n".encode("utf-16"), mtime=0), "looks like UTF-16"),
        (bz2.compress(b"hello\n"), "is compressed with bzip2"),
        (b"PK\x03\x04 anything", "is compressed with zip"),
    ],
)
@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_read_lines_of_another_format_is_refused(content, message, errors, tmp_path):
    path = tmp_path / "text"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        list(readers.read_lines(path, errors))


def test_read_lines_of_a_stream_begins_where_it_stands(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"one\ntwo\nthr\xe9e\n")
    with open(path, "rb") as stream:
        stream.readline()
        assert list(readers.read_lines(stream, "surrogateescape")) == ["two", "thr\udce9e"]
    with pytest.raises(UserError, match="standard input, line 1: not valid UTF-8"):
        list(readers.read_lines(io.BytesIO(b"\xe9")))

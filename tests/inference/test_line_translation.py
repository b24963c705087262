import bz2
import gzip
import io
import json
import lzma
import os
import threading
from pathlib import Path

import pytest
import tiny
import zstandard
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from precision import float32_approx

from seq2seq.data.readers import BOM, refuse_other_formats
from seq2seq.errors import UserError
from seq2seq.inference.bundle import load_bundle
from seq2seq.inference.line_input import line_windows, live_descriptor
from seq2seq.inference.line_translation import LineCounts, translate_file, translate_lines
from seq2seq.inference.shards import Shard, join_shards
from seq2seq.inference.text_windows import Batching
from seq2seq.inference.translator import Translator
from seq2seq.search import GreedySearch

TEXTS = tiny.sentences(30, seed=21)
QUICK = GreedySearch(max_length_a=0.2, max_length_b=3)


@pytest.fixture(scope="module")
def translator():
    bundle = load_bundle(Path(__file__).parent / "kept" / "bundle")
    return Translator([bundle], batching=Batching(window=8, max_source_length=100))


def run(translator, data: bytes, **options):
    output = io.BytesIO()
    report = translate_lines(translator, io.BytesIO(data), output, **options)
    return output.getvalue(), report


def expected_lines(data: bytes) -> int:
    data = data.removeprefix(BOM)
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")


def is_text(data: bytes) -> bool:
    """False for what hypothesis happens to begin as compressed data or UTF-16 begin."""
    try:
        refuse_other_formats(data, "data")
        refuse_other_formats(data.split(b"\n")[0], "data")
    except UserError:
        return False
    return True


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=12),
            st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass")),
            st.sampled_from([b"", b" ", b"\r", b"\x00", b"\xc2\x85", "שלום 😀".encode(), b"the cat.\r", b"a " * 300]),
        ),
        max_size=12,
    ),
    st.booleans(),
    st.sampled_from(["text", "jsonl"]),
)
def test_translate_lines_of_any_bytes_writes_as_many_lines(translator, lines, ended, output_format):
    data = b"\n".join(lines) + (b"\n" if ended else b"")
    assume(is_text(data))
    output, report = run(translator, data, search=QUICK, output_format=output_format)
    assert output.count(b"\n") == expected_lines(data) == report.lines
    assert output == b"" or output.endswith(b"\n")
    output.decode("utf-8")
    if output_format == "jsonl":
        records = [json.loads(line) for line in output.split(b"\n")[:-1]]
        assert [record["line"] for record in records] == list(range(len(records)))


def test_translate_lines_equals_translate(translator):
    data = "\ufeff".encode() + "\r\n".join(TEXTS).encode()
    output, report = run(translator, data)
    assert output.decode().splitlines() == [t.text for t in translator.translate(TEXTS)]
    assert (report.lines, report.blank, report.invalid) == (30, 0, 0)


def test_translate_lines_without_a_known_character_counts_them(translator):
    lines = ["the cat", "\u4f60\u597d", "\u200b", "a \u4f60", " "]
    _, report = run(translator, "\n".join(lines).encode(), search=QUICK)
    assert (report.unknown, report.blank) == (2, 1)
    assert "2 lines had no character that the tokenizer knows, so the translation means nothing" in report.notes()


def test_translate_lines_counts_unusual_lines(translator):
    lines = [b"the cat", b"", b"\t ", b"caf\xe9 house", b"\xff", b"the red dog. " * 100, b"a"]
    _, report = run(translator, b"\n".join(lines), search=QUICK)
    assert (report.lines, report.blank, report.invalid, report.split, report.truncated) == (7, 2, 2, 1, 0)
    assert report.cut > 0
    assert len(report.notes()) == 3
    short = Translator(
        [load_bundle(Path(__file__).parent / "kept" / "bundle")],
        batching=Batching(max_source_length=50, long_lines="truncate"),
    )
    _, report = run(short, b"\n".join(lines), search=QUICK)
    assert (report.split, report.truncated) == (0, 1)


def test_translate_lines_as_json_has_all_of_a_translation(translator):
    output, _ = run(translator, "\n".join(TEXTS).encode(), output_format="jsonl", n_best=2)
    wanted = list(translator.translate(TEXTS, n_best=2, alignment=True))
    for line, one in zip(output.splitlines(), wanted, strict=True):
        record = json.loads(line)
        assert record["text"] == one.text
        assert record["score"] == float32_approx(one.score)
        assert record["tokens"] == one.tokens
        assert record["source_tokens"] == one.source_tokens
        assert [candidate["text"] for candidate in record["n_best"]] == [c.text for c in one.nbest]
        assert {**record["n_best"][0], "line": 0}.items() <= {**record, "line": 0}.items()
        assert len(record["alignment"]) == len(one.tokens)
        for row in record["alignment"]:
            assert len(row) == len(one.source_tokens)
            assert sum(row) == pytest.approx(1, abs=0.01)


def test_translate_lines_in_an_unknown_format_is_refused(translator):
    with pytest.raises(UserError, match="format"):
        run(translator, b"a\n", output_format="xml")


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 1, 13, 29, 30])
@pytest.mark.parametrize("half", [b"", b"a half-written li"])
def test_resume_after_any_line_gives_the_same_file(translator, tmp_path, kept, half):
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("\n".join(TEXTS) + "\n")
    translate_file(translator, source, output)
    whole = output.read_bytes()
    output.write_bytes(b"".join(whole.splitlines(keepends=True)[:kept]) + half)
    report = translate_file(translator, source, output, resume=True)
    assert output.read_bytes() == whole
    assert (report.lines, report.skipped) == (30 - kept, kept)
    translate_file(translator, source, output)
    assert output.read_bytes() == whole


@pytest.mark.parametrize("search", [GreedySearch(coverage_penalty=0.2), {"coverage_penalty": 0.2}, "gready"])
def test_translate_file_with_an_impossible_search_leaves_an_older_output(tmp_path, search):
    translator, source, output = Translator([tiny.bundle(tiny.RNN)]), tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("the cat\n")
    output.write_text("kept\n")
    with pytest.raises(UserError, match=r"coverage_penalty needs attention|search='gready' is not a search"):
        translate_file(translator, source, output, search=search)
    assert output.read_text() == "kept\n"


def test_resume_without_an_output_is_refused(translator, tmp_path):
    with pytest.raises(UserError, match="output"):
        translate_file(translator, tmp_path / "in.txt", None, resume=True)
    with pytest.raises(UserError, match=r"in\.txt"):
        translate_file(translator, tmp_path / "in.txt", tmp_path / "out.txt")


@pytest.mark.parametrize("count", [1, 3, 40])
def test_joined_shards_equal_the_whole(translator, tmp_path, count):
    source = tmp_path / "in.txt"
    source.write_text("\n".join(TEXTS) + "\n")
    translate_file(translator, source, tmp_path / "whole.txt")
    paths = [tmp_path / f"{index}.txt" for index in range(count)]
    for index, path in enumerate(paths):
        if index == 1:
            path.write_bytes(b"half")
        translate_file(translator, source, path, shard=Shard(index, count), resume=True)
    assert join_shards(paths, tmp_path / "joined.txt") == 30
    assert (tmp_path / "joined.txt").read_bytes() == (tmp_path / "whole.txt").read_bytes()


def test_join_with_an_unfinished_shard_is_refused(tmp_path):
    for broken in (b"1\n", b"1\n4", b"1\n4\n7\n10\n"):
        for name, text in (("a", b"0\n3\n6\n"), ("b", broken), ("c", b"2\n5\n8\n")):
            (tmp_path / name).write_bytes(text)
        with pytest.raises(UserError, match="shards"):
            join_shards([tmp_path / name for name in "abc"], tmp_path / "joined")
        assert not (tmp_path / "joined").exists()


@pytest.mark.parametrize(("index", "count"), [(-1, 2), (2, 2), (0, 0)])
def test_shard_outside_its_count_is_refused(index, count):
    with pytest.raises(UserError, match="shard"):
        Shard(index, count)


def test_translate_lines_of_an_open_pipe_answers_each_line(translator):
    """Serves `tail -f | seq2seq translate`: each line's translation comes before the next line is written."""
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    with os.fdopen(in_read, "rb") as source, os.fdopen(out_write, "wb") as output:
        thread = threading.Thread(target=translate_lines, args=(translator, source, output))
        thread.start()
        with os.fdopen(out_read, "rb") as answers:
            for text in TEXTS[:3]:
                os.write(in_write, text.encode() + b"\n")
                assert answers.readline().decode().rstrip("\n") == next(translator.translate(text)).text
            os.write(in_write, b"the last line has no end")
            os.close(in_write)
            assert answers.readline().endswith(b"\n")
        thread.join()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=200).map(lambda line: line.replace(b"\n", b"")), max_size=60), st.integers(1, 80))
def test_line_windows_of_a_pipe_have_every_line(lines, size):
    data = b"\n".join(lines)
    assume(is_text(data))
    read, write = os.pipe()
    os.write(write, data)
    os.close(write)
    with os.fdopen(read, "rb") as source:
        assert live_descriptor(source) is not None
        found = list(line_windows(source, size))
    expected = [
        line.removesuffix(b"\r").decode("utf-8", "surrogateescape") for line in data.removeprefix(BOM).split(b"\n")
    ]
    assert [line for window in found for line in window] == expected[: expected_lines(data)]
    assert all(0 < len(window) <= size for window in found)


def test_translate_lines_reports_progress_after_each_window(translator):
    seen = []
    run(translator, "\n".join(TEXTS).encode(), progress=lambda report: seen.append(report.lines))
    assert seen == [8, 16, 24, 30]


def test_translate_lines_into_a_closed_pipe_raises_its_error(translator):
    read, write = os.pipe()
    os.close(read)
    with pytest.raises(BrokenPipeError), os.fdopen(write, "wb", buffering=0) as output:
        translate_lines(translator, io.BytesIO(b"the cat\n"), output)


COMPRESS = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.compress}


@pytest.mark.parametrize("kind", COMPRESS)
def test_translate_file_of_compressed_text_equals_that_of_the_text(kind, translator, tmp_path):
    text = "".join(f"{line}\n" for line in TEXTS).encode()
    (tmp_path / "in.txt").write_bytes(text)
    (tmp_path / "in").write_bytes(COMPRESS[kind](text))
    for name in ("in.txt", "in"):
        translate_file(translator, tmp_path / name, tmp_path / f"{name}.out", search=QUICK)
    assert (tmp_path / "in.out").read_bytes() == (tmp_path / "in.txt.out").read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the cat\n".encode("utf-16"), "UTF-16"),
        ("the cat\n".encode("utf-16-le"), "UTF-16"),
        (gzip.compress(b"the cat\n" * 999, mtime=0)[:-20], "damaged or cut short"),
        (bz2.compress(b"the cat\n"), "bzip2"),
    ],
)
def test_translate_file_of_another_format_is_refused(content, message, translator, tmp_path):
    (tmp_path / "in").write_bytes(content)
    (tmp_path / "out").write_text("kept\n")
    with pytest.raises(UserError, match=f"{tmp_path / 'in'}.* {message}"):
        translate_file(translator, tmp_path / "in", tmp_path / "out", search=QUICK)
    assert (tmp_path / "out").read_text() == "kept\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [(gzip.compress(b"the cat\n", mtime=0), "compressed with gzip"), ("the cat\n".encode("utf-16"), "UTF-16")],
)
def test_line_windows_of_a_pipe_in_another_format_are_refused(content, message):
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    with os.fdopen(read, "rb") as source, pytest.raises(UserError, match=f"standard input.* {message}"):
        list(line_windows(source, 8))


@pytest.mark.parametrize(("before", "after"), [("text", "jsonl"), ("jsonl", "text")])
def test_resume_in_another_format_is_refused(before, after, translator, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS[:2]))
    translate_file(translator, tmp_path / "in.txt", tmp_path / "out", output_format=before)
    kept = (tmp_path / "out").read_bytes()
    (tmp_path / "in.txt").write_text("\n".join(TEXTS[:5]))
    with pytest.raises(UserError, match=f"cannot be resumed with format={after}\nGive format={before} or another"):
        translate_file(translator, tmp_path / "in.txt", tmp_path / "out", output_format=after, resume=True)
    assert (tmp_path / "out").read_bytes() == kept


@pytest.mark.parametrize("content", ["", "half a li"])
def test_resume_of_an_output_without_a_whole_line_takes_any_format(content, translator, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS[:2]))
    (tmp_path / "out").write_text(content)
    translate_file(translator, tmp_path / "in.txt", tmp_path / "out", output_format="jsonl", resume=True)
    assert [json.loads(line)["line"] for line in (tmp_path / "out").read_text().splitlines()] == [0, 1]


def test_resume_of_another_shard_is_refused(translator, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS[:6]))
    options = {"output_format": "jsonl", "search": QUICK}
    translate_file(translator, tmp_path / "in.txt", tmp_path / "out", shard=Shard(1, 2), **options)
    with pytest.raises(UserError, match="line 3 is the translation of line 5 of an input, not of 4"):
        translate_file(translator, tmp_path / "in.txt", tmp_path / "out", shard=Shard(0, 2), resume=True, **options)


def test_resume_of_binary_data_is_refused(translator, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS[:2]))
    (tmp_path / "out").write_bytes(b"\x1f\x8b\n")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        translate_file(translator, tmp_path / "in.txt", tmp_path / "out", resume=True)


def test_join_of_shards_in_several_formats_is_refused(tmp_path):
    (tmp_path / "a").write_text("a cat\n")
    (tmp_path / "b").write_text('{"line": 1, "text": "a", "score": -1.0}\n')
    with pytest.raises(UserError, match="some contain text, others JSON lines"):
        join_shards([tmp_path / "a", tmp_path / "b"], tmp_path / "joined")
    assert not (tmp_path / "joined").exists()


def test_notes_agree_with_their_numbers():
    assert LineCounts(lines=9, invalid=1, split=2, cut=1).notes() == [
        "1 line had invalid UTF-8, replaced by U+FFFD",
        "2 lines were too long for one pass and were split (max_source_length)",
        "1 translation was cut at the maximum length (search.max_length_a, max_length_b)",
    ]

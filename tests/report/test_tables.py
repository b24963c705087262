"""Cells and tables in Markdown."""

from seq2seq.report.draw import short_number, short_time
from seq2seq.report.tables import difference_text, literal, markdown_table, p_text


def test_markdown_table_escapes():
    assert markdown_table([["a", "b"], ["x|y", "1"]]).splitlines() == [
        "| a    |   b |",
        "| ---- | --: |",
        "| x\\|y |   1 |",
    ]


def test_texts_in_markdown_are_read_as_they_are():
    assert literal("<unk> A&amp;B *x* a_b `c` [d](e) ~f~ \\") == (
        "&lt;unk&gt; A&amp;amp;B \\*x\\* a\\_b \\`c\\` \\[d\\](e) \\~f\\~ \\\\"
    )
    assert literal("a\x1b[1mb\x07\tc\x85") == "a\ufffd\\[1mb\ufffd\tc\ufffd"
    assert markdown_table([["a", "b"], ["x\r\ny\rz", "1"]]).splitlines()[2] == "| x  y z |   1 |"


def test_numbers_times_and_p_values_are_short():
    assert [short_number(v) for v in (0.25, 12, 3000, 2_400_000, 3e9)] == ["0.25", "12", "3k", "2.4M", "3B"]
    assert [short_time(v) for v in (45, 720, 12600)] == ["45 s", "12 min", "3.5 h"]
    assert [p_text(v) for v in (0.0001, 0.04, None)] == ["< 0.001", "0.040", "\u2013"]
    assert [difference_text(v) for v in (1.24, -0.4, -0.01, None)] == ["+1.2", "\u22120.4", "0.0", "\u2013"]

import gzip
import json
from pathlib import Path

import pytest

from seq2seq.data.texts import read_texts
from seq2seq.errors import UserError


def record(text: str) -> str:
    return json.dumps({"text": text, "score": -1.0, "tokens": ["▁" + text], "n_best": [{"text": "worse"}]})


@pytest.mark.parametrize("name", ["out.jsonl", "out.txt", "out.jsonl.gz"])
def test_json_lines_of_translate_give_their_texts_whatever_the_file_is_called(tmp_path: Path, name: str) -> None:
    lines = "".join(f"{record(text)}\n" for text in ("ein Hund", "", "zwei\n{Hunde}")).encode()
    (tmp_path / name).write_bytes(gzip.compress(lines) if name.endswith(".gz") else lines)
    assert read_texts(tmp_path / name) == ["ein Hund", "", "zwei {Hunde}"]


def test_plain_lines_that_look_like_json_here_and_there_stay_as_they_are(tmp_path: Path) -> None:
    lines = ['{"text": "a"}', "{}", "plain", '"quoted"']
    (tmp_path / "code.txt").write_text("\n".join(lines) + "\n")
    assert read_texts(tmp_path / "code.txt") == lines


@pytest.mark.parametrize("line", ['{"translation": "a"}', "plain", '["a"]', '{"text": 1}', ""])
def test_json_lines_without_a_text_are_refused_by_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "out.jsonl").write_text(f"{record('a')}\n{line}\n")
    with pytest.raises(UserError, match=r'out\.jsonl, line 2: not a JSON object with a "text"\n'):
        read_texts(tmp_path / "out.jsonl")


def test_empty_file_has_no_texts(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("")
    assert read_texts(tmp_path / "out.txt") == []

"""Fixtures of the data tests."""

import pytest
from toy_text import lines


@pytest.fixture
def root(tmp_path):
    for split in ("train", "valid", "test"):
        for language in "xy":
            (tmp_path / f"{split}.{language}").write_text("".join(line + "\n" for line in lines(split, language)))
    return tmp_path

"""The bundle that an earlier version wrote, and a translator with it."""

from pathlib import Path

import pytest

from seq2seq.inference.bundle import load_bundle
from seq2seq.inference.translator import Translator


@pytest.fixture(scope="module")
def bundle():
    return load_bundle(Path(__file__).parent / "kept" / "bundle")


@pytest.fixture(scope="module")
def translator(bundle):
    return Translator([bundle])

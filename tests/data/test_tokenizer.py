"""Tokenizers: round trips of any text, fixed special ids, determinism, small corpora, damage."""

import hashlib
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seq2seq.data.tokenizer import KINDS, Tokenizer, TokenizerPair, TokenizerSettings, train_tokenizer
from seq2seq.errors import UserError
from seq2seq.interfaces import BOS, EOS, PAD, UNK

NAMES = "der die das ein eine Hund Katze Baum schöne große läuft sieht über unter straße the a dog cat tree runs"
WORDS = NAMES.split()
TEXT = [" ".join(WORDS[(7 * i + j * j) % len(WORDS)] for j in range(3 + i % 9)) + "." for i in range(400)]


def train(kind: str = "unigram", vocabulary: int = 320, text: list[str] = TEXT, **options) -> Tokenizer:
    return train_tokenizer(lambda: text, len(text), TokenizerSettings(kind, vocabulary, **options))


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return train(request.param)


def canonical(text: str) -> str:
    """Text after a round trip: line ends are spaces, runs of spaces one space, none at the ends."""
    return " ".join(part for part in text.replace("\n", " ").split(" ") if part)


@settings(max_examples=150, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufdd1"), max_size=40))
@example("literal <s> </s> <unk> <pad> <0x41> ▁ and ▁▁x▁ ▅")
@example("\u2028 tab\tnul\0 \x85 \ufeff\u200d אבג 😀👩‍👩‍👧 e\u0301 é ﬁ ½")
@example("der Hund  läuft ")
@example("   ")
def test_decode_of_encoded_text_gives_the_text(tokenizer, text):
    ids = tokenizer.encode([text])[0]
    assert tokenizer.decode(ids) == canonical(text)
    assert not {PAD, UNK, BOS, EOS} & set(ids)
    assert bool(ids) == bool(canonical(text))


def test_encode_takes_long_text_and_empty_batches(tokenizer):
    long = " ".join(WORDS * 3000) + "x" * 50_000
    assert tokenizer.decode(tokenizer.encode([long])[0]) == long
    assert tokenizer.encode([]) == [] and tokenizer.decode_batch([]) == [] and tokenizer.decode([]) == ""


def test_decode_drops_special_ids_that_pieces_show(tokenizer):
    ids = tokenizer.encode(["der Hund"])[0]
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == "der Hund"
    assert tokenizer.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert len(tokenizer.pieces(ids)) == len(ids)


def test_encode_of_lone_surrogates_equals_any_number_of_threads(tokenizer):
    assert tokenizer.decode(tokenizer.encode(["a\ud800b"])[0]) == "a?b"
    alone = [tokenizer.encode([text])[0] for text in TEXT]
    assert tokenizer.encode(TEXT) == alone
    assert [ids.tolist() for ids in tokenizer.encode_arrays(TEXT, threads=3)] == alone


def digests() -> list[str]:
    return [hashlib.md5(train(kind).to_bytes()).hexdigest() for kind in KINDS]


@pytest.mark.slow
def test_training_is_the_same_in_every_process():
    here = str(Path(__file__).parent)
    script = f"import sys; sys.path.insert(0, {here!r}); import test_tokenizer as test; print(test.digests())"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(digests())


@pytest.mark.parametrize("kind", KINDS)
def test_vocabulary_is_lowered_with_a_warning(kind, caplog):
    with caplog.at_level(logging.WARNING, logger="seq2seq.data"):
        tokenizer = train(kind, vocabulary=30_000)
    assert 260 < len(tokenizer) < 30_000
    assert f"tokenizer.vocabulary=30000 lowered to {len(tokenizer)}" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_vocabulary_too_small_is_an_error(kind):
    with pytest.raises(UserError, match=r"tokenizer.vocabulary=100 is too small"):
        train(kind, vocabulary=100)


def test_training_without_text_is_an_error():
    with pytest.raises(UserError, match="every line is blank"):
        train(text=["", "  ", ""])


def test_closed_word_vocabulary_encodes_new_words_as_unknown():
    tokenizer = train("word", 50, byte_fallback=False)
    assert tokenizer.encode(["der Elefant läuft"])[0][1] == UNK


def test_training_takes_long_lines_and_reserved_characters():
    """SentencePiece by itself skips sentences beyond 4192 bytes and those with U+2585."""
    tokenizer = train("char", 400, text=["öäü " * 3000, "qqq▅zzz"])
    known = tokenizer.encode(["öäüqz"])[0]
    assert len(known) == 6 and all(not piece.startswith("<0x") for piece in tokenizer.pieces(known))


def test_training_draws_sentences_evenly():
    text = ["x" for _ in range(900)] + ["y" for _ in range(100)]
    tokenizer = train("char", 400, text=text, sentences=10, character_coverage=1.0)
    assert tokenizer.pieces(tokenizer.encode(["xy"])[0]) == ["▁", "x", "y"]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sampling_varies_with_the_seed_alone(kind):
    tokenizer = train(kind)
    first, again, other = (tokenizer.sample(TEXT, 0.2, seed) for seed in (5, 5, 6))
    assert first == again != other
    assert tokenizer.decode_batch(first) == TEXT


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sampling_is_the_same_in_every_process(kind, tmp_path):
    tokenizer = train(kind)
    (tmp_path / "model").write_bytes(tokenizer.to_bytes())
    program = (
        "import json, sys; from seq2seq.data.tokenizer import Tokenizer\n"
        "print(json.dumps(Tokenizer(open(sys.argv[1], 'rb').read()).sample(json.loads(sys.argv[2]), 0.2, 5)))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "model"), json.dumps(TEXT)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == tokenizer.sample(TEXT, 0.2, 5)


@pytest.mark.parametrize("joint", [True, False])
def test_pair_from_disk_or_state_equals_the_original(tmp_path, joint):
    first = train()
    pair = TokenizerPair(first, first if joint else train("bpe"))
    pair.save(tmp_path)
    for copy in (TokenizerPair.load(tmp_path), TokenizerPair.from_state(pair.state())):
        assert copy.joint == joint and copy.state() == pair.state()
        assert copy.target.encode(TEXT) == pair.target.encode(TEXT)


def test_load_of_damaged_models_is_refused(tmp_path):
    with pytest.raises(UserError, match="no tokenizer"):
        TokenizerPair.load(tmp_path)
    model = train().to_bytes()
    for bad in (b"", b"garbage", model[: len(model) // 2]):
        (tmp_path / "tokenizer.model").write_bytes(bad)
        with pytest.raises(UserError, match=str(tmp_path)):
            TokenizerPair.load(tmp_path)


@pytest.mark.parametrize(
    "option",
    [
        {"kind": "wordpiece"},
        {"vocabulary": 3},
        {"vocabulary": 99999999999},
        {"normalization": "nfd"},
        {"character_coverage": 2.0},
        {"sentences": 0},
        {"sampling": -1.0},
        {"kind": "char", "sampling": 0.1},
    ],
)
def test_impossible_settings_are_refused(option):
    with pytest.raises(UserError, match=next(reversed(option))):
        TokenizerSettings(**option)


@pytest.mark.parametrize("normalization", ["identity", "nfkc"])
@pytest.mark.parametrize("character", ["x", "字", "\ufdfa"])
def test_word_tokenizer_spells_endless_words(normalization, character):
    """SentencePiece cannot load an entry of 8,000 bytes."""
    settings = TokenizerSettings(kind="word", vocabulary=300, normalization=normalization)
    lines = ["one two", f"one {character * 9000} two", character * 300]
    tokenizer = train_tokenizer(lambda: lines, len(lines), settings)
    assert tokenizer.pieces(tokenizer.encode(["one two"])[0]) == ["▁one", "▁two"]
    text = tokenizer.decode(tokenizer.encode([f"{character * 9000} two"])[0])
    assert text.endswith(" two") and len(text) >= 9000

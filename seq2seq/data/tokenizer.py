"""Text to token ids and back, with SentencePiece. Ids 0 to 3 are padding, unknown, begin and end in every model."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from seq2seq.data.subword_sampling import Draw, bpe_sampler, resegment, unigram_sampler
from seq2seq.errors import UserError
from seq2seq.files import atomic_write
from seq2seq.interfaces import BOS, EOS, PAD, UNK, WORD_START

logger = logging.getLogger(__name__)

KINDS = ("unigram", "bpe", "char", "word")
NORMALIZATIONS = ("identity", "nfkc", "nmt_nfkc")
ESCAPED_SPACE = "\ufdd1"  # a user's own WORD_START, which is how SentencePiece writes a space
RESERVED = "\u2585"  # SentencePiece skips training sentences that hold it
MOST = 1 << 24  # entries that a vocabulary may have; SentencePiece takes no number from 2**31 on
LONGEST_WORD = 400  # bytes of an entry of a word tokenizer; SentencePiece cannot load one of 8,000, after normalization
THREADS = 4  # of training; fixed, because the number changes the model, and the machine must not

MODEL, SOURCE_MODEL, TARGET_MODEL = "tokenizer.model", "tokenizer.source.model", "tokenizer.target.model"


class Tokenizer:
    """One trained SentencePiece model.

    `decode(encode(text))` gives a line of text back, except that runs of spaces become one, spaces at the ends are
    dropped, and a `normalization` other than "identity" changes text. Text that looks like a control symbol
    ("<s>") is ordinary text. Line ends are spaces.
    """

    def __init__(self, model: bytes):
        """Raises UserError if the bytes are not a tokenizer of this project."""
        self._model = bytes(model)
        self._samplers: dict[float, Draw] = {}
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=self._model)
            special = [getattr(self._processor, f"{name}_id")() for name in ("pad", "unk", "bos", "eos")]
        except (RuntimeError, OSError, ValueError) as error:
            raise UserError("not a SentencePiece model: the tokenizer is damaged.") from error
        if special != [PAD, UNK, BOS, EOS]:
            raise UserError(f"special ids {special} are not {[PAD, UNK, BOS, EOS]}: is it from another toolkit?")

    def to_bytes(self) -> bytes:
        return self._model

    def __len__(self) -> int:
        return len(self._processor)

    def encode(self, texts: list[str], threads: int = 1) -> list[list[int]]:
        """Ids of each text, without BOS and EOS. Blank text gives []."""
        ids: list[list[int]] = self._processor.encode(_escape(texts), return_type=int, num_threads=threads)
        return ids

    def encode_arrays(self, texts: list[str], threads: int = 1) -> list[NDArray[np.int32]]:
        """The same ids as arrays, which are made much faster than lists."""
        ids: list[NDArray[np.int32]] = self._processor.encode(_escape(texts), return_type="numpy", num_threads=threads)
        return ids

    def sample(self, texts: list[str], alpha: float, seed: int, longest: int | None = None) -> list[list[int]]:
        """Ids of a random segmentation of each text (Kudo 2018; BPE-dropout, Provilkov et al. 2020, for BPE models).

        alpha: for unigram the inverse temperature (smaller is more varied), for BPE the share of merges dropped. The
        same seed gives the same segmentations, on every machine. See `varies`. longest: a text that comes to more
        tokens keeps its usual ids.
        """
        numbers, scores = self._vocabulary
        draw, random = self._sampler(alpha), Random(seed)
        found = []
        for usual in self.encode(texts):
            ids = [numbers[piece] for piece in resegment(self.pieces(usual), scores, draw, random)]
            found.append(ids if longest is None or len(ids) <= longest else usual)
        return found

    def _sampler(self, alpha: float) -> Draw:
        """The sampler of this alpha, made once, because it caches words."""
        if alpha not in self._samplers:
            _, scores = self._vocabulary
            is_bpe = all(score.is_integer() for score in scores.values())  # numbers of merges, not log-probabilities
            self._samplers[alpha] = (bpe_sampler if is_bpe else unigram_sampler)(scores, alpha)
        return self._samplers[alpha]

    @property
    def varies(self) -> bool:
        """True if there are several segmentations to sample from, as for unigram and bpe, not for char and word."""
        _, scores = self._vocabulary
        return any(len(piece) > 1 and all(character in scores for character in piece) for piece in scores)

    @cached_property
    def _vocabulary(self) -> tuple[dict[str, int], dict[str, float]]:
        """The id of every piece, and the scores of those that spell text."""
        pieces = self.pieces(range(len(self)))
        special = (self._processor.is_control, self._processor.is_unknown, self._processor.is_byte)
        scores = {
            piece: float(self._processor.get_score(number))
            for number, piece in enumerate(pieces)
            if not any(is_so(number) for is_so in special)
        }
        return {piece: number for number, piece in enumerate(pieces)}, scores

    @cached_property
    def byte_pieces(self) -> list[int]:
        """Ids of the pieces that spell single bytes; none without byte fallback."""
        return [number for number in range(len(self)) if self._processor.is_byte(number)]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of one line. Special ids vanish, except that UNK shows as " ⁇ "."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        texts = self._processor.decode([list(ids) for ids in batch]) if batch else []
        return [_unescape(text) for text in texts]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary's entry for each id; "▁" marks the beginning of a word."""
        return [self._pieces[number] for number in ids]

    @cached_property
    def _pieces(self) -> list[str]:
        pieces: list[str] = self._processor.id_to_piece(list(range(len(self))))
        return pieces


def _escape(texts: list[str]) -> list[str]:
    return [_escape_one(text) for text in texts]


def _escape_one(text: str) -> str:
    if "\n" in text:
        text = text.replace("\n", " ")
    if text.isascii():
        return text
    if WORD_START in text:
        text = text.replace(WORD_START, ESCAPED_SPACE)
    return text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates become "?"


def _unescape(text: str) -> str:
    if WORD_START in text:  # a word model spells unknown words with their leading space in bytes
        text = text.replace(WORD_START, " ").removeprefix(" ")
    return text.replace(ESCAPED_SPACE, WORD_START).replace("\n", " ")


@dataclass(frozen=True)
class TokenizerSettings:
    """Settings for training tokenizers.

    kind: unigram, bpe, char or word. vocabulary: entries, the 4 special and (with byte_fallback) 256 byte pieces
    included; lowered with a warning where the text has fewer. joint: one tokenizer for both sides. byte_fallback: spell
    what is not in the vocabulary in UTF-8 bytes instead of UNK. normalization: "identity" keeps text as it is, so that
    hypotheses look like the references; "nmt_nfkc" folds compatibility characters and control characters.
    character_coverage: share of the text's characters that get an entry each. sentences: train on at most that
    many, drawn evenly from the split. sampling: alpha of subword regularization in training (0: off); see
    Tokenizer.sample.
    """

    kind: str = "unigram"
    vocabulary: int = 8000
    joint: bool = True
    byte_fallback: bool = True
    normalization: str = "identity"
    character_coverage: float = 0.9999
    sentences: int = 200_000
    sampling: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"tokenizer.kind={self.kind!r} is not one of {', '.join(KINDS)}.")
        if self.normalization not in NORMALIZATIONS:
            raise UserError(
                f"tokenizer.normalization={self.normalization!r} is not one of {', '.join(NORMALIZATIONS)}."
            )
        if self.vocabulary < 5:
            raise UserError(f"tokenizer.vocabulary={self.vocabulary} leaves no room beside the 4 special symbols.")
        if self.vocabulary > MOST:
            raise UserError(f"tokenizer.vocabulary={self.vocabulary} is too large.\nUsual are 4000 to 64000.")
        if not 0.9 <= self.character_coverage <= 1:
            raise UserError(f"tokenizer.character_coverage={self.character_coverage} must lie between 0.9 and 1.")
        if self.sentences < 1:
            raise UserError(f"tokenizer.sentences={self.sentences} must be positive.")
        if not 0 <= self.sampling <= 1:
            raise UserError(f"tokenizer.sampling={self.sampling} must lie between 0 and 1.")
        if self.sampling and self.kind not in ("unigram", "bpe"):
            raise UserError(f"tokenizer.sampling needs tokenizer.kind unigram or bpe, not {self.kind}.")


def train_tokenizer(texts: Callable[[], Iterable[str]], count: int, settings: TokenizerSettings) -> Tokenizer:
    """Train on `count` texts that each call of `texts()` yields. The same text gives the same model, bit for bit."""
    chosen = _every(texts(), max(1.0, count / settings.sentences))
    if settings.kind == "word":
        chosen = map(_without_long_words, chosen)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(text for text in map(_escape_one, chosen) if text.strip(" ")),
            model_writer=model,
            model_type=settings.kind,
            vocab_size=settings.vocabulary,
            hard_vocab_limit=False,
            character_coverage=settings.character_coverage,
            byte_fallback=settings.byte_fallback,
            normalization_rule_name=settings.normalization,
            max_sentence_length=1 << 30,
            num_threads=THREADS,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise UserError(_training_error(str(error), settings)) from error
    tokenizer = Tokenizer(model.getvalue())
    if len(tokenizer) < settings.vocabulary:
        logger.warning(
            "tokenizer.vocabulary=%d lowered to %d: the training text has no more", settings.vocabulary, len(tokenizer)
        )
    return tokenizer


def _every(texts: Iterable[str], step: float) -> Iterator[str]:
    """Every step-th text; the character that makes training skip a text is replaced by a space."""
    wanted = 0.0
    for index, text in enumerate(texts):
        if index >= wanted:
            wanted += step
            yield text.replace(RESERVED, " ")


def _without_long_words(text: str) -> str:
    return " ".join(word for word in text.split(" ") if len(word.encode("utf-8", "replace")) <= LONGEST_WORD)


def _training_error(message: str, settings: TokenizerSettings) -> str:
    if match := re.search(r"required_chars\. (\d+) vs (\d+)", message):
        return (
            f"tokenizer.vocabulary={settings.vocabulary} is too small: bytes, special symbols and single characters "
            f"alone take {match[2]}.\nRaise tokenizer.vocabulary or lower tokenizer.character_coverage."
        )
    if "vocab_size" in message:
        least = 5 + 256 * settings.byte_fallback
        return f"tokenizer.vocabulary={settings.vocabulary} is too small: at least {least} are needed."
    if "sentences_.empty" in message:
        words = f" or one word of more than {LONGEST_WORD} bytes" if settings.kind == "word" else ""
        return f"the training split holds no text to train a tokenizer on: every line is blank{words}."
    return f"training the {settings.kind} tokenizer failed: {message.splitlines()[0] if message else 'no reason given'}"


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of both sides; the same object twice when joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def vocabulary(self) -> dict[str, Any]:
        """Arguments of a model: source_vocabulary, target_vocabulary (sizes) and joint_vocabulary (bool)."""
        return {
            "source_vocabulary": len(self.source),
            "target_vocabulary": len(self.target),
            "joint_vocabulary": self.joint,
        }

    def state(self) -> dict[str, bytes]:
        """Bytes by file name: `tokenizer.model` when joint, else `tokenizer.source.model`, `tokenizer.target.model`."""
        if self.joint:
            return {MODEL: self.source.to_bytes()}
        return {SOURCE_MODEL: self.source.to_bytes(), TARGET_MODEL: self.target.to_bytes()}

    @classmethod
    def from_state(cls, state: dict[str, bytes]) -> TokenizerPair:
        if MODEL in state:
            tokenizer = Tokenizer(state[MODEL])
            return cls(tokenizer, tokenizer)
        if SOURCE_MODEL in state and TARGET_MODEL in state:
            return cls(Tokenizer(state[SOURCE_MODEL]), Tokenizer(state[TARGET_MODEL]))
        raise UserError(f"no tokenizer: neither {MODEL} nor {SOURCE_MODEL} and {TARGET_MODEL}.")

    def save(self, folder: str | Path) -> None:
        for name, model in self.state().items():
            with atomic_write(Path(folder) / name, "wb") as stream:
                stream.write(model)

    @classmethod
    def load(cls, folder: str | Path) -> TokenizerPair:
        """Raises UserError if the folder holds no tokenizer or a damaged one."""
        paths = [path for name in (MODEL, SOURCE_MODEL, TARGET_MODEL) if (path := Path(folder) / name).is_file()]
        try:
            return cls.from_state({path.name: path.read_bytes() for path in paths})
        except UserError as error:
            raise UserError(f"{folder}: {error}") from error

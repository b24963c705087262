"""Languages written without spaces: codes and scripts, sacreBLEU's tokenizers for them, and the unit of lengths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

Unit = Literal["words", "characters"]
"""The unit of lengths: words between spaces, or characters that are not spaces."""

DEFAULT_TOKENIZER = "13a"

FEW_WORDS = ("13a", "intl")
"""Tokenizers that find few words where there are no spaces."""

CHINESE, JAPANESE, KOREAN, CHARACTERS = "zh", "ja-mecab", "ko-mecab", "char"

SCRIPTS = {
    **dict.fromkeys(("hans", "hant", "hani"), CHINESE),
    **dict.fromkeys(("jpan", "hira", "kana", "hrkt"), JAPANESE),
    **dict.fromkeys(("kore", "hang"), KOREAN),
    **dict.fromkeys(("thai", "laoo", "khmr", "mymr", "tibt"), CHARACTERS),
}
"""Tokenizers by ISO 15924 script. Text in any other script has spaces."""

LANGUAGES = {
    **dict.fromkeys(
        ("zh", "zho", "chi", "cmn", "yue", "wuu", "hak", "gan", "hsn", "cjy", "nan", "lzh", "cdo", "mnp"), CHINESE
    ),
    **dict.fromkeys(("ja", "jpn"), JAPANESE),
    **dict.fromkeys(("ko", "kor"), KOREAN),
    **dict.fromkeys(
        ("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "shn", "bo", "bod", "tib", "dz", "dzo"), CHARACTERS
    ),
}
"""Tokenizers by ISO 639-1, 639-2 and 639-3 code."""

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_OTHERS = "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"
_KANA_CHARACTER, _OTHER_CHARACTER = re.compile(f"[{_KANA}]"), re.compile(f"[{_OTHERS}]")
_UNSPACED_CHARACTER = re.compile(f"[{_HAN}{_KANA}{_OTHERS}]")


def tokenizer_for(language: str | None, texts: Sequence[str] = ()) -> str:
    """Choose sacreBLEU's tokenizer by the language or, where its code says nothing, by texts in it.

    A code is one of ISO 639-1 or 639-3, perhaps with a script and a region: zh, cmn, zh-TW, zho_Hans, jpn_Jpan, th.
    """
    known = _by_code(language)
    if known not in (None, DEFAULT_TOKENIZER) or not hardly_spaced(texts):
        return known or DEFAULT_TOKENIZER
    everything = "".join(texts)
    if _KANA_CHARACTER.search(everything):
        return JAPANESE
    return CHARACTERS if _OTHER_CHARACTER.search(everything) else CHINESE


def length_unit(language: str | None, texts: Sequence[str]) -> Unit:
    """Choose the unit of a test set's lengths by its language or, where the code says nothing, by its texts."""
    known = _by_code(language)
    if known in (CHINESE, JAPANESE, CHARACTERS):
        return "characters"
    return "characters" if hardly_spaced(texts) else "words"


def tokenizer_advice(tokenize: str, language: str | None, texts: Sequence[str] = ()) -> str | None:
    """Advise against a tokenizer that finds few words in a language or, where its code says nothing, in the texts."""
    better = tokenizer_for(language, texts)
    if tokenize not in FEW_WORDS or better in FEW_WORDS:
        return None
    where = language or "text without spaces"
    extra = {JAPANESE: "ja", KOREAN: "ko"}.get(better)
    install = f" (pip install 'seq2seq[{extra}]')" if extra else ""
    return f"tokenize={tokenize} finds few words in {where}, so that BLEU means little: see tokenize={better}{install}"


def hardly_spaced(texts: Sequence[str]) -> bool:
    """True where most texts of more than 5 characters are in a script without spaces and hardly have any: more than 5
    characters per word."""
    counted = [text for text in texts if len(text) > 5]
    return 2 * sum(len(text) > 5 * len(text.split()) and _mostly_unspaced(text) for text in counted) > len(counted)


def _mostly_unspaced(text: str) -> bool:
    if not _UNSPACED_CHARACTER.search(text):
        return False
    return 2 * len(_UNSPACED_CHARACTER.findall(text)) > sum(character.isalpha() for character in text)


def _by_code(language: str | None) -> str | None:
    """The tokenizer that a language's code asks for, DEFAULT_TOKENIZER for a script with spaces; None if unknown."""
    first, *rest = re.split("[-_]", (language or "").lower())
    script = next((part for part in rest if len(part) == 4 and part.isalpha()), None)
    if script is not None:
        return SCRIPTS.get(script, DEFAULT_TOKENIZER)
    return LANGUAGES.get(first)

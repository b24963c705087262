"""Signatures of sacreBLEU: their settings, and the refusal to compare scores of different ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from seq2seq.errors import UserError


def signature_settings(signature: str) -> Mapping[str, str]:
    """Parse 'nrefs:1|case:mixed|tok:13a' into {"nrefs": "1", "case": "mixed", "tok": "13a"}.

    Of 'tok:ja-mecab-0.996-IPA', which includes its dictionary's version, the tokenizer's name alone is kept.
    """
    settings = dict(field.split(":", 1) for field in signature.split("|") if ":" in field)
    if names := [name for name in BLEU.TOKENIZERS if settings.get("tok", "").startswith(name)]:
        settings["tok"] = max(names, key=len)
    return settings


def text_settings(signature: str) -> dict[str, Any]:
    """{"tokenize", "lowercase"}: how BLEU of this signature reads texts."""
    fields = signature_settings(signature)
    return {"tokenize": fields.get("tok", "13a"), "lowercase": fields.get("case") == "lc"}


def require_same_signature(signatures: Mapping[str, str]) -> None:
    """Refuse to put scores side by side that were not computed alike.

    `signatures` maps a system's name to the signature of its score. Raises UserError naming two systems and their
    signatures when they differ in anything, sacreBLEU's version included.
    """
    items = list(signatures.items())
    for name, signature in items[1:]:
        if signature != items[0][1]:
            raise UserError(
                f"scores with different signatures cannot be compared: {items[0][0]} has {items[0][1]}, but {name} has "
                f"{signature}\n"
                "Remove the older run's metrics.json and repeat its command: it is scored again, not trained again."
            )

"""The config.yaml of a bundle or an export: its format version, model, search, languages and vocabulary sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import seq2seq
from seq2seq.data.tokenizer import TokenizerPair
from seq2seq.errors import UserError
from seq2seq.inference.safe_build import build
from seq2seq.search import BeamSearch, GreedySearch, Sampling, Search

FORMAT = 1
CONFIG = "config.yaml"


def describe(
    model: Mapping[str, Any],
    search: Mapping[str, Any] | None,
    tokenizers: TokenizerPair,
    source_language: str | None,
    target_language: str | None,
) -> dict[str, Any]:
    """The config of a bundle: model and search (resolved plain nodes), languages, vocabulary sizes, format version."""
    return {
        "format": FORMAT,
        "seq2seq": seq2seq.__version__,
        "languages": {"source": source_language, "target": target_language},
        "vocabulary": {
            "source": len(tokenizers.source),
            "target": len(tokenizers.target),
            "joint": tokenizers.joint,
        },
        "model": dict(model),
        "search": dict(search) if search else None,
    }


def check_format(config: Mapping[str, Any], folder: Path) -> None:
    """Raises UserError for a config.yaml that another version of this package must read."""
    if config.get("format") != FORMAT:
        raise UserError(
            f"{folder / CONFIG}: format {config.get('format')!r} is unknown; this version reads format {FORMAT}\n"
            "Use the version of seq2seq that wrote the bundle, or a newer one."
        )


def check_config(config: Mapping[str, Any], tokenizers: TokenizerPair, where: str) -> None:
    """Raises UserError unless the config belongs to the tokenizers and names a model, languages and a search of this
    package."""
    sizes = {"source": len(tokenizers.source), "target": len(tokenizers.target), "joint": tokenizers.joint}
    if config.get("vocabulary") != sizes:
        raise UserError(f"{where}: the tokenizers ({sizes}) are not those of the config ({config.get('vocabulary')})")
    node = config.get("model")
    if not isinstance(node, dict) or not str(node.get("_target_")).startswith("seq2seq.models."):
        raise UserError(f"{where}: the config names no model of this package (model._target_)")
    try:
        configured_languages(config)
        configured_search(config)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def configured_search(config: Mapping[str, Any]) -> Search:
    """The default search of a bundle's config."""
    node = config.get("search")
    search: Search = build(node, "search") if node else BeamSearch()
    if not isinstance(search, BeamSearch | GreedySearch | Sampling):
        raise UserError("search._target_ is not a search")
    return search


def configured_languages(config: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The source and target language of a bundle's config."""
    languages = config.get("languages") or {}
    if not isinstance(languages, Mapping) or not languages.keys() <= {"source", "target"}:
        raise UserError(f"languages: {languages!r} is not a mapping of source and target")
    return languages.get("source"), languages.get("target")

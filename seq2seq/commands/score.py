"""`seq2seq score`: force-decode given translations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import zip_longest

from omegaconf import DictConfig

from seq2seq.commands.translate import chosen_search, paths
from seq2seq.errors import UserError


def main(config: DictConfig) -> int:
    from seq2seq.inference.translator import Translator

    if config.format not in ("text", "jsonl"):
        raise UserError(f"format={config.format!r} is unknown; choose text or jsonl")
    translator = Translator.load(paths(config.checkpoint), config.device, chosen_search(config))
    pairs = list(line_pairs(config.sources, config.translations))
    for scored in translator.score([source for source, _ in pairs], [target for _, target in pairs]):
        print(f"{scored.score:.6f}" if config.format == "text" else json.dumps(asdict(scored), ensure_ascii=False))
    return 0


def line_pairs(sources: str, translations: str) -> Iterator[tuple[str, str | list[str]]]:
    """Line-aligned pairs; from a .jsonl file the exact tokens that `translate` found.

    Raises:
        UserError: one file is longer, missing, not UTF-8 or not what its name says.
    """
    try:
        with (
            open(sources, encoding="utf-8-sig", newline="\n") as left,
            open(translations, encoding="utf-8-sig", newline="\n") as right,
        ):
            for number, (source, translation) in enumerate(zip_longest(left, right), start=1):
                if source is None or translation is None:
                    shorter = sources if source is None else translations
                    raise UserError(f"{shorter} ends before line {number}: both files need as many lines")
                text = translation.rstrip("\r\n")
                found = tokens(text, f"{translations}:{number}") if translations.endswith(".jsonl") else text
                yield source.rstrip("\r\n"), found
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{sources} or {translations} is not UTF-8: {error}") from error


def tokens(line: str, where: str) -> list[str]:
    try:
        return [str(token) for token in json.loads(line)["tokens"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f'{where} is no line of seq2seq translate format=jsonl: it needs "tokens"') from error

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


def line_pairs(sources: str, translations: str) -> Iterator[tuple[str, str]]:
    """Line-aligned pairs. Raises UserError where one file is longer, missing or not UTF-8."""
    try:
        with (
            open(sources, encoding="utf-8", newline="\n") as left,
            open(translations, encoding="utf-8", newline="\n") as right,
        ):
            for number, (source, translation) in enumerate(zip_longest(left, right), start=1):
                if source is None or translation is None:
                    shorter = sources if source is None else translations
                    raise UserError(f"{shorter} ends before line {number}: both files need as many lines")
                yield source.rstrip("\r\n"), translation.rstrip("\r\n")
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{sources} or {translations} is not UTF-8: {error}") from error

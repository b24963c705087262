"""`seq2seq score`: log-probabilities of given translations."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path

from omegaconf import DictConfig

from seq2seq.commands.configuration import checkpoints, chosen_search, need_files
from seq2seq.commands.console import need_output
from seq2seq.errors import UserError


def main(config: DictConfig) -> int:
    need_output("Write the scores to a file: > scores.txt")
    names = checkpoints(config.checkpoint)
    need_files(config, "sources", "translations")
    pairs = list(line_pairs(config.sources, config.translations))
    from seq2seq.inference.translator import Translator

    translator = Translator.load(names, config.device, chosen_search(config.search))
    if cut := sum(not finished for _, _, finished in pairs):
        print(
            f"warning: {cut} translations were cut at the maximum length; they are scored as if they ended there",
            file=sys.stderr,
        )
    for scored in translator.score([source for source, _, _ in pairs], [target for _, target, _ in pairs]):
        print(f"{scored.score:.6f}" if config.format == "text" else json.dumps(asdict(scored), ensure_ascii=False))
    return 0


def line_pairs(sources: str, translations: str) -> Iterator[tuple[str, str | list[str], bool]]:
    """Yield line-aligned sources and translations, and whether a translation is finished. From JSON lines, recognized
    by the file's name or its first line, come the exact tokens that `translate` found.

    Raises:
        UserError: one file is longer, missing, not UTF-8 or not what its name says.
    """
    from seq2seq.data.readers import read_lines
    from seq2seq.inference.line_output import format_of

    jsonl = Path(translations).name.removesuffix(".gz").removesuffix(".xz").removesuffix(".zst").endswith(".jsonl")
    pairs = zip_longest(read_lines(Path(sources)), read_lines(Path(translations)))
    for number, (source, translation) in enumerate(pairs, start=1):
        if source is None or translation is None:
            shorter = sources if source is None else translations
            raise UserError(f"{shorter} ends before line {number}: both files need the same number of lines")
        if number == 1:
            jsonl = jsonl or format_of(translation.encode("utf-8")) == "jsonl"
        found, finished = tokens(translation, f"{translations}:{number}") if jsonl else (translation, True)
        yield source, found, finished


def tokens(line: str, where: str) -> tuple[list[str], bool]:
    """Tokens of a translation, and whether it is finished (the default)."""
    try:
        record = json.loads(line)
        return [str(token) for token in record["tokens"]], record.get("finished", True)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f'{where} is not a line of seq2seq translate format=jsonl: "tokens" is missing') from error

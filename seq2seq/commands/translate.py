"""`seq2seq translate`: lines in, lines out."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from seq2seq.commands.configuration import build

if TYPE_CHECKING:
    from seq2seq.inference.stream import StreamReport
    from seq2seq.inference.translator import Translator
    from seq2seq.search import Search


def main(config: DictConfig) -> int:
    from seq2seq.inference.stream import translate_file

    translator = load_translator(config)
    report = translate_file(
        translator,
        config.input,
        config.output,
        n_best=config.n_best,
        output_format=config.format,
        resume=config.resume,
        progress=Progress() if sys.stderr.isatty() else None,
    )
    rate = report.lines / report.seconds if report.seconds else 0.0
    for note in (*report.notes(), f"{report.lines} lines in {report.seconds:.1f} s, {rate:.1f} a second"):
        print(note, file=sys.stderr)
    return 0


def load_translator(config: DictConfig) -> Translator:
    """The translator of `checkpoint` (one or several) with the search that was asked for, else its own."""
    import torch

    from seq2seq.inference.translator import Batching, Translator

    if config.threads is not None:
        torch.set_num_threads(config.threads)
    batching = Batching(config.max_tokens, config.window, config.max_source_length, config.long_lines)
    return Translator.load(paths(config.checkpoint), config.device, chosen_search(config), batching)


def paths(value: Any) -> str | list[str]:
    return list(value) if OmegaConf.is_list(value) else str(value)


def chosen_search(config: DictConfig) -> Search | None:
    """The search of the command line; None (the checkpoint's own) if nothing there speaks of it."""

    overrides = HydraConfig.get().overrides.task
    if any(text.lstrip("+~").startswith(("search=", "search.")) for text in overrides):
        search: Search = build(config.search)
        return search
    return None


class Progress:
    """A line on standard error with lines and rate, rewritten at most four times a second."""

    def __init__(self) -> None:
        self._shown = 0.0

    def __call__(self, report: StreamReport) -> None:
        now = time.monotonic()
        if now - self._shown > 0.25:
            self._shown = now
            rate = report.lines / report.seconds if report.seconds else 0.0
            print(f"\r{report.lines:,} lines, {rate:,.1f} a second", end="", file=sys.stderr, flush=True)

"""The models of a service: loaded, tried once, named and described."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch

from seq2seq.errors import UserError
from seq2seq.inference.bundle import Bundle, count_parameters
from seq2seq.inference.card import short_name
from seq2seq.inference.export_folder import Export
from seq2seq.inference.loading import find_device, load_model
from seq2seq.inference.scored_run import scored_run
from seq2seq.inference.text_windows import Batching
from seq2seq.inference.translator import Translator
from seq2seq.run import Run, checkpoint_name
from seq2seq.search import Search, SearchChoice, method_name


@dataclass(frozen=True)
class ServedModel:
    """A loaded model.

    run: the run whose scores it earned, or None. parameters: None if not known. width: of its states. heads: of the
    attention that it shows, 0 if it has none.
    """

    name: str
    translator: Translator
    run: Run | None
    architecture: str
    parameters: int | None
    width: int | None
    heads: int

    def description(self) -> dict[str, Any]:
        """Plain values for `GET /models`."""
        source, target = self.translator.languages
        search = self.translator.search
        return {
            "name": self.name,
            "architecture": self.architecture,
            "source_language": source,
            "target_language": target,
            "parameters": self.parameters,
            "width": self.width,
            "attends": self.heads > 0,
            "heads": self.heads,
            "search": search_description(search),
        }


def search_description(search: Search) -> dict[str, Any]:
    """The method and all options of a search as plain values."""
    return {"method": method_name(search), **asdict(search)}  # type: ignore[call-overload]


def load_models(
    paths: Sequence[str | Path],
    device: str = "cpu",
    search: SearchChoice = None,
    batching: Batching | None = None,
) -> list[ServedModel]:
    """Load every checkpoint (a run's folder, a bundle, a .ckpt or an export) as a model and try it on one sentence.

    search: by default the checkpoints' own, see `Translator.load`.

    Raises:
        UserError: none given, or one is missing, damaged or translates to no finite score.
    """
    if not paths:
        raise UserError("no checkpoint was given")
    names = unique_names([checkpoint_name(Path(path)) for path in paths])
    return [
        _load(Path(path), name, find_device(device), search, batching) for path, name in zip(paths, names, strict=True)
    ]


def _load(path: Path, name: str, device: torch.device, search: SearchChoice, batching: Batching | None) -> ServedModel:
    bundle = load_model(path, device)
    translator = Translator([bundle], search, batching, device)
    try:
        (tried,) = translator.translate_window(["This is a test."], alignment=True)
    except (RuntimeError, ValueError, ArithmeticError) as error:
        raise UserError(f"{path} loads but cannot translate: {str(error).splitlines()[0]}") from error
    if not tried.nbest or not math.isfinite(tried.score):
        raise UserError(f"{path} loads but its translations have no score: its weights are damaged")
    model, attention = bundle.config["model"], tried.nbest[0].heads
    return ServedModel(
        name=name,
        translator=translator,
        run=_scored_run(path, bundle),
        architecture=short_name(model),
        parameters=count_parameters(bundle.model) if isinstance(bundle, Bundle) else None,
        width=model.get("width"),
        heads=0 if attention is None else len(attention),
    )


def _scored_run(path: Path, bundle: Bundle | Export) -> Run | None:
    """As `inference.scored_run.scored_run`; a damaged metrics.json costs the scores, not the service."""
    with suppress(UserError):
        return scored_run(path, bundle)
    return None


def unique_names(names: Sequence[str]) -> list[str]:
    """The same names; a repeated one is followed by a number."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name}-{number}" for number in count(2))
        found.append(next(one for one in chain([name], numbered) if one not in found))
    return found

"""Loading any kind of model for a translator, and starting the engine that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import torch

from seq2seq.errors import UserError
from seq2seq.inference.bundle import Bundle, load_bundle
from seq2seq.inference.ctranslate2_engine import CTranslate2Engine
from seq2seq.inference.engines import Engine, TorchEngine
from seq2seq.inference.export_folder import EXPORTS, ONNX, Export, export_format
from seq2seq.inference.forking import limit_threads_after_fork
from seq2seq.inference.onnx_model import OnnxModel

ENGINES = ("auto", "torch", *EXPORTS)


def load_model(path: str | PathLike[str], device: torch.device, engine: str = "auto") -> Bundle | Export:
    """Load the model at `path`. Raises UserError if there is none, or if `engine` cannot run it."""
    if engine not in ENGINES:
        raise UserError(f"engine={engine!r} is unknown; choose {', '.join(ENGINES)}")
    limit_threads_after_fork()
    found = export_format(Path(path))
    if engine in EXPORTS and found != engine:
        raise UserError(
            f"checkpoint={path} is not an export with format={engine}\n"
            f"Write one with: seq2seq export checkpoint={path} output=DIR format={engine}"
        )
    return load_bundle(Path(path), device) if found is None or engine == "torch" else Export.load(Path(path))


def start_engine(bundles: Sequence[Bundle | Export], device: torch.device) -> Engine:
    """The engine for one model, or for an ensemble of bundles."""
    models = [bundle.model for bundle in bundles if isinstance(bundle, Bundle)]
    if len(models) == len(bundles):
        tables = (bundle.shortlist for bundle in bundles if isinstance(bundle, Bundle))
        return TorchEngine(models, device, next((table for table in tables if table is not None), None))
    if len(bundles) > 1:
        raise UserError("an ensemble needs runs or bundles; exports translate alone")
    (export,) = (bundle for bundle in bundles if isinstance(bundle, Export))
    if export.format == ONNX:
        return TorchEngine([OnnxModel(export.folder, device)])
    return CTranslate2Engine(export, device)


def use_threads(threads: int | None) -> None:
    """Limit torch to this number of CPU threads (None: all cores). Raises UserError for fewer than one."""
    if threads is not None and threads < 1:
        raise UserError(f"threads={threads} must be at least 1")
    if threads is not None:
        torch.set_num_threads(threads)


def find_device(device: torch.device | str) -> torch.device:
    """The torch device of this name. Raises UserError if the machine lacks it, or float64, which sums scores."""
    try:
        return torch.empty(0, device=device, dtype=torch.float64).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(f"device={device} cannot be used here: {str(error).splitlines()[0]}") from error

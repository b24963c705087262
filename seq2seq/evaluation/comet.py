"""COMET (Rei et al., 2020): a learned metric that also reads the source, and agrees with people more often than BLEU.

It needs the package unbabel-comet (the extra `comet`) and a large model, so it is computed only on request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from seq2seq.errors import UserError
from seq2seq.evaluation.bootstrap import SAMPLES, SEED, grouped, percentile_interval, resampled_sums

BATCH = 16


class Predictor(Protocol):
    """The part of unbabel-comet's models that is used here."""

    def predict(self, samples: list[dict[str, str]], batch_size: int, gpus: int, progress_bar: bool) -> Any:
        """samples have "src", "mt" and "ref". The result's `scores` has a float for each, in their order."""
        ...


@dataclass(frozen=True)
class Comet:
    """A loaded model. name: as in the signature of its scores. gpus: number of GPUs, 0 for the CPU."""

    model: Predictor
    name: str
    gpus: int = 0

    def score(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
        samples: int = SAMPLES,
        seed: int = SEED,
        groups: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """{"score", "low", "high", "signature"}: the mean over segments and its 95% bootstrap interval, from the same
        resamples as BLEU's (`groups` as for `evaluate_texts`). The scale is the model's own; most end at 1, the best.
        """
        rows = [
            {"src": source, "mt": hypothesis, "ref": reference}
            for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
        ]
        found = self.model.predict(rows, batch_size=BATCH, gpus=self.gpus, progress_bar=False).scores
        scores = np.array(found, dtype=np.float64)
        counts = grouped(np.stack([scores, np.ones(len(rows))], axis=1), groups)
        low, high = percentile_interval(np.array([total / n for total, n in resampled_sums(counts, samples, seed)]))
        signature = f"comet:{self.name}|version:{_version()}"
        return {"score": float(scores.mean()), "low": low, "high": high, "signature": signature}


def load_comet(model: str, gpus: int = 0) -> Comet:
    """Load a model: a checkpoint (*.ckpt), read without network, or a name on the hub, downloaded unless it is cached.

    A checkpoint is a pickle, which can execute code: load it only from sources you trust.

    Raises:
        UserError: the package or the model is not available.
    """
    file = model.endswith(".ckpt")
    if file and not Path(model).is_file():
        raise UserError(f"comet={model} is not there\nGive a checkpoint, or a name such as Unbabel/wmt22-comet-da.")
    try:
        import comet
    except ImportError as error:
        raise UserError(
            f"comet={model} needs the package unbabel-comet ({error})\nInstall it with pip install 'seq2seq[comet]'."
        ) from error
    try:
        path = model if file else comet.download_model(model)
        loaded: Predictor = comet.load_from_checkpoint(path, local_files_only=file)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"comet={model} cannot be loaded: {reason}\nCheck the name, the file, the network.") from error
    return Comet(loaded, f"{Path(model).stem}-{_digest(model)}" if file else model.rpartition("/")[2], gpus)


def _digest(path: str) -> str:
    """The start of the file's SHA-256, which distinguishes checkpoints named model.ckpt."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:8]


def _version() -> str:
    try:
        return version("unbabel-comet")
    except PackageNotFoundError:
        return "unknown"

"""Folders that `seq2seq export` wrote for engines other than torch.

They contain the engine's own files, which any program with that engine can load, and what the translator also needs:
config.yaml, as in a bundle, and tokenizers.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from seq2seq.data.tokenizer import TokenizerPair
from seq2seq.errors import UserError
from seq2seq.inference.bundle_config import CONFIG, check_config, check_format, configured_languages, configured_search
from seq2seq.inference.safe_build import read_yaml
from seq2seq.search import Search

CTRANSLATE2, ONNX = "ctranslate2", "onnx"
EXPORTS = {CTRANSLATE2: "model.bin", ONNX: "onnx.json"}
"""The file that an export of each format is recognized by."""
LIBRARIES = {
    "ctranslate2": "CTranslate2",
    "onnx_ir": "ONNX IR",
    "onnxruntime": "ONNX Runtime",
    "onnxscript": "ONNX Script",
}


def export_format(path: str | Path) -> str | None:
    """The format of the export that lies at `path`, or None."""
    return next((format for format, file in EXPORTS.items() if (Path(path) / file).is_file()), None)


@dataclass(frozen=True)
class Export:
    """A model for another engine. format: one of EXPORTS. config: as a bundle's, with a section of that name."""

    format: str
    folder: Path
    tokenizers: TokenizerPair
    config: dict[str, Any]

    @property
    def search(self) -> Search:
        return configured_search(self.config)

    @property
    def languages(self) -> tuple[str | None, str | None]:
        return configured_languages(self.config)

    def digest(self) -> str | None:
        """`Bundle.digest` of the original model if this export has its weights in float32; else None, since the scores
        of quantized weights were not measured. Exports of version 0.1.0 have no digest."""
        digest = self.section.get("model")
        return digest if isinstance(digest, str) else None

    @property
    def section(self) -> dict[str, Any]:
        section: dict[str, Any] = self.config[self.format]
        return section

    @classmethod
    def load(cls, folder: Path) -> Export:
        """Load an export. Raises UserError for parts that are missing, damaged, mismatched or of another version."""
        format = export_format(folder)
        if format is None:
            raise UserError(f"{folder} is not an export: it has none of {', '.join(EXPORTS.values())}")
        if not (folder / CONFIG).is_file():
            raise UserError(
                f"{folder} has {EXPORTS[format]}, but no {CONFIG} and so no tokenizer\n"
                f"Write it with: seq2seq export checkpoint=RUN output=DIR format={format}"
            )
        config = read_yaml((folder / CONFIG).read_text(encoding="utf-8", errors="replace"), str(folder / CONFIG))
        check_format(config, folder)
        if not isinstance(config.get(format), dict):
            raise UserError(f"{folder / CONFIG}: the section {format} is missing: the export is damaged")
        tokenizers = TokenizerPair.load(folder)
        check_config(config, tokenizers, str(folder))
        return cls(format, folder, tokenizers, config)


def import_library(name: str, extra: str) -> Any:
    """Import a module of LIBRARIES, which comes with an extra of this package. Raises UserError without it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(
            f"{LIBRARIES[name]} is not installed here ({error})\nInstall it with: pip install 'seq2seq[{extra}]'"
        ) from error

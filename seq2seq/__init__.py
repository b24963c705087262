"""Train, compare and serve translation models, from the fixed-context RNN to the Transformer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from seq2seq.commands.composition import compose
    from seq2seq.inference.translator import Translator
    from seq2seq.pipeline.compare import compare
    from seq2seq.pipeline.evaluate import evaluate
    from seq2seq.pipeline.job import assemble
    from seq2seq.pipeline.train import train

_HOMES = {
    "Translator": "seq2seq.inference.translator",
    "assemble": "seq2seq.pipeline.job",
    "compare": "seq2seq.pipeline.compare",
    "compose": "seq2seq.commands.composition",
    "evaluate": "seq2seq.pipeline.evaluate",
    "train": "seq2seq.pipeline.train",
}
__all__ = ["Translator", "__version__", "assemble", "compare", "compose", "evaluate", "train"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and torch with it, only then."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'seq2seq' has no attribute {name!r}")

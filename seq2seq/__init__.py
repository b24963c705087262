"""Train, compare and serve translation models, from the fixed-context RNN to the Transformer."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Translator", "__version__"]

if TYPE_CHECKING:
    from seq2seq.inference.translator import Translator


def __getattr__(name: str) -> Any:
    """Import the translator, and with it torch, only when it is asked for."""
    if name == "Translator":
        from seq2seq.inference.translator import Translator

        return Translator
    raise AttributeError(f"module 'seq2seq' has no attribute {name!r}")

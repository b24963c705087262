"""Writing a model for other engines, and verifying that it translates the same there."""

from seq2seq.export.ctranslate2 import export_ctranslate2
from seq2seq.export.onnx import export_onnx

__all__ = ["export_ctranslate2", "export_onnx"]

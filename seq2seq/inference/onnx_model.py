"""Running a model that was exported as ONNX graphs. Needs the extra `onnx`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.inference.exports import import_library
from seq2seq.inference.folders import EXPORTS, ONNX
from seq2seq.interfaces import DecoderOutput

STATE, NEXT = "state.", "next_state."
"""What the names of a state's tensors begin with, and of those that a step returns because it changes them."""
Axes = Sequence[str | int]
"""What each axis of a tensor is as long as, by name, or its fixed length."""


@dataclass(frozen=True)
class OnnxState:
    """Tensors by the names of a step's inputs, with their axes; mask (B, S); beams K. Also the encoder's memory."""

    tensors: Mapping[str, Tensor]
    axes: Mapping[str, Axes]
    mask: Tensor
    beams: int

    def select(self, rows: Tensor) -> OnnxState:
        """As `interfaces.State.select`. Tensors with a beam axis have it second, behind that of the batch."""
        stay = None if len(rows) == len(self.mask) else rows[:, 0] // self.beams
        found = {}
        for name, tensor in self.tensors.items():
            axes = self.axes[name]
            if "beam" in axes:
                found[name] = tensor.flatten(0, 1)[rows]
            elif stay is not None and "batch" in axes:
                found[name] = tensor.index_select(axes.index("batch"), stay)
            else:
                found[name] = tensor
        return OnnxState(found, self.axes, self.mask if stay is None else self.mask[stay], rows.shape[1])


class OnnxModel:
    """`interfaces.Model` in evaluation, by ONNX Runtime on the CPU. The features of a step are its logits."""

    def __init__(self, folder: Path, device: torch.device | str = "cpu") -> None:
        """Raises UserError if ONNX Runtime is not installed or cannot read the folder."""
        if torch.device(device).type != "cpu":
            raise UserError(f"an ONNX export translates on the CPU here, not with device={device}")
        try:
            description = json.loads((folder / EXPORTS[ONNX]).read_text(encoding="utf-8"))
            self._axes = {port["name"]: port["axes"] for port in description["step"]["inputs"]}
            self._limits = dict(description["limits"])
            self.longest_source = self._limits["source"] - 1 if "source" in self._limits else None
            self.longest_output = self._limits.get("steps")
            self.attends = any(port["name"] == "weights" for port in description["step"]["outputs"])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(f"{folder / EXPORTS[ONNX]} is damaged: {error}") from error
        self._encoder, self._step = (Graph(folder / f"{name}.onnx") for name in ("encoder", "step"))

    def encode(self, source: Tensor, mask: Tensor) -> OnnxState:
        self._check("source", source.shape[1])
        return OnnxState(self._encoder({"source": source, "mask": mask}), self._axes, mask, 1)

    def start(self, memory: OnnxState) -> OnnxState:
        return memory

    def step(self, tokens: Tensor, state: OnnxState) -> tuple[Tensor, OnnxState, Tensor | None]:
        for name, tensor in state.tensors.items():
            if "steps" in state.axes[name]:
                self._check("steps", tensor.shape[state.axes[name].index("steps")])
        found = self._step({"tokens": tokens.view(len(state.mask), -1), **state.tensors})
        following = {name.replace(NEXT, STATE, 1): one for name, one in found.items() if name.startswith(NEXT)}
        weights = found["weights"].flatten(0, 1) if self.attends else None
        tensors = {**state.tensors, **following}
        return found["logits"].flatten(0, 1), OnnxState(tensors, state.axes, state.mask, state.beams), weights

    def decode(self, target_in: Tensor, memory: OnnxState, target_mask: Tensor | None = None) -> DecoderOutput:
        features, state = [], memory
        for tokens in target_in.unbind(1):
            logits, state, _ = self.step(tokens, state)
            features.append(logits)
        return DecoderOutput(torch.stack(features, 1))

    def logits(self, features: Tensor, out: Tensor | None = None) -> Tensor:
        return features

    def _check(self, axis: str, length: int) -> None:
        limit = self._limits.get(axis)
        if limit is not None and length > limit:
            raise UserError(
                f"the exported model has {limit} positions for {axis}, but a segment needs {length}; shorten it "
                "(max_source_length) or train with a larger model.maximum_positions"
            )


class Graph:
    """One ONNX file as a function of tensors by name."""

    def __init__(self, path: Path) -> None:
        library = import_library("onnxruntime", ONNX)
        options = library.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # what goes wrong is raised
        try:
            self._session = library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's own exceptions have no common base
            raise UserError(f"{path}: ONNX Runtime cannot load it: {str(error).splitlines()[0]}") from error
        self._outputs = [output.name for output in self._session.get_outputs()]

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found: list[Any] = self._session.run(self._outputs, {name: one.numpy() for name, one in inputs.items()})
        return {name: torch.from_numpy(array) for name, array in zip(self._outputs, found, strict=True)}

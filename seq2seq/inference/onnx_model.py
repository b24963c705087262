"""Running a model that was exported as ONNX graphs. Needs the extra `onnx`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.inference.export_folder import EXPORTS, ONNX, import_library
from seq2seq.inference.forking import PerProcess, limit_threads_after_fork
from seq2seq.interfaces import DecoderOutput

STATE, NEXT = "state.", "next_state."
"""Prefixes of the names of a state's tensors, and of those that a step returns because it changes them."""
Axes = Sequence[str | int]
"""For each axis of a tensor, the name of its length or a fixed length."""


@dataclass(frozen=True)
class OnnxState:
    """Tensors by the names of a step's inputs, with their axes; mask (B, S); beams K. Also the encoder's memory."""

    tensors: Mapping[str, Tensor]
    axes: Mapping[str, Axes]
    mask: Tensor
    beams: int

    def select(self, rows: Tensor) -> OnnxState:
        """See `interfaces.State.select`. Tensors with a beam axis have it second, after that of the batch."""
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
    """`interfaces.Model` in evaluation, run by ONNX Runtime on the CPU. The features of a step are its logits."""

    def __init__(self, folder: Path, device: torch.device | str = "cpu") -> None:
        """Raises UserError if ONNX Runtime is not installed or cannot read the folder, whose parts must fit."""
        if torch.device(device).type != "cpu":
            raise UserError(f"an ONNX export translates on the CPU here, not with device={device}")
        path = folder / EXPORTS[ONNX]
        try:
            description = json.loads(path.read_text(encoding="utf-8"))
            ports = {
                (graph, kind): {port["name"]: list(port["axes"]) for port in description[graph][kind]}
                for graph, kind in product(("encoder", "step"), ("inputs", "outputs"))
            }
            self._limits = checked_limits(description["limits"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"{path} is damaged: {error}") from error
        self._encoder, self._step = (Graph(folder / f"{name}.onnx") for name in ("encoder", "step"))
        found = {
            ("encoder", "inputs"): self._encoder.inputs,
            ("encoder", "outputs"): self._encoder.outputs,
            ("step", "inputs"): self._step.inputs,
            ("step", "outputs"): self._step.outputs,
        }
        self._axes = ports["step", "inputs"]
        if self._axes != self._step.inputs or any(ports[place].keys() != own.keys() for place, own in found.items()):
            raise UserError(f"{path} does not describe the graphs beside it: the export is damaged")
        if self._axes.keys() != {"tokens", *self._encoder.outputs}:
            raise UserError(f"{folder}: step.onnx does not take the outputs of encoder.onnx: the export is damaged")
        self.longest_source = self._limits["source"] - 1 if "source" in self._limits else None
        self.longest_output = self._limits.get("steps")
        self.attends = "weights" in self._step.outputs

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


def checked_limits(limits: Mapping[str, Any]) -> dict[str, int]:
    """The greatest lengths by axis; a source has at least a token and EOS. Raises ValueError for other values."""
    for axis, length in limits.items():
        if type(length) is not int or length < (2 if axis == "source" else 1):
            raise ValueError(f"the limit {length!r} of {axis}")
    return dict(limits)


def load(path: Path) -> Any:
    """ONNX Runtime's session. Raises UserError if the library is not installed or cannot read the file."""
    limit_threads_after_fork()
    library = import_library("onnxruntime", ONNX)
    options = library.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # errors are raised
    try:
        return library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's own exceptions have no common base
        raise UserError(f"{path}: ONNX Runtime cannot load it: {str(error).splitlines()[0]}") from error


class Graph:
    """One ONNX file as a function of tensors by name. inputs, outputs: their axes by name."""

    def __init__(self, path: Path) -> None:
        self._loaded = PerProcess(partial(load, path.absolute()))
        session = self._loaded.get()
        self.inputs, self.outputs = (
            {port.name: list(port.shape) for port in ports} for ports in (session.get_inputs(), session.get_outputs())
        )

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        names = list(self.outputs)
        found: list[Any] = self._loaded.get().run(names, {name: one.numpy() for name, one in inputs.items()})
        return {name: torch.from_numpy(array) for name, array in zip(names, found, strict=True)}

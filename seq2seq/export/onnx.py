"""Writing a model as ONNX graphs: the encoder, and one step of the decoder."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from seq2seq.errors import UserError
from seq2seq.export.onnx_card import onnx_card
from seq2seq.export.onnx_graphs import SIZES, Axes, EncoderGraph, Layout, StepGraph, flatten, split, split_rows
from seq2seq.export.onnx_layers import OPSET, with_recurrent_nodes
from seq2seq.export.verification import Verification, sample_ids, verify
from seq2seq.files import new_folder
from seq2seq.inference.bundle import Bundle, count_parameters, write_companions
from seq2seq.inference.card import model_card
from seq2seq.inference.engines import TorchEngine
from seq2seq.inference.export_folder import EXPORTS, ONNX, import_library
from seq2seq.inference.onnx_model import OnnxModel
from seq2seq.interfaces import BOS, EOS, PAD, UNK

NO_LIMIT = 1 << 31
"""Lengths from here on count as no limit."""


def export_onnx(
    bundle: Bundle,
    folder: str | Path,
    sample: Sequence[str] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> Verification:
    """Write encoder.onnx and step.onnx in float32, onnx.json, which describes their inputs and outputs, tokenizers,
    config.yaml and README.md, which shows how to run them with ONNX Runtime alone.

    They are kept once greedy search over them is verified on `sample` (None: random tokens). metrics: as in a run's
    metrics.json, for the model card. Batch, beam and source length are free; a model with learned positions keeps
    its limit, which is in onnx.json.

    Raises:
        UserError: a model that torch cannot trace, graphs that do not agree with it, or a library is missing.
    """
    for library in ("onnx_ir", "onnxscript", "onnxruntime"):
        import_library(library, ONNX)
    if not hasattr(torch.onnx, "ops"):
        raise UserError(f"format=onnx needs torch 2.8 or newer; this is {torch.__version__}")
    bundle = bundle.without_shortlist()
    with new_folder(folder) as temporary:
        description = write_graphs(bundle.model, temporary)
        (temporary / EXPORTS[ONNX]).write_text(json.dumps(description, indent=1), encoding="utf-8")
        original, exported = TorchEngine([bundle.model]), TorchEngine([OnnxModel(temporary)])
        positions = min(description["limits"].values(), default=None)
        found = verify(original, exported, sample_ids(bundle, sample, positions), bundle.search)
        if not found.agrees:
            raise UserError(f"the export does not agree with the model and was not kept: {found}")
        section = {"opset": OPSET, "torch": torch.__version__, "verified": asdict(found), "model": bundle.digest()}
        config = {**bundle.config, ONNX: section}
        card = model_card(config, count_parameters(bundle.model), metrics, str(found))
        write_companions(bundle, config, temporary, card + onnx_card(description, bundle.tokenizers))
    return found


@torch.no_grad()
def write_graphs(model: Any, folder: Path) -> dict[str, Any]:
    """Write both graphs; their description for onnx.json."""
    layout, traced = Layout.of(model), with_recurrent_nodes(model)
    state = split_rows(flatten(SIZES.state(model)), layout.state, SIZES.batch, SIZES.beam)
    axes = {name: split(own) for name, own in layout.state.items()}
    limits: dict[str, int] = {}
    encoder = write_graph(
        folder / "encoder.onnx",
        EncoderGraph(traced, layout),
        dict(zip(("source", "mask"), SIZES.sources(), strict=True)),
        dict.fromkeys(("source", "mask"), ("batch", "source")),
        axes,
        limits,
    )
    step = write_graph(
        folder / "step.onnx",
        StepGraph(traced, layout),
        {"tokens": SIZES.tokens(), **state},
        {"tokens": ("batch", "beam"), **axes},
        {name: split(own) for name, own in layout.results.items()},
        limits,
    )
    tokens = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}
    return {"format": 1, "special_tokens": tokens, "limits": limits, "encoder": encoder, "step": step}


def write_graph(
    path: Path,
    graph: nn.Module,
    inputs: Mapping[str, Tensor],
    axes: Mapping[str, Axes],
    outputs: Mapping[str, Axes],
    limits: dict[str, int],
) -> dict[str, list[dict[str, Any]]]:
    """Trace a graph on example inputs and write it; its ports. The greatest lengths of axes are added to `limits`."""
    with tracing():
        program = trace(graph, inputs, axes)
        limits.update(greatest_lengths(program, axes))
        written = torch.onnx.export(
            program,
            dynamo=True,
            input_names=list(inputs),
            output_names=list(outputs),
            opset_version=OPSET,
            verbose=False,
        )
    assert written is not None
    clear_notes(written.model)
    shape = import_library("onnx_ir", ONNX).Shape
    ports: dict[str, list[dict[str, Any]]] = {}
    for kind, own in (("inputs", axes), ("outputs", outputs)):
        ports[kind] = []
        for value, names in zip(getattr(written.model.graph, kind), own.values(), strict=True):
            value.shape = shape(names)
            ports[kind].append({"name": value.name, "dtype": value.dtype.numpy().name, "axes": list(names)})
    written.save(path)
    return ports


def trace(graph: nn.Module, inputs: Mapping[str, Tensor], axes: Mapping[str, Axes]) -> ExportedProgram:
    """A program for all lengths of the axes that have names."""
    free = tuple({place: Dim.DYNAMIC for place, one in enumerate(own) if isinstance(one, str)} for own in axes.values())
    values = tuple(tensor.contiguous() for tensor in inputs.values())
    return torch.export.export(graph, values, dynamic_shapes=(free,))


def clear_notes(model: Any) -> None:
    """Drop torch's notes on the origin of a graph: source lines and names of all the weights."""
    graph, nodes = model.graph, list(model.graph.all_nodes())
    values = [*graph.inputs, *graph.initializers.values(), *(value for node in nodes for value in node.outputs)]
    for part in (model, graph, *nodes, *values):
        part.metadata_props.clear()


def greatest_lengths(program: ExportedProgram, inputs: Mapping[str, Axes]) -> dict[str, int]:
    """The greatest lengths of axes for which tracing found a limit.

    Raises:
        ValueError: short lengths were lost.
    """
    limits: dict[str, int] = {}
    found = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    values = [found[name] for name in program.graph_signature.user_inputs]
    ranges = {str(symbol): lengths for symbol, lengths in program.range_constraints.items()}
    for (name, axes), value in zip(inputs.items(), values, strict=True):
        for size, axis in zip(value.shape, axes, strict=True):
            if not isinstance(axis, str):
                continue
            lengths = ranges[str(size)]
            if lengths.lower > 2:
                raise ValueError(f"it leaves no length below {lengths.lower} for {axis} of {name}")
            if lengths.upper < NO_LIMIT:
                limits[axis] = int(lengths.upper)
    return limits


@contextmanager
def tracing() -> Iterator[None]:
    """Silence torch's internal messages. Raises UserError for models that torch cannot trace."""
    loggers = [logging.getLogger(name) for name in ("torch", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for logger in loggers:
                logger.setLevel(logging.CRITICAL)
            yield
    except (RuntimeError, ValueError, TypeError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = str(cause).strip().partition("\n")[0]
        raise UserError(f"torch {torch.__version__} cannot trace this model for format=onnx: {reason}") from error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

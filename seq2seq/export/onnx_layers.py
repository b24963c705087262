"""Recurrent layers as single nodes of an ONNX graph."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from seq2seq.layers.recurrent import GRULayer, LayerState, LSTMLayer, real_lengths

OPSET = 20
"""The version of ONNX's operators that graphs are written in."""
NODES: dict[type, tuple[str, list[int], dict[str, int]]] = {
    GRULayer: ("GRU", [1, 0, 2], {"linear_before_reset": 1}),
    LSTMLayer: ("LSTM", [0, 3, 1, 2], {}),
}
"""Operator, the places of its gates in torch's order, and the attributes that make it equal to torch's."""

Module = TypeVar("Module", bound=nn.Module)


def with_recurrent_nodes(model: Module) -> Module:
    """A copy whose recurrent layers read a sequence in one node: tracing torch's layer would unroll it to one length.
    The copy can only be exported.
    """
    model = copy.deepcopy(model)
    for layer in model.modules():
        if isinstance(layer, GRULayer | LSTMLayer):
            layer.forward = recurrent_node(layer)  # type: ignore[method-assign]  # of this instance only
    return model


def recurrent_node(layer: GRULayer | LSTMLayer) -> Any:
    """A replacement for the layer's `forward` (`layers.recurrent.RecurrentLayer`)."""
    operator, weights, attributes = node_parts(layer)
    width, tensors = layer.width, layer.state_tensors

    def forward(
        inputs: Tensor, state: LayerState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        batch, size, _ = inputs.shape
        lengths = None if mask is None else real_lengths(mask).to(torch.int32)
        initial = [None] * tensors if state is None else [tensor.unsqueeze(0) for tensor in state]
        outputs, *final = torch.onnx.ops.symbolic_multi_out(
            operator,
            [inputs.transpose(0, 1), *weights, lengths, *initial],
            attributes,
            dtypes=[inputs.dtype] * (1 + tensors),
            shapes=[(size, 1, batch, width), *[(1, batch, width)] * tensors],
            version=OPSET,
        )
        return outputs[:, 0].transpose(0, 1), tuple(tensor[0] for tensor in final)

    return forward


def node_parts(layer: GRULayer | LSTMLayer) -> tuple[str, list[Tensor], dict[str, Any]]:
    """Operator, its inputs W, R and B, and its attributes."""
    operator, order, attributes = NODES[type(layer)]
    gates = [one.detach().chunk(len(order)) for one in layer.rnn.all_weights[0]]
    inward, recurrent, *biases = (torch.cat([parts[place] for place in order]) for parts in gates)
    weights = [inward.unsqueeze(0), recurrent.unsqueeze(0), torch.cat(biases).unsqueeze(0)]
    return operator, weights, {"hidden_size": layer.width, **attributes}

"""Graphs of an ONNX export compute what the models compute."""

import pytest
import tiny
import torch
from onnx import TensorProto, helper
from onnx_models import CONDITIONAL, LUONG, talkative
from onnxruntime import InferenceSession
from precision import assert_float32_close

from seq2seq.attention.key_value_cache import KeyValueCache
from seq2seq.errors import UserError
from seq2seq.export import onnx
from seq2seq.export.onnx_graphs import SIZES, GraphCache, Layout, Sizes, StepGraph, flatten, rebuild, split, split_rows
from seq2seq.export.onnx_layers import OPSET, node_parts
from seq2seq.interfaces import EOS
from seq2seq.layers.recurrent import GRULayer, LSTMLayer

MARGINAL = {
    **LUONG,
    "attention": {
        **LUONG["attention"],
        "alignment": {"_target_": "seq2seq.attention.HardMarginalAlignment"},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [tiny.RNN, tiny.BAHDANAU, CONDITIONAL, MARGINAL, {**tiny.TRANSFORMER, "positions": "rotary"}]
)
def test_traced_step_equals_the_model_for_all_lengths(model):
    """Those that no test above exports whole."""
    model = talkative(model).model
    layout = Layout.of(model)
    graph = StepGraph(model, layout)
    axes = {"tokens": ("batch", "beam"), **{name: split(own) for name, own in layout.state.items()}}

    def inputs(sizes):
        tokens = torch.randint(EOS + 1, 40, (sizes.batch, sizes.beam))
        return {"tokens": tokens, **split_rows(flatten(sizes.state(model)), layout.state, sizes.batch, sizes.beam)}

    with torch.no_grad():
        with onnx.tracing():
            program = onnx.trace(graph, inputs(SIZES), axes)
        assert onnx.greatest_lengths(program, axes) == {}
        traced = program.module()
        for sizes in (Sizes(2, 6, 3, 3), Sizes(7, 2, 12, 5)):
            given = inputs(sizes)
            values = [tensor.clone() for tensor in given.values()]
            for one, other in zip(traced(*given.values()), graph(*values), strict=True):
                assert_float32_close(one, other)


@pytest.mark.parametrize("layer", [GRULayer(3, 4), LSTMLayer(3, 4)])
def test_recurrent_node_equals_its_layer(layer):
    layer.eval().requires_grad_(False)
    inputs, mask = torch.randn(3, 6, 3), torch.arange(6) < torch.tensor([[6], [2], [4]])
    wanted, final = layer(inputs, None, mask)
    operator, weights, attributes = node_parts(layer)
    values = [inputs.transpose(0, 1), *weights, mask.sum(1).to(torch.int32)]
    feeds = {name: value.numpy() for name, value in zip(("X", "W", "R", "B", "lengths"), values, strict=True)}
    outputs = ["Y", *("h", "c")[: len(final)]]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.INT32 if name == "lengths" else TensorProto.FLOAT, None)
        for name in [*feeds, *outputs]
    ]
    node = helper.make_node(operator, list(feeds), outputs, **attributes)
    graph = helper.make_graph([node], "node", ports[: len(feeds)], ports[len(feeds) :])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    found = InferenceSession(model.SerializeToString()).run(outputs, feeds)
    assert_float32_close(torch.from_numpy(found[0])[:, 0].transpose(0, 1)[mask], wanted[mask])
    for one, other in zip(found[1:], final, strict=True):
        assert_float32_close(torch.from_numpy(one)[0], other)


@pytest.mark.parametrize("window", [None, 0, 1, 4])
def test_graph_cache_equals_the_cache_of_the_decoder(window):
    draw = torch.Generator().manual_seed(1)
    ours = KeyValueCache.start(2, 3, 2, 4, like=torch.zeros(1))
    theirs = GraphCache.of(ours)
    for rows in (1, 2, 2, 3, 3):
        if rows != ours.rows:
            ours = ours.select(torch.arange(3)[:, None] * ours.rows + torch.zeros(rows, dtype=torch.int64))
            theirs = GraphCache(theirs.keys, theirs.values, ours.visible, theirs.starts)
        assert (theirs.steps, theirs.rows) == (ours.steps, ours.rows)
        ours, theirs = ours.extend(), theirs.extend()
        for layer in range(2):
            keys, values = (torch.randn(3, 2, rows, 4, generator=draw) for _ in range(2))
            query = torch.randn(3, 2, rows, 4, generator=draw)
            found = []
            for cache in (ours, theirs):
                k, v, bias = cache.append(layer, keys, values, window)
                found.append(torch.softmax(query @ k.transpose(2, 3) + (0 if bias is None else bias), -1) @ v)
            assert_float32_close(found[1], found[0])


def test_states_become_named_tensors_and_back():
    cache = KeyValueCache.start(1, 2, 1, 3, like=torch.zeros(1)).select(torch.tensor([[0, 0], [1, 1]])).extend()
    cache.append(0, torch.ones(2, 1, 2, 3), torch.ones(2, 1, 2, 3))
    state = (torch.ones(2), (3, torch.zeros(1)), cache)
    named = flatten(state)
    assert list(named) == [
        "state.0",
        "state.1.0",
        "state.1.1",
        *(f"state.2.{name}" for name in ("keys.0", "values.0", "visible", "starts")),
    ]
    assert named["state.1.0"].shape == (3,)
    back = rebuild(state, named)
    assert back[0] is state[0] and back[1][0] == 3 and isinstance(back[2], GraphCache)
    assert all(torch.equal(one, named[name]) for name, one in flatten(back).items())
    with pytest.raises(UserError, match=r"a str in it \(state\.1\.\)"):
        flatten((torch.ones(2), "text"))

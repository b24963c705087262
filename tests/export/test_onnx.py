import json
import re
import shutil
import sys

import pytest
import tiny
import torch
from onnx import TensorProto, helper
from onnxruntime import InferenceSession
from precision import assert_float32_close, float32_approx
from torch import nn

from seq2seq.attention.key_value_cache import KeyValueCache
from seq2seq.cli import run
from seq2seq.errors import UserError
from seq2seq.export import export_onnx, onnx
from seq2seq.export.onnx_graphs import (
    SIZES,
    GraphCache,
    Layout,
    Sizes,
    StepGraph,
    flatten,
    rebuild,
    split,
    split_rows,
)
from seq2seq.export.onnx_layers import OPSET, node_parts
from seq2seq.export.verification import TOLERANCE
from seq2seq.inference.bundle import load_bundle
from seq2seq.inference.export_folder import Export
from seq2seq.inference.translator import Translator
from seq2seq.interfaces import BOS, EOS, PAD
from seq2seq.layers.recurrent import GRULayer, LSTMLayer
from seq2seq.search import BeamSearch, GreedySearch, Sampling

TEXTS = tiny.sentences(20, seed=31)
SAMPLE = tiny.sentences(8, seed=32)
LUONG = {
    "_target_": "seq2seq.models.create_luong",
    "width": 16,
    "embedding_width": 16,
    "attention": {
        "_target_": "seq2seq.attention.Attention",
        "score": {"_target_": "seq2seq.attention.GeneralScore", "query_width": 16, "key_width": 16},
        "alignment": {
            "_target_": "seq2seq.attention.LocalPredictiveAlignment",
            "query_width": 16,
            "width": 16,
            "window": 2,
        },
    },
}
CONDITIONAL = {
    **tiny.BAHDANAU,
    "_target_": "seq2seq.models.create_conditional_gru",
    "encoder_width": 16,
    "tie_embeddings": True,
}
MARGINAL = {
    **LUONG,
    "attention": {
        **LUONG["attention"],
        "alignment": {"_target_": "seq2seq.attention.HardMarginalAlignment"},
    },
}
CONVOLUTIONAL = {"_target_": "seq2seq.models.create_conv", "width": 16, "embedding_width": 16, "layers": 1}
LIMITED = {**tiny.TRANSFORMER, "positions": "learned", "maximum_positions": 40, "window": 3}
KINDS = {
    "luong, lstm, local, two vocabularies": (LUONG, False, 2.5),
    "transformer, windows, learned positions": (LIMITED, True, 2.5),
    "conditional gru": (CONDITIONAL, True, 2.5),
}
LIMITS = {"transformer, windows, learned positions": {"source": 40, "steps": 39}}


def talkative(model, joint=True, scale=2.5):
    """Random weights whose outputs end now and then and never want PAD or BOS."""
    bundle = tiny.bundle(model, 3, tiny.tokenizers(joint), scale)
    with torch.no_grad():
        bundle.model.output.bias.normal_(std=0.5)
        bundle.model.output.bias[[PAD, BOS]] = -40
        bundle.model.output.bias[EOS] = 2.5
    return bundle


@pytest.fixture(scope="module", params=list(KINDS))
def exported(request, tmp_path_factory):
    """(the bundle, its export's folder, the verification, its limits) of each kind of model."""
    bundle = talkative(*KINDS[request.param])
    folder = tmp_path_factory.mktemp("export") / "model"
    return bundle, folder, export_onnx(bundle, folder, sample=SAMPLE), LIMITS.get(request.param, {})


def translations(translator, search):
    return list(translator.translate([text[:40] for text in TEXTS], search=search, n_best=None, alignment=True))


@pytest.mark.slow
def test_searches_over_an_onnx_export_equal_those_with_torch(exported):
    bundle, folder, found, _ = exported
    assert (found.segments, found.greedy, found.own) == (8, 1.0, 1.0)
    assert found.log_probability < TOLERANCE
    theirs = Translator.load(folder, engine="onnx")
    assert theirs.search == bundle.search
    for search in (GreedySearch(), BeamSearch(beam_size=4, n_best=3, max_length_a=1.2, max_length_b=2)):
        pairs = list(zip(translations(Translator([bundle]), search), translations(theirs, search), strict=True))
        assert len({len(a.tokens) for a, _ in pairs}) > 3
        for ours, other in pairs:
            assert [one.tokens for one in other.nbest] == [one.tokens for one in ours.nbest]
            assert [one.score for one in other.nbest] == float32_approx([one.score for one in ours.nbest])
            assert_float32_close(other.alignment, ours.alignment)
    sampled = Sampling(n_best=2, seed=5, top_k=3, max_length_b=2)
    assert len(translations(theirs, sampled)) == len(TEXTS)
    pairs = [(text, one.tokens) for text, one in zip(TEXTS, translations(theirs, GreedySearch()), strict=True)]
    scores = [
        [one.log_probability for one in engine.score(*zip(*pairs, strict=True))]
        for engine in (Translator([bundle]), theirs)
    ]
    assert scores[1] == float32_approx(scores[0])


@pytest.mark.slow
def test_onnx_export_describes_its_graphs(exported):
    bundle, folder, _, limits = exported
    description = json.loads((folder / "onnx.json").read_text())
    assert description["limits"] == limits
    assert Export.load(folder).digest() == bundle.digest()
    assert description["special_tokens"] == {"pad": 0, "unk": 1, "bos": 2, "eos": 3}
    ports = {
        (g, k): {p["name"]: p["axes"] for p in description[g][k]}
        for g in ("encoder", "step")
        for k in ("inputs", "outputs")
    }
    assert ports["encoder", "inputs"] == {"source": ["batch", "source"], "mask": ["batch", "source"]}
    assert ports["step", "inputs"] == {"tokens": ["batch", "beam"], **ports["encoder", "outputs"]}
    assert ports["step", "outputs"]["logits"] == ["batch", "beam", len(bundle.tokenizers.target)]
    assert ports["step", "outputs"]["weights"][:2] == ["batch", "beam"]
    carried = {name.removeprefix("next_") for name in ports["step", "outputs"]} - {"logits", "weights"}
    assert carried < ports["step", "inputs"].keys()
    assert all(b".py" not in (folder / f"{name}.onnx").read_bytes() for name in ("encoder", "step"))
    if "state.cache.visible" in ports["step", "inputs"]:
        assert ports["step", "outputs"]["next_state.cache.visible"] == ["batch", "beam", "past + beam"]
    card = (folder / "README.md").read_text()
    assert all(f"| `{name}` |" in card for names in ports.values() for name in names)


@pytest.mark.slow
def test_example_of_the_card_translates_with_onnx_runtime_alone(exported, monkeypatch, capsys):
    bundle, folder, _, _ = exported
    (example,) = re.findall(r"(?s)```python\n(import numpy.*?)```", (folder / "README.md").read_text())
    assert "torch" not in example and "seq2seq" not in example
    monkeypatch.chdir(folder)
    names = {}
    exec(example, names)
    wanted = Translator([bundle]).translate(TEXTS[:8], search=GreedySearch())
    assert [names["translate"](text) for text in TEXTS[:8]] == [one.text for one in wanted]
    assert capsys.readouterr().out


@pytest.mark.slow
def test_limits_of_an_onnx_export_split_sources_and_end_outputs(exported):
    _, folder, _, limits = exported
    long = "a cat " * 40
    translator = Translator.load(folder)
    for search in (GreedySearch(), GreedySearch(min_length_b=60, max_length_b=60, max_length_a=0)):
        text = long if search == GreedySearch() else "a cat"
        (found,) = translator.translate(text, search=search)
        if limits:
            assert len(found.tokens) <= limits["steps"] * found.parts
            assert found.parts > 1 if text == long else len(found.tokens) == limits["steps"]
        elif text != long:
            assert len(found.tokens) == 60


@pytest.mark.slow
def test_load_with_a_description_of_other_graphs_is_refused(exported, tmp_path):
    _, folder, _, _ = exported
    shutil.copytree(folder, tmp_path / "model")
    whole = (folder / "onnx.json").read_text()

    def drop(description):
        del description["step"]["inputs"][-1]

    def rename(description):
        description["encoder"]["outputs"][0]["name"] += "s"

    def turn(description):
        description["step"]["inputs"][0]["axes"].reverse()

    def limit(length, axis="steps"):
        return lambda description: description["limits"].update({axis: length})

    changes = [
        *((change, "does not describe the graphs") for change in (drop, rename, turn)),
        *((change, "is damaged: the limit") for change in (limit("x"), limit(None), limit(True), limit(1, "source"))),
    ]
    for change, message in changes:
        description = json.loads(whole)
        change(description)
        (tmp_path / "model" / "onnx.json").write_text(json.dumps(description))
        with pytest.raises(UserError, match=rf"onnx\.json {message}"):
            Translator.load(tmp_path / "model")
    (tmp_path / "model" / "onnx.json").write_text(whole)
    (tmp_path / "model" / "encoder.onnx").write_bytes((folder / "step.onnx").read_bytes())
    with pytest.raises(UserError, match="does not describe the graphs"):
        Translator.load(tmp_path / "model")


@pytest.mark.slow
def test_export_that_does_not_agree_is_not_kept(exported, tmp_path, monkeypatch):
    """Graphs of other weights in place of the model's own."""
    bundle, folder, _, _ = exported

    def others(model, target):
        for name in ("encoder.onnx", "step.onnx"):
            shutil.copy(folder / name, target)
        return json.loads((folder / "onnx.json").read_text())

    monkeypatch.setattr(onnx, "write_graphs", others)
    with torch.no_grad():
        bundle = tiny.bundle(bundle.config["model"], 4, bundle.tokenizers)
    with pytest.raises(UserError, match="does not agree"):
        export_onnx(bundle, tmp_path / "model", sample=SAMPLE)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_export_command_writes_a_verified_onnx_export(tmp_path, capsys):
    bundle = talkative(CONVOLUTIONAL, True, 2.0)
    bundle.save(tmp_path / "run" / "bundle")
    (tmp_path / "run" / "metrics.json").write_text('{"training": {}, "splits": {}}')
    (tmp_path / "run" / "test.src.txt").write_text("\n".join(SAMPLE) + "\n")
    (tmp_path / "in.txt").write_text("\n".join(TEXTS) + "\n")
    export = ["export", f"checkpoint={tmp_path}/run", f"output={tmp_path}/out", "format=onnx"]
    assert run([*export, "quantization=int8"]) == 2
    assert "belongs to format=ctranslate2" in capsys.readouterr().err
    assert run(export) == 0
    told = capsys.readouterr()
    assert told.out == f"{tmp_path}/out\n"
    assert told.err.startswith("verified on 8 segments: greedy search gives the same tokens in 100.0%")
    files = [f"input={tmp_path}/in.txt", f"output={tmp_path}/out.txt", "search=greedy"]
    assert run(["translate", f"checkpoint={tmp_path}/out", "engine=onnx", *files]) == 0
    wanted = Translator([bundle]).translate(TEXTS, search=GreedySearch())
    assert (tmp_path / "out.txt").read_text().split("\n")[:-1] == [one.text for one in wanted]

    with pytest.raises(UserError, match="format=ctranslate2"):
        Translator.load(tmp_path / "out", engine="ctranslate2")
    with pytest.raises(UserError, match="is an export"):
        load_bundle(tmp_path / "out")
    with pytest.raises(UserError, match="translate alone"):
        Translator.load([tmp_path / "out", tmp_path / "run"])
    with pytest.raises(UserError, match="on the CPU"):
        Translator.load(tmp_path / "out", device="meta")
    (tmp_path / "out" / "step.onnx").write_bytes(b"nonsense")
    with pytest.raises(UserError, match=r"step\.onnx: ONNX Runtime cannot load it"):
        Translator.load(tmp_path / "out")
    for text in ("{", "{}", '{"step": []}', "[" * 100_000):
        (tmp_path / "out" / "onnx.json").write_text(text)
        with pytest.raises(UserError, match=r"onnx\.json is damaged"):
            Translator.load(tmp_path / "out")


@pytest.mark.slow
def test_graph_for_some_lengths_only_is_refused(tmp_path):
    class Guarded(nn.Module):
        def forward(self, *inputs):
            return (inputs[0] * 2 if inputs[0].shape[0] > 4 else inputs[0],)

    class Looking(nn.Module):
        def forward(self, *inputs):
            return (inputs[0] * 2 if inputs[0].sum() > 4 else inputs[0],)

    ports = {"values": ("source",)}
    for graph, message in ((Guarded(), "no length below 5 for source of values"), (Looking(), "data-dependent")):
        with pytest.raises(UserError, match=message):
            onnx.write_graph(tmp_path / "graph.onnx", graph, {"values": torch.ones(7)}, ports, ports, {})
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize("library", ["onnxscript", "onnxruntime"])
def test_export_without_a_library_names_the_extra(tmp_path, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match=r"pip install 'seq2seq\[onnx\]'"):
        export_onnx(talkative(tiny.RNN), tmp_path / "model")
    assert not list(tmp_path.iterdir())

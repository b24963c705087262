import json
import re
import shutil
import sys

import pytest
import tiny
import torch
from onnx_models import CONDITIONAL, LUONG, talkative
from precision import assert_float32_close, float32_approx
from torch import nn

from seq2seq.cli import run
from seq2seq.errors import UserError
from seq2seq.export import export_onnx, onnx
from seq2seq.export.verification import TOLERANCE
from seq2seq.inference.bundle import load_bundle
from seq2seq.inference.export_folder import Export
from seq2seq.inference.translator import Translator
from seq2seq.search import BeamSearch, GreedySearch, Sampling

TEXTS = tiny.sentences(20, seed=31)
SAMPLE = tiny.sentences(8, seed=32)
CONVOLUTIONAL = {"_target_": "seq2seq.models.create_conv", "width": 16, "embedding_width": 16, "layers": 1}
LIMITED = {**tiny.TRANSFORMER, "positions": "learned", "maximum_positions": 40, "window": 3}
KINDS = {
    "luong, lstm, local, two vocabularies": (LUONG, False, 2.5),
    "transformer, windows, learned positions": (LIMITED, True, 2.5),
    "conditional gru": (CONDITIONAL, True, 2.5),
}
LIMITS = {"transformer, windows, learned positions": {"source": 40, "steps": 39}}


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


@pytest.mark.parametrize("library", ["onnxscript", "onnxruntime"])
def test_export_without_a_library_names_the_extra(tmp_path, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match=r"pip install 'seq2seq\[onnx\]'"):
        export_onnx(talkative(tiny.RNN), tmp_path / "model")
    assert not list(tmp_path.iterdir())

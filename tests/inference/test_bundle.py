import json
import math
import os
import pickle
import shutil

import pytest
import tiny
import torch
import yaml
from safetensors.torch import load_file, save_file
from small_models import SMALL

from seq2seq.errors import UserError
from seq2seq.files import new_folder
from seq2seq.inference.bundle import Bundle, load_bundle
from seq2seq.inference.safe_build import Allowance, build
from seq2seq.inference.translator import Translator

TEXTS = tiny.sentences(6, seed=9)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles") / "bundle"
    tiny.bundle().save(folder)
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "bundle")
    return tmp_path / "bundle"


def edit(folder, change):
    config = yaml.safe_load((folder / "config.yaml").read_text())
    change(config)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


def outputs(bundle):
    return [(t.text, round(t.score, 6)) for t in Translator([bundle]).translate(TEXTS)]


@pytest.mark.parametrize("model", [tiny.TRANSFORMER, tiny.BAHDANAU, tiny.RNN], ids=["transformer", "bahdanau", "rnn"])
@pytest.mark.parametrize("joint", [True, False])
def test_bundle_saved_and_loaded_translates_the_same(model, joint, tmp_path):
    bundle = tiny.bundle(model, pair=tiny.tokenizers(joint))
    bundle.save(tmp_path / "bundle")
    assert outputs(load_bundle(tmp_path / "bundle")) == outputs(bundle)
    names = {"tokenizer.model"} if joint else {"tokenizer.source.model", "tokenizer.target.model"}
    assert {path.name for path in (tmp_path / "bundle").iterdir()} == {
        "README.md",
        "config.yaml",
        "model.safetensors",
        *names,
    }
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_save_over_an_older_bundle_replaces_it(tmp_path):
    tiny.bundle(tiny.RNN).save(tmp_path / "bundle")
    (tmp_path / "bundle" / "stray").write_text("old")
    tiny.bundle(seed=5).save(tmp_path / "bundle")
    assert outputs(load_bundle(tmp_path / "bundle")) == outputs(tiny.bundle(seed=5))
    assert not (tmp_path / "bundle" / "stray").exists()
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("mask", [0o077, 0o002])
def test_new_folder_has_the_permissions_of_the_umask(mask, tmp_path):
    before = os.umask(mask)
    try:
        with new_folder(tmp_path / "bundle"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "bundle").stat().st_mode & 0o777 == 0o777 & ~mask


def test_failed_save_leaves_the_older_bundle(tmp_path, monkeypatch):
    tiny.bundle(tiny.RNN).save(tmp_path / "bundle")
    monkeypatch.setattr("seq2seq.inference.bundle.model_card", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tiny.bundle(seed=5).save(tmp_path / "bundle")
    assert outputs(load_bundle(tmp_path / "bundle")) == outputs(tiny.bundle(tiny.RNN))
    assert len(list(tmp_path.iterdir())) == 1


def checkpoint_of(bundle):
    return {
        "state_dict": {f"model.{name}": value for name, value in bundle.model.state_dict().items()}
        | {"criterion.weight": torch.ones(1)},
        "optimizer_states": [{"state": {}}],
        "seq2seq": {
            "config": {
                "model": tiny.TRANSFORMER,
                "search": tiny.SEARCH,
                "data": {"source_language": "en", "target_language": "xx"},
            },
            "tokenizers": bundle.tokenizers.state(),
        },
    }


def test_load_bundle_of_a_run_takes_its_bundle_else_its_checkpoint(tmp_path):
    bundle = tiny.bundle()
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    torch.save(checkpoint_of(bundle), run / "checkpoints" / "best.ckpt")
    for path in (run, run / "checkpoints" / "best.ckpt"):
        loaded = load_bundle(path)
        assert outputs(loaded) == outputs(bundle)
        assert loaded.languages == ("en", "xx")
    tiny.bundle(seed=5).save(run / "bundle")
    assert outputs(load_bundle(run)) == outputs(tiny.bundle(seed=5))


def test_card_states_known_metrics(tmp_path):
    metrics = {
        "data": "multi30k",
        "training": {"updates": 1200, "epochs": 3.5, "seconds": 1800},
        "splits": {
            "test": {
                "segments": 1000,
                "bleu": {"score": 38.25, "low": 37.0, "high": 39.5, "signature": "nrefs:1|case:mixed"},
                "chrf": {"score": 60.1, "signature": "nrefs:1|nc:6"},
            }
        },
    }
    bundle = tiny.bundle()
    bundle.save(tmp_path / "bundle", metrics)
    card = (tmp_path / "bundle" / "README.md").read_text()
    for part in ("en to xx", "multi30k", "1200 updates", "38.25 [37.0, 39.5]", "nrefs:1|case:mixed", "License"):
        assert part in card
    parameters = sum(parameter.numel() for parameter in bundle.model.parameters())
    assert f"{parameters:,} parameters" in card


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["model"].update(_target_="os.system"),
        lambda c: c["model"].update(_target_="builtins.eval"),
        lambda c: c["model"].update(_target_="seq2seq.models.torch.load"),
        lambda c: c["model"].update(_target_="seq2seq.models.transformer.torch.load"),
        lambda c: c["model"].update(_target_="seq2seq.inference.bundle.shutil.rmtree"),
        lambda c: c["model"].update(_target_=["seq2seq.models.create_rnn"]),
        lambda c: c["model"].update(heads={"_target_": "subprocess.getoutput", "cmd": "id"}),
        lambda c: c["model"].update(_partial_=True),
        lambda c: c["model"].update(_args_=["x"]),
        lambda c: c["model"].update(unknown=1),
        lambda c: c["model"].update(width=-3),
        lambda c: c["model"].update(width="wide"),
        lambda c: c["model"].pop("_target_"),
        lambda c: c.update(model="seq2seq.models.create_rnn"),
        lambda c: c.update(search={"_target_": "seq2seq.attention.SoftAlignment"}),
        lambda c: c.update(search={"_target_": "seq2seq.search.BeamSearch", "beam_size": 0}),
        lambda c: c.update(search={"_target_": "seq2seq.search.BeamSearch", "beam_size": 100_000}),
        lambda c: c.update(search={"_target_": "seq2seq.search.decode_batch", "model": 1}),
        lambda c: c.update(search=[1]),
        lambda c: c.update(languages="en-de"),
        lambda c: c.update(format=2),
        lambda c: c.pop("format"),
        lambda c: c["vocabulary"].update(source=7),
        lambda c: c["model"].update(width=32),
        lambda c: c["model"].update(layers=2),
    ],
)
def test_load_bundle_with_a_hostile_or_wrong_config_is_refused(copy, change):
    edit(copy, change)
    with pytest.raises(UserError):
        load_bundle(copy)


@pytest.mark.parametrize(
    "options",
    [
        {"layers": 10**9},
        {"positions": "learned", "maximum_positions": 4_000_000},
        {"positions": "learned", "maximum_positions": 10**12},
        {"feedforward_width": 10**7},
        {"width": 10**11},
        {"_target_": "seq2seq.models.create_rnn", "layers": 10**9, "width": 16, "embedding_width": 16},
    ],
    ids=str,
)
def test_load_bundle_with_a_config_larger_than_its_weights_is_refused_before_memory_is_taken(copy, options):
    model = options if "_target_" in options else {**tiny.TRANSFORMER, **options}
    edit(copy, lambda config: config.update(model=model))
    with pytest.raises(UserError, match="bundle: model: the configured model is larger than its weights"):
        load_bundle(copy)


@pytest.mark.parametrize("name", SMALL)
def test_allowance_counts_every_tensor_of_a_model(name, build_model):
    weights = list(build_model(name).parameters())
    with Allowance(weights) as allowance:
        build_model(name)
    size = sum(weight.numel() for weight in weights)
    assert len(weights) <= 2 * len(weights) - allowance.tensors < 1.5 * len(weights)
    assert size <= 2 * size - allowance.entries < 1.1 * size


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['true']",
        "a: &a [1, 2]\nb: *a",
        "- 1",
        "{",
        "",
        "[" * 500,
    ],
)
def test_load_bundle_with_a_config_that_is_not_plain_yaml_is_refused(copy, text):
    (copy / "config.yaml").write_text(text)
    with pytest.raises(UserError):
        load_bundle(copy)


def rewrite(change):
    def apply(path):
        weights = load_file(path)
        change(weights)
        save_file(weights, path)

    return apply


def first(weights):
    return sorted(weights)[0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(path.read_bytes()[:20]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(pickle.dumps({"weights": os.getcwd})),
        rewrite(lambda weights: weights.pop(first(weights))),
        rewrite(lambda weights: weights.update(extra=torch.ones(2))),
        rewrite(lambda weights: weights[first(weights)].view(-1)[3].fill_(math.nan)),
        rewrite(lambda weights: weights.update({first(weights): torch.ones(2, 2, 2)})),
    ],
)
def test_load_bundle_with_damaged_or_foreign_weights_is_refused(copy, damage):
    damage(copy / "model.safetensors")
    with pytest.raises(UserError, match="bundle"):
        load_bundle(copy)


def test_load_bundle_with_a_damaged_tokenizer_is_refused(copy):
    (copy / "tokenizer.model").write_bytes(b"no model")
    with pytest.raises(UserError):
        load_bundle(copy)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_load_bundle_of_a_checkpoint_that_would_run_code_is_refused(tmp_path):
    torch.save({"state_dict": {}, "seq2seq": Evil(str(tmp_path / "pwned"))}, tmp_path / "evil.ckpt")
    with pytest.raises(UserError):
        load_bundle(tmp_path / "evil.ckpt")
    assert not (tmp_path / "pwned").exists()


NORM = "model.encoder.norm.weight"
ENDLESS: list[object] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c.update(state_dict=[1]),
        lambda c: c["state_dict"].update({NORM: 1}),
        lambda c: c["state_dict"].update({NORM: torch.ones(16).to_sparse()}),
        lambda c: c["state_dict"].update({NORM: torch.ones(1).expand(16)}),
        lambda c: c["state_dict"].update({NORM: torch.ones(16).to(torch.complex64)}),
        lambda c: c["state_dict"].update({NORM: torch.full((16,), math.nan).to(torch.float8_e4m3fn)}),
        lambda c: c["state_dict"].update({5: torch.ones(16), "model.": 1}),
        lambda c: c.update(seq2seq="x"),
        lambda c: c["seq2seq"].update(config=[]),
        lambda c: c["seq2seq"].update(tokenizers=["tokenizer.model"]),
        lambda c: c["seq2seq"].update(tokenizers={"tokenizer.model": "text"}),
        lambda c: c["seq2seq"].update(tokenizers={"tokenizer.model": 300_000_000}),
        lambda c: c["seq2seq"].update(tokenizers={"tokenizer.model": b"no model"}),
        lambda c: c["seq2seq"].update(tokenizers={1: b""}),
        lambda c: c["seq2seq"]["config"].update(model="transformer"),
        lambda c: c["seq2seq"]["config"].update(model={**tiny.TRANSFORMER, "norm": ENDLESS}),
        lambda c: c["seq2seq"]["config"].update(data=["en", "xx"]),
        lambda c: c["seq2seq"]["config"].update(languages={"x": 1}),
        lambda c: c["seq2seq"]["config"].update(languages=["en", "xx"]),
        lambda c: c["seq2seq"]["config"].update(search=[1]),
        lambda c: c["seq2seq"]["config"].update(search={"_target_": "seq2seq.search.BeamSearch", "beam_size": 0}),
    ],
)
def test_load_bundle_of_a_damaged_checkpoint_names_it(tmp_path, damage):
    checkpoint = checkpoint_of(tiny.bundle())
    damage(checkpoint)
    torch.save(checkpoint, tmp_path / "last.ckpt")
    with pytest.raises(UserError, match=r"last\.ckpt"):
        load_bundle(tmp_path / "last.ckpt")


def test_load_bundle_of_another_path_names_it(tmp_path):
    (tmp_path / "notes.ckpt").write_text("hello")
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    for path in (tmp_path, tmp_path / "none", tmp_path / "notes.ckpt", tmp_path / "other.ckpt"):
        with pytest.raises(UserError, match=path.name):
            load_bundle(path)


def test_build_of_a_plain_node_or_a_known_target_succeeds():
    score = build({"_target_": "seq2seq.attention.DotScore"}, "x")
    assert type(score).__name__ == "DotScore"
    assert build({"a": [1, {"b": None}]}, "x") == {"a": [1, {"b": None}]}


def test_saved_config_is_plain(saved):
    config = yaml.safe_load((saved / "config.yaml").read_text())
    assert json.loads(json.dumps(config)) == config == Bundle.load(saved).config

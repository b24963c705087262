"""Every experiment builds its model at full size, headline ones are of one size, and each kind trains on a slice."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from seq2seq.cli import run
from seq2seq.commands import configuration
from seq2seq.commands.choices import groups
from seq2seq.commands.compare import systems
from seq2seq.commands.config_check import check
from seq2seq.commands.explain import MOVED
from seq2seq.pipeline.build import build

NAMES = groups()["experiment"]
RESULTS = Path(__file__).parents[2] / "data" / "results"
CORPORA = {"small": "iwslt14", "2015": "wmt14_enfr", "base": "wmt14_ende", "big": "wmt14_enfr", "tiny": "pydocs"}


@cache
def composed(*overrides: str) -> DictConfig:
    """The configuration, checked."""
    config = configuration.compose("compare", list(overrides))
    check(config, "compare")
    return config


def recipe(name: str) -> list[str]:
    """The recipe with a corpus of its size."""
    corpus = CORPORA.get(name.rpartition("_")[2], "grammar")
    return [f"recipe={name}", f"data={corpus}", *(["data.root=somewhere"] if corpus == "pydocs" else [])]


def experiment(name: str) -> DictConfig:
    return composed(f"experiment={name}")


def parameters(config: DictConfig) -> int:
    """Count those of the model at full size, without the memory it would take."""
    size = config.tokenizer.vocabulary
    with torch.device("meta"):
        model = build(
            OmegaConf.to_container(config.model, resolve=True),
            "model",
            source_vocabulary=size,
            target_vocabulary=size,
            joint_vocabulary=config.tokenizer.joint,
        )
    return sum(parameter.numel() for parameter in model.parameters())


def test_experiments_are_those_with_published_results() -> None:
    published = {json.loads(path.read_text()).get("experiment") for path in RESULTS.glob("*/*.json")} - {None}
    assert published == {*NAMES}


@pytest.mark.parametrize("name", ["wmt14_ende_luong", "iwslt14_transformer", "grammar_sweep", "pydocs_rnn"])
@pytest.mark.parametrize("command", [["train", "experiment={}"], ["compare", "experiments=[{}]"]])
def test_an_experiment_of_earlier_versions_is_refused_with_its_new_name(
    command: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([text.format(name) for text in command]) == 2
    assert f"experiment={name} is now {MOVED[name]}" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("group, name", [(g, n) for g in ("experiment", "recipe") for n in groups()[g]])
def test_every_experiment_and_recipe_composes_and_builds_at_full_size(group: str, name: str) -> None:
    config = experiment(name) if group == "experiment" else composed(*recipe(name))
    for part in ("tokenizer", "optimizer", "trainer", "schedule", "search"):
        configuration.build_node(config[part], part)
    assert parameters(config) > 100_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen, count",
    [(["experiment=quickstart"], 3), (["experiment=grammar_convergence"], 10), (recipe("tiny"), 3)],
)
def test_systems_of_a_comparison_have_about_one_size(chosen: list[str], count: int) -> None:
    sizes = []
    for _, own in systems(composed(*chosen)):
        config = configuration.compose("compare", [*chosen, *own])
        check(config, "compare")
        sizes.append(parameters(config))
    assert len(sizes) == count and max(sizes) <= 1.2 * min(sizes)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["multi30k_tok", "multi30k_concat", "bible"])
def test_compared_experiments_have_about_one_size_and_the_same_training(group: str) -> None:
    members = [name for name in NAMES if name.rpartition("_")[0] == group or name == f"{group}_luong_local"]
    assert len(members) == (6 if group == "multi30k_tok" else 3)
    configs = [experiment(name) for name in members]
    sizes = [parameters(config) for config in configs]
    assert max(sizes) <= 1.2 * min(sizes)
    for config in configs:
        config.schedule.warmup = None  # an optimizer's own, as its rate is
    for key in ("data", "tokenizer", "trainer", "search", "schedule", "label_smoothing", "tokenize"):
        assert all(config[key] == configs[0][key] for config in configs), key


def test_multi30k_tok_transformer_has_the_tiny_size() -> None:
    config = experiment("multi30k_tok_transformer")
    model = config.model
    assert (model.width, model.layers, model.feedforward_width, model.heads, model.dropout) == (128, 4, 256, 4, 0.3)
    assert config.tokenizer.joint and config.label_smoothing == 0.1 and config.search.beam_size == 5
    assert (config.data.tokenized, config.tokenize, config.lowercase) == (True, "none", True)


def pairs(count: int, start: int) -> list[tuple[str, str]]:
    nouns = [("dog", "Hund"), ("man", "Mann"), ("tree", "Baum"), ("table", "Tisch"), ("garden", "Garten")]
    found = []
    for number in range(start, start + count):
        (first, erster), (second, zweiter) = nouns[number % 5], nouns[number // 5 % 5]
        found.append(
            (f"the {first} number {number} sees the {second} .", f"der {erster} {number} sieht den {zweiter} .")
        )
    return found


SIZES = {"train": 60, "valid": 6, "test": 6, "test_2017": 6}
SPLITS = {split: pairs(size, 100 * place) for place, (split, size) in enumerate(SIZES.items())}


def line_files(folder: Path, name: Callable[[str], str], languages: tuple[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for split, both in SPLITS.items():
        for side, language in enumerate(languages):
            path = folder / f"{name(split)}.{language}"
            path.write_text("".join(pair[side] + "\n" for pair in both), encoding="utf-8")


def hub_files(folder: Path, languages: tuple[str, str]) -> None:
    """As the hub's converted Parquet branches are laid out."""
    for ours, theirs in (("train", "train"), ("valid", "validation"), ("test", "test")):
        cells = [dict(zip(languages, pair, strict=True)) for pair in SPLITS[ours]]
        path = folder / "any" / theirs
        path.mkdir(parents=True)
        pq.write_table(pa.table({"translation": cells}), path / "0000.parquet")


MULTI30K = {"train": "train", "valid": "val", "test": "test_2016_flickr", "test_2017": "test_2017_flickr"}
RNN = ["model.width=8", "model.embedding_width=8", "model.layers=1"]
TRANSFORMER = ["model.width=8", "model.heads=2", "model.layers=1", "model.feedforward_width=8"]
HUB = ["data.revision=null", "data.name=null"]
SLICES = {
    "experiment=multi30k_tok_luong_local": RNN,
    "experiment=multi30k_tok_conditional_gru": [*RNN[:2], "model.encoder_width=8"],
    "experiment=multi30k_concat_rnn": RNN[:2],
    "experiment=bible_bahdanau": RNN,
    "recipe=luong_small data=iwslt14": [*RNN, *HUB],
    "recipe=transformer_base data=wmt14_ende": [*TRANSFORMER, *HUB],
    "recipe=bahdanau_2015 data=wmt14_enfr": [*RNN, "model.encoder_width=12", *HUB],
}


@pytest.mark.slow
@pytest.mark.parametrize("chosen", SLICES)
def test_experiments_and_recipes_train_on_a_slice(
    chosen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = composed(*chosen.split()).data
    languages = data.source_language, data.target_language
    name = chosen.rpartition("=")[2]
    root = tmp_path / "corpus"
    if name.startswith("multi30k"):
        line_files(root, MULTI30K.get, languages)  # type: ignore[arg-type]
        line_files(root / "tok", lambda split: f"{MULTI30K[split]}.lc.norm.tok", languages)
    elif name.startswith(("iwslt", "wmt")):
        hub_files(root, languages)
    else:
        line_files(root, str, languages)
    small = [
        *("tokenizer.vocabulary=320", "data.max_tokens=400", "trainer=cpu", "trainer.threads=1", "logger=none"),
        *("trainer.max_steps=2", "trainer.val_check_interval=2", "search.beam_size=2", "search.max_length_b=3"),
        *("search.max_length_a=0.5", f"data.cache_dir={tmp_path / 'cache'}", f"run_dir={tmp_path / 'run'}"),
    ]
    assert run(["train", *chosen.split(), f"data.root={root}", *SLICES[chosen], *small]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["experiment"] == (name if chosen.startswith("experiment") else None)
    assert metrics["training"]["updates"] == 2
    signature = metrics["splits"]["test"]["bleu"]["signature"]
    if name.startswith("multi30k_tok"):
        assert "case:lc" in signature and "tok:none" in signature and set(metrics["splits"]) == {"test", "test_2017"}
        assert "test  BLEU (tokenized, lowercased) " in capsys.readouterr().out
    else:
        assert "case:mixed" in signature and "tok:13a" in signature
    if name.startswith("multi30k_concat"):
        joined = metrics["splits"]["test_joined"]
        assert joined["segments"] == 6 + 3 + 2 + 1 + 1 and "by_part" not in joined
        assert [part["part"] for part in metrics["splits"]["test_x6"]["by_part"]] == [1, 2, 3, 4, 5, 6]

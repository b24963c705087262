"""Every experiment builds its model at full size, headline ones are of one size, and each kind trains on a slice."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from omegaconf import DictConfig

from seq2seq.cli import run
from seq2seq.commands import configuration
from seq2seq.commands.choices import groups
from seq2seq.commands.compare import systems
from seq2seq.commands.config_check import check

NAMES = groups()["experiment"]


@cache
def composed(name: str) -> DictConfig:
    """The experiment's configuration, checked."""
    config = configuration.compose("compare", [f"experiment={name}"])
    check(config, "compare", ignore=("hydra",))
    return config


def parameters(config: DictConfig) -> int:
    """Of the model at full size, without the memory it would take."""
    size = config.tokenizer.vocabulary
    with torch.device("meta"):
        model = configuration.build(
            config.model, source_vocabulary=size, target_vocabulary=size, joint_vocabulary=config.tokenizer.joint
        )
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_composes_and_builds_at_full_size(name: str) -> None:
    config = composed(name)
    for part in ("tokenizer", "optimizer", "trainer", "callbacks", "schedule", "search", "logger"):
        configuration.build(config[part])
    assert parameters(config) > 100_000


@pytest.mark.parametrize("name, count", [("quickstart", 3), ("grammar_convergence", 10)])
def test_every_system_of_a_comparison_is_of_one_size(name: str, count: int) -> None:
    sizes = []
    for _, own in systems(composed(name)):
        config = configuration.compose("compare", [f"experiment={name}", *own])
        check(config, "compare", ignore=("hydra",))
        sizes.append(parameters(config))
    assert len(sizes) == count and max(sizes) <= 1.2 * min(sizes)


@pytest.mark.parametrize("group", ["multi30k_tok", "multi30k_concat", "bible", "pydocs"])
def test_what_is_compared_is_of_one_size_and_trained_alike(group: str) -> None:
    members = [name for name in NAMES if name.rpartition("_")[0] == group or name == f"{group}_luong_local"]
    assert len(members) == (6 if group == "multi30k_tok" else 3)
    configs = [composed(name) for name in members]
    sizes = [parameters(config) for config in configs]
    assert max(sizes) <= 1.2 * min(sizes)
    for config in configs:
        config.schedule.warmup = None  # an optimizer's own, as its rate is
    for key in ("data", "tokenizer", "trainer", "callbacks", "search", "schedule", "label_smoothing", "tokenize"):
        assert all(config[key] == configs[0][key] for config in configs), key


def test_the_transformer_of_the_papers_protocol_is_the_tiny_one() -> None:
    config = composed("multi30k_tok_transformer")
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
    "multi30k_tok_luong_local": RNN,
    "multi30k_concat_rnn": RNN[:2],
    "bible_bahdanau": RNN,
    "pydocs_transformer": TRANSFORMER,
    "iwslt14_luong": [*RNN, *HUB],
    "wmt14_ende_transformer_base": [*TRANSFORMER, *HUB],
    "wmt14_enfr_bahdanau": [*RNN, "model.encoder_width=12", *HUB],
}


@pytest.mark.parametrize("name", SLICES)
def test_it_takes_a_few_steps_on_a_slice(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    languages = composed(name).data.source_language, composed(name).data.target_language
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
    assert run(["train", f"experiment={name}", f"data.root={root}", *SLICES[name], *small]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["experiment"] == name and metrics["training"]["updates"] == 2
    signature = metrics["splits"]["test"]["bleu"]["signature"]
    if name.startswith("multi30k_tok"):
        assert "case:lc" in signature and "tok:none" in signature and set(metrics["splits"]) == {"test", "test_2017"}
        assert "test  BLEU (tokenised, lower-cased) " in capsys.readouterr().out
    else:
        assert "case:mixed" in signature and "tok:13a" in signature
    if name.startswith("multi30k_concat"):
        joined = metrics["splits"]["test_joined"]
        assert joined["segments"] == 6 + 3 + 2 + 1 + 1 and "by_part" not in joined
        assert [part["part"] for part in metrics["splits"]["test_x6"]["by_part"]] == [1, 2, 3, 4, 5, 6]

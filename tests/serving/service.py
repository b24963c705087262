"""Services on a real socket, with three small models: the bundle kept in tests/inference and two of random weights."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import torch
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from seq2seq.inference.bundle import Bundle, load_bundle
from seq2seq.inference.bundle_config import describe
from seq2seq.inference.safe_build import build
from seq2seq.run import Run
from seq2seq.serving.app import create_app
from seq2seq.serving.batcher import Gathering
from seq2seq.serving.request_limits import Limits
from seq2seq.serving.served import ServedModel, load_models
from seq2seq.serving.server import address, configuration, listen

KEPT = Path(__file__).parents[1] / "inference" / "kept" / "bundle"
RNN = {"_target_": "seq2seq.models.create_rnn", "width": 16, "embedding_width": 16, "dropout": 0.0}
TRANSFORMER = {
    "_target_": "seq2seq.models.create_transformer",
    "width": 16,
    "layers": 1,
    "heads": 2,
    "feedforward_width": 32,
    "dropout": 0.0,
}
SOURCES = [
    "the cat sees a dog.",
    "big house!",
    "the old dog likes small trees in the new house.",
    "a red house never sees the green tree with a dog under the big old cat.",
]
REFERENCES = [
    "eht tac sees a god.",
    "gib esuoh!",
    "eht dlo god sekil llams seert ni eht wen esuoh.",
    "a der esuoh reven sees eht neerg eert htiw a god rednu eht gib dlo tac.",
]


def random_bundle(node: dict[str, Any]) -> Bundle:
    """A model of random weights, made larger so that outputs vary, with the kept bundle's tokenizer."""
    pair = load_bundle(KEPT).tokenizers
    torch.manual_seed(0)
    size = len(pair.source)
    model = build(node, "model", source_vocabulary=size, target_vocabulary=size, joint_vocabulary=True)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2.5)
    search = {"_target_": "seq2seq.search.BeamSearch", "beam_size": 2, "max_length_a": 1.0, "max_length_b": 5}
    return Bundle(model.eval(), pair, describe(node, search, pair, "en", "xx"))


def run_folder(folder: Path, bundle: Bundle, bleu: Sequence[float]) -> Path:
    """A run's folder with its scores: `bleu` for sources of 1-9 and of 10-19 words."""
    bundle.save(folder / "bundle")
    for kind, lines in (("src", SOURCES), ("ref", REFERENCES), ("hyp", REFERENCES)):
        (folder / f"test.{kind}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    buckets = [
        {
            "low": low,
            "high": low + (8 if low == 1 else 9),
            "segments": segments,
            "length_ratio": 0.98,
            "bleu": {"score": score, "low": score - 2, "high": score + 2},
            "chrf": {"score": score + 10, "low": score + 9, "high": score + 11},
        }
        for low, segments, score in zip((1, 10), (2, 2), bleu, strict=True)
    ]
    search = bundle.config["search"]
    Run(folder).write_metrics(
        {
            "name": folder.name,
            "model": "x",
            "scored_model": bundle.digest(),
            "training": {},
            "splits": {"test": {"segments": 4, "by_length": buckets, "decoding": {"search": search}}},
        }
    )
    return folder


def three_models(folder: Path) -> list[ServedModel]:
    """attentive (Bahdanau, trained), many-headed and fixed; the first and the last are runs with scores."""
    random_bundle(TRANSFORMER).save(folder / "many-headed")
    paths = [
        run_folder(folder / "attentive", load_bundle(KEPT), [40.0, 38.0]),
        folder / "many-headed",
        run_folder(folder / "fixed", random_bundle(RNN), [35.0, 9.0]),
    ]
    return load_models(paths)


@contextmanager
def running(
    models: Sequence[ServedModel], limits: Limits | None = None, batching: Gathering | None = None
) -> Iterator[str]:
    """The address of a service, which is stopped at the end as by a signal."""
    limits = limits or Limits()
    app = create_app(models, limits, batching or Gathering())
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(configuration(app, limits))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the service did not start"
            time.sleep(0.01)
        yield address(listener)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def ask(url: str, **body) -> httpx.Response:
    return httpx.post(f"{url}/translate", json=body, timeout=60)


def counted(url: str, name: str) -> dict[tuple, float]:
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
    return {
        tuple(sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


class Replaced:
    """A translator whose work is done by `translate_window(own, texts, **options)`, where `own` is the real one's."""

    def __init__(self, translator, translate_window):
        self.__dict__.update(vars(translator))
        self.longest_part = translator.longest_part
        self.translate_window = partial(translate_window, translator.translate_window)


def replaced(model, translate_window):
    return type(model)(**{**vars(model), "translator": Replaced(model.translator, translate_window)})

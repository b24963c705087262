"""Ours and other toolkits on the same work, interleaved, one run at a time; ratios with their spread.

    python scripts/benchmark.py rivals --threads 2

OpenNMT-py, Eole and Marian are installed from the package index, each into a virtual environment of its own under
--venvs, where later calls find them; what cannot be installed or run is reported and the rest is measured. torch is of
the same version on all sides. (Where pip chooses a build for GPUs, PIP_EXTRA_INDEX_URL saves gigabytes:
https://download.pytorch.org/whl/cpu.) Everything runs on the CPU.

The text is the built-in grammar's, up to 40 words a sentence, split into words, or with --multi30k Multi30k's, split
into subwords; once, so that every toolkit sees the same tokens and the same joint vocabulary of at most 8,000 (ours
reads them with tokenizer=word). T: Transformer, 4+4 layers, width 128, feed-forward 256, 4 heads, dropout 0.3, tied
embeddings. B128: Bahdanau, bi-GRU 128 each way, GRU 256, embeddings 256; Marian cannot build it. Both: batches of 4096
tokens, label smoothing 0.1, Adam at 0.0005, no clipping. "ours dropout" has dropout 0.3 on attention weights and inside
feed-forward layers too, as OpenNMT-py and Eole have.

Training, decoding and memory are measured as by `benchmark.py train`, `decode` and `startup`: target tokens a second
without padding, with </s>; sentences of exactly 30 tokens a second, by models with nearly initial weights, theirs in
batches of 64, ours in those and in its own. scripts/benchmarks/toolkits/ says how each toolkit is made to do so.

A ratio is ours over theirs in the same repetition (above 1: ours is faster, or needs more memory); given are the
median, the least and the greatest of the repetitions. Beside the JSON file a table in Markdown (.md) is written, a
line for each run as it ends (.jsonl), and what the toolkits print (a folder).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import startup
from benchmarks.decoding import BATCH, LENGTH, SEARCHES, first, threads
from benchmarks.process import MeasurementFailed, fresh
from benchmarks.record import markdown, spread
from benchmarks.toolkits import TOOLKITS, install, python_of

if TYPE_CHECKING:
    import argparse

OUTPUT = Path("runs/benchmark/rivals.json")
VENVS = Path("runs/benchmark/venvs")
GROUPS = ("train_T", "train_B128", "greedy_T", "greedy_B128", "beam5_T", "beam5_B128")
TOKENS = 4096
WORDS = ["tokenizer.byte_fallback=false", "tokenizer.normalization=nmt_nfkc", "tokenizer.vocabulary=8000"]
GRAMMAR = ["data=grammar", "data.maximum_words=40", "data.sizes={train: 20000, valid: 200, test: 1000}"]
SHARED = [
    *("data=files", "data.source_language=en", "data.target_language=de"),
    *("tokenizer=word", "tokenizer.byte_fallback=false", f"data.max_tokens={TOKENS}"),
    *("optimizer.lr=0.0005", "schedule=constant", "trainer.gradient_clip_val=null", "label_smoothing=0.1"),
]
MODELS = {"T": ["model=transformer"], "B128": ["model=bahdanau", "model.dropout=0.3"]}
DROPOUT = ["model.attention_dropout=0.3", "model.activation_dropout=0.3"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--venvs", type=Path, default=VENVS, metavar="DIR", help="default: %(default)s")
    parser.add_argument("--multi30k", type=Path, metavar="DIR", help="its train.en.gz ..., instead of the grammar")
    for name, known in (("groups", tuple(GROUPS)), ("rivals", tuple(TOOLKITS))):
        parser.add_argument(
            f"--{name}", nargs="+", choices=known, default=list(known), metavar="NAME", help="of: %(choices)s"
        )
    parser.add_argument("--repetitions", type=int, default=3, metavar="N")
    parser.add_argument("--sentences", type=int, default=1000, metavar="N", help="for greedy search and CTranslate2")
    parser.add_argument("--beam-sentences", type=int, default=320, metavar="N", help="for other beam search")
    parser.add_argument("--warm-up", type=int, default=10, metavar="N", help="updates before the clock starts")
    parser.add_argument("--updates", type=int, default=60, metavar="N", help="updates measured")


def run(options: argparse.Namespace) -> dict[str, Any]:
    from seq2seq.pipeline.provenance import processor

    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    records: list[dict[str, Any]] = []
    log = options.output.with_suffix(".jsonl")
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder).resolve(), options)
        for repetition in range(1, options.repetitions + 1):
            for group in options.groups:
                runs = work.runs(group)
                for one in runs if repetition % 2 else reversed(runs):
                    for found in one():
                        records.append({"repetition": repetition, "group": group, **found})
                        with open(log, "a", encoding="utf-8") as stream:
                            stream.write(json.dumps(records[-1]) + "\n")
    groups = {group: compare([one for one in records if one["group"] == group]) for group in options.groups}
    packages = {package: version for found in work.versions.values() for package, version in found.items()}
    head = f"{processor()}, threads: {threads(options.threads)}"
    head += "".join(f"; {package} {version}" for package, version in packages.items())
    tables = [head, *(f"### {group}\n\n{group_table(found)}" for group, found in groups.items() if found["runs"])]
    if work.failed:
        tables.append("\n".join(["Not measured:", *(f"- {line}" for line in work.failed)]))
    table = "\n\n".join(tables)
    result = {"text": work.text, "versions_of_rivals": work.versions, "failed": work.failed, "groups": groups}
    options.output.with_suffix(".md").write_text(table + "\n", encoding="utf-8")
    return {**result, "records": records, "table": table}


def write_text(settings: dict[str, Any]) -> dict[str, int]:
    """Write each split of a corpus as tokens separated by spaces, and the vocabulary of its training split."""
    from benchmarks.settings import compose_training, prepared

    folder = Path(settings["folder"])
    data = prepared(compose_training(settings["overrides"]))
    known: set[str] = set()
    for split in ("train", "valid", "test"):
        sides = zip(("en", "de"), data.pairs(split), (data.tokenizers.source, data.tokenizers.target), strict=True)
        for language, texts, tokenizer in sides:
            lines = [tokenizer.pieces(ids) for ids in tokenizer.encode(texts)]
            text = "".join(" ".join(line) + "\n" for line in lines)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
            if split == "train":
                known.update(piece for line in lines for piece in line)
    known.discard("<unk>")
    (folder / "vocabulary.txt").write_text("".join(f"{piece}\n" for piece in sorted(known)), encoding="utf-8")
    return {"pairs": data.sizes["train"], "vocabulary": len(known)}


class Work:
    """Both sides' runs. Each gives records of name, value (tokens or sentences a second), peak_memory_mb, ..."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        self.failed: list[str] = []
        self.versions: dict[str, dict[str, str]] = {}
        self.logs = options.output.with_suffix("")
        self.logs.mkdir(exist_ok=True)
        for name in options.rivals:
            try:
                self.versions[name] = install(name, options.venvs / name)
            except MeasurementFailed as failure:
                self.fail(f"{name}: {failure}")
        corpus = [*GRAMMAR, "tokenizer=word"]
        if options.multi30k:
            corpus = ["data=multi30k", f"data.root='{options.multi30k.resolve()}'", "tokenizer=unigram"]
        overrides = [*corpus, *WORDS, f"data.cache_dir='{folder / 'cache'}'"]
        self.text = fresh("rivals.write_text", {"folder": str(folder), "overrides": overrides})
        lines = [line for line in (folder / "test.en").read_text(encoding="utf-8").splitlines() if line]
        self.sentences = {"greedy": options.sentences, "beam5": options.beam_sentences}
        for search, count in self.sentences.items():
            text = "\n".join(first(lines, count)) + "\n"
            (folder / f"{search}.en").write_text(text, encoding="utf-8")
        fresh("training.prepare", {"overrides": self.overrides("T")})
        self.prepared: dict[str, dict[str, Any]] = {}
        self.saved: set[tuple[str, str]] = set()

    def fail(self, line: str) -> None:
        print(f"not measured: {line}", file=sys.stderr)
        if line not in self.failed:
            self.failed.append(line)

    def runs(self, group: str) -> list[Callable[[], list[dict[str, Any]]]]:
        """Return the runs of a group: ours, then each toolkit that can build the model."""
        kind, _, model = group.partition("_")
        able = [name for name in self.versions if model in TOOLKITS[name].models]
        return [partial(self.ours, kind, model), *(partial(self.theirs, name, kind, model) for name in able)]

    def overrides(self, model: str) -> list[str]:
        places = [f"data.root='{self.folder}'", f"data.cache_dir='{self.folder / 'cache'}'"]
        size = f"tokenizer.vocabulary={self.text['vocabulary'] + 4}"
        return [*places, *SHARED, size, *MODELS[model]]

    def ours(self, kind: str, model: str) -> list[dict[str, Any]]:
        return self.train(model) if kind == "train" else self.decode(kind, model)

    def train(self, model: str) -> list[dict[str, Any]]:
        found = []
        for name, more in [("ours", []), ("ours dropout", DROPOUT)][: 2 if model == "T" else 1]:
            overrides = [*self.overrides(model), *more]
            settings = {"overrides": overrides, "warm_up": self.options.warm_up, "updates": self.options.updates}
            run = fresh("training.measure", settings)
            started = startup.first_update(overrides)
            found.append(entry(name, run["target_tokens_per_second"], {**run, "startup_seconds": started}))
        return found

    def decode(self, search: str, model: str) -> list[dict[str, Any]]:
        folder = self.folder / model
        if model not in self.prepared:
            folder.mkdir()
            own = {"folder": str(folder), "checkpoint": None, "input": None, "exported": True}
            self.prepared[model] = fresh("decoding.prepare", {**own, "overrides": self.overrides(model)})
        prepared = self.prepared[model]
        ways = {"ours": ("torch", f"batches of {BATCH}"), "ours own batches": ("torch", "its own batches")}
        for kind in prepared["exports"]:
            ways[f"ours ctranslate2 {kind}"] = (f"ctranslate2 {kind}", "its own batches")
        found = []
        for name, (engine, batches) in ways.items():
            job = {"folder": str(folder), "engine": engine, "search": search, "batches": batches, "length": LENGTH}
            job["sentences"] = self.sentences[search if engine == "torch" else "greedy"]
            run = fresh("decoding.ours", {**job, "threads": threads(self.options.threads)})
            run["parameters"] = prepared["parameters"]
            found.append(entry(name, run["sentences_per_second"], run))
        return found

    def theirs(self, name: str, kind: str, model: str) -> list[dict[str, Any]]:
        """One run of a toolkit, or none, if it fails."""
        job = {
            **{"toolkit": name, "model": model, "threads": threads(self.options.threads)},
            **{"text": str(self.folder), "pairs": self.text["pairs"], "batch_tokens": TOKENS},
        }
        call = partial(self.call, name, f"{kind}_{model}")
        try:
            job["folder"] = str(self.folder / f"{name}-{model}")
            if (name, model) not in self.saved:  # also the first start, which compiles what pip installed
                call("save", job)
                self.saved.add((name, model))
            if kind == "train":
                measure = {"warm_up": self.options.warm_up, "updates": self.options.updates}
                run = call("train", {**job, **measure, "folder": str(self.folder / f"{name}-train")})
                return [entry(name, run["target_tokens_per_second"], run)]
            search = {"input": str(self.folder / f"{kind}.en"), "beams": SEARCHES[kind]}
            run = call("decode", {**job, **search, "length": LENGTH, "batch": BATCH})
            return [entry(name, run["sentences_per_second"], run)]
        except MeasurementFailed as failure:
            self.fail(f"{name} {kind}_{model}: {failure}")
            return []

    def call(self, name: str, group: str, function: str, job: dict[str, Any]) -> dict[str, Any]:
        python, log = python_of(self.options.venvs / name), self.logs / f"{name}_{group}_{function}.txt"
        module = f"toolkits.{TOOLKITS[name].driver}"
        return fresh(f"{module}.{function}", {**job, "began": time.time()}, python, log)


def entry(name: str, value: float, run: dict[str, Any]) -> dict[str, Any]:
    known = {key: run.get(key) for key in ("peak_memory_mb", "parameters", "startup_seconds")}
    return {"name": name, "value": value, **known, "details": run}


def compare(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Each run's values over the repetitions, and each of ours over each of theirs, repetition by repetition."""
    names = list(dict.fromkeys(one["name"] for one in records))
    by_name = {name: [one for one in records if one["name"] == name] for name in names}
    ours = [name for name in names if name.startswith("ours")]
    found: dict[str, Any] = {}
    for name, own in by_name.items():
        found[name] = {key: spread([one[key] for one in own]) for key in ("value", "peak_memory_mb")}
        found[name]["parameters"] = own[-1]["parameters"]
        found[name]["repetitions"] = len(own)
        starts = [one["startup_seconds"] for one in own if one.get("startup_seconds")]
        found[name]["startup_seconds"] = spread(starts) if starts else None
        if name not in ours:
            for key in ("value", "peak_memory_mb"):
                found[name][f"{key}_ratios"] = {us: ratios(by_name[us], own, key) for us in ours}
    theirs = [name for name in names if name not in ours]
    fastest = max(theirs, key=lambda name: found[name]["value"]["median"], default=None)
    return {"runs": found, "fastest_rival": fastest}


def ratios(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], key: str) -> dict[str, float] | None:
    """Over the repetitions that both have."""
    own = {one["repetition"]: one[key] for one in ours}
    values = [own[one["repetition"]] / one[key] for one in theirs if one["repetition"] in own]
    return spread(values) if values else None


def group_table(group: dict[str, Any]) -> str:
    runs = group["runs"]
    ours = [name for name in runs if name.startswith("ours")]
    head = ["run", "n", "a second", "min", "max", "peak MB", "start-up s", "parameters"]
    head += [f"{name} / it" for name in ours] + ["memory: ours / it"]
    rows = []
    for name, one in sorted(runs.items(), key=lambda pair: -pair[1]["value"]["median"]):
        values, start = one["value"], one["startup_seconds"]
        cells = [ratio_cell(one.get("value_ratios", {}).get(us)) for us in ours]
        memory = one.get("peak_memory_mb_ratios", {}).get("ours")
        rows.append(
            [
                *(name, one["repetitions"], values["median"], values["minimum"], values["maximum"]),
                *(one["peak_memory_mb"]["median"], start and start["median"], one["parameters"]),
                *(*cells, ratio_cell(memory)),
            ]
        )
    return markdown(head, rows)


def ratio_cell(ratio: dict[str, float] | None) -> str:
    return f"{ratio['median']:.2f} [{ratio['minimum']:.2f}, {ratio['maximum']:.2f}]" if ratio else "-"

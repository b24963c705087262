"""Ours and other toolkits on the same work, interleaved, one run at a time; ratios with their spread.

--peers is a folder of drivers: run_bench.sh {train|decode} REPETITIONS REGEX, which runs every toolkit whose run name
(train_T_onmt, beam5_B128_eole, ...) the expression matches, and appends a JSON line a run to $OUT. It needs VENVS
(a virtual environment a toolkit), DATA (train, val and test .en and .de, as space-separated subwords) and RUN (their
configurations and models) in the environment; see the README there. Nothing is copied from it.

Ours reads the same files with tokenizer=word, so that every toolkit sees the same tokens, 8,000 of them for both
languages. T: Transformer, 4+4 layers, width 128, feed-forward 256, 4 heads, dropout 0.3, tied embeddings. B128:
Bahdanau, bi-GRU 128 each way, GRU 256, embeddings 256. Both: batches of 4096 tokens, label smoothing 0.1, Adam at
0.0005, no clipping. "ours dropout" has dropout 0.3 on attention weights and inside feed-forward layers too, as some
toolkits do. Training, decoding and memory are measured as by `benchmark.py train`, `decode` and `startup`.

A ratio is ours over theirs in the same repetition (above 1: ours is faster, or needs more memory); given are the
median, the least and the greatest of the repetitions. Beside the JSON file a table in Markdown (.md) is written, and a
line for each run as it ends (.jsonl).
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import startup
from benchmarks.decoding import LENGTH, first, threads
from benchmarks.process import MeasurementFailed, fresh
from benchmarks.record import markdown, spread

if TYPE_CHECKING:
    import argparse

OUTPUT = Path("runs/benchmark/rivals.json")
GROUPS = ("train_T", "train_B128", "greedy_T", "greedy_B128", "beam5_T", "beam5_B128")
SHARED = [
    *("data=files", "data.source_language=en", "data.target_language=de", "data.valid='val.{language}'"),
    *("tokenizer=word", "tokenizer.vocabulary=8001", "tokenizer.byte_fallback=false", "data.max_tokens=4096"),
    *("optimizer.lr=0.0005", "schedule=constant", "trainer.gradient_clip_val=null", "label_smoothing=0.1"),
]
MODELS = {"T": ["model=transformer"], "B128": ["model=bahdanau", "model.dropout=0.3"]}
DROPOUT = ["model.attention_dropout=0.3", "model.activation_dropout=0.3"]
PACKAGES = {
    "joey": ("joeynmt", "joeynmt"),
    "onmt": ("onmt", "OpenNMT-py"),
    "eole": ("eole", "eole"),
    "sockeye": ("sockeye", "sockeye"),
    "hf": ("hf", "transformers"),
    "ct2": ("hf", "ctranslate2"),
}
"""The environment and the package of the runs whose names begin so."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peers", type=Path, required=True, metavar="DIR", help="the folder of run_bench.sh")
    parser.add_argument(
        "--groups", nargs="+", choices=GROUPS, default=list(GROUPS), metavar="GROUP", help="%(choices)s"
    )
    parser.add_argument(
        "--rivals", default=".*", metavar="REGEX", help="on toolkits' names: 'onmt|eole' (default: all)"
    )
    parser.add_argument("--repetitions", type=int, default=3, metavar="N")
    parser.add_argument("--beam-sentences", type=int, default=320, metavar="N", help="for beam search in PyTorch")
    parser.add_argument("--warm-up", type=int, default=10, metavar="N", help="updates before the clock starts")
    parser.add_argument("--updates", type=int, default=60, metavar="N", help="updates measured")


def run(options: argparse.Namespace) -> dict[str, Any]:
    missing = [name for name in ("VENVS", "DATA", "RUN") if name not in os.environ]
    if missing or not (options.peers / "run_bench.sh").is_file():
        raise MeasurementFailed(f"set {', '.join(missing)}" if missing else f"{options.peers} has no run_bench.sh")
    records: list[dict[str, Any]] = []
    log = options.output.with_suffix(".jsonl")
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder), options)
        for repetition in range(1, options.repetitions + 1):
            for group in options.groups:
                runs = [lambda group=group: work.ours(group), lambda group=group: work.theirs(group)]
                for one in runs if repetition % 2 else reversed(runs):
                    for found in one():
                        records.append({"repetition": repetition, "group": group, **found})
                        with open(log, "a", encoding="utf-8") as stream:
                            stream.write(json.dumps(records[-1]) + "\n")
    groups = {group: compare([one for one in records if one["group"] == group]) for group in options.groups}
    table = "\n\n".join(f"### {group}\n\n{group_table(found)}" for group, found in groups.items())
    result = {"versions_of_rivals": versions(records), "failed": work.failed, "groups": groups, "records": records}
    options.output.with_suffix(".md").write_text(table + "\n", encoding="utf-8")
    return {**result, "table": table}


class Work:
    """Both sides' runs. Each gives records of name, value (tokens or sentences a second), peak_memory_mb, ..."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        self.failed: list[str] = []
        self.beam_input = folder / "beam.txt"
        lines = Path(os.environ["DATA"], "test.en").read_text(encoding="utf-8").splitlines()
        self.sentences = len(lines)
        self.beam_input.write_text("\n".join(first(lines, options.beam_sentences)) + "\n", encoding="utf-8")
        self.prepared: dict[str, dict[str, Any]] = {}

    def overrides(self, model: str) -> list[str]:
        places = [f"data.root='{os.environ['DATA']}'", f"data.cache_dir='{self.folder / 'cache'}'"]
        return [*places, *SHARED, *MODELS[model]]

    def ours(self, group: str) -> list[dict[str, Any]]:
        kind, _, model = group.partition("_")
        return self.train(model) if kind == "train" else self.decode(kind, model)

    def train(self, model: str) -> list[dict[str, Any]]:
        found = []
        for name, more in [("ours", []), ("ours dropout", DROPOUT)][: 2 if model == "T" else 1]:
            overrides = [*self.overrides(model), *more]
            if not (self.folder / "cache").exists():
                fresh("training.prepare", {"overrides": overrides})
            settings = {"overrides": overrides, "warm_up": self.options.warm_up, "updates": self.options.updates}
            run = fresh("training.measure", settings)
            value = run["target_tokens_per_second"]
            started = startup.first_update(overrides)
            found.append({**entry(name, value, run), "startup_seconds": started, "details": run})
        return found

    def decode(self, search: str, model: str) -> list[dict[str, Any]]:
        folder = self.folder / model
        if model not in self.prepared:
            folder.mkdir()
            own = {"folder": str(folder), "checkpoint": None, "input": None, "exported": True}
            self.prepared[model] = fresh("decoding.prepare", {**own, "overrides": self.overrides(model)})
        prepared = self.prepared[model]
        ways = {"ours": ("torch", "batches of 64"), "ours own batches": ("torch", "its own batches")}
        for kind in prepared["exports"]:
            ways[f"ours ctranslate2 {kind}"] = (f"ctranslate2 {kind}", "its own batches")
        found = []
        for name, (engine, batches) in ways.items():
            torch = engine == "torch" and search == "beam5"
            job = {"folder": str(folder), "engine": engine, "search": search, "batches": batches, "length": LENGTH}
            job["sentences"] = self.options.beam_sentences if torch else self.sentences
            run = fresh("decoding.ours", {**job, "threads": threads(self.options.threads)})
            found.append({**entry(name, run["sentences_per_second"], run), "parameters": prepared["parameters"]})
        return found

    def theirs(self, group: str) -> list[dict[str, Any]]:
        output = self.folder / "results.jsonl"
        output.write_text("", encoding="utf-8")
        what = "train" if group.startswith("train") else "decode"
        command = ["bash", str(self.options.peers / "run_bench.sh"), what, "1", f"^{group}_({self.options.rivals})$"]
        own = {"OUT": str(output), "BEAM_INPUT": str(self.beam_input), "THREADS": str(threads(self.options.threads))}
        own |= {"BENCH_WARMUP": str(self.options.warm_up), "BENCH_STEPS": str(self.options.updates)}
        done = subprocess.run(command, env={**os.environ, **own}, stdout=subprocess.PIPE, text=True, check=True)
        self.failed += [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
        found = []
        for line in lines:
            if line["kind"] == "decode" and (line["len_min"], line["len_max"]) != (30, 30):
                self.failed.append(f"{line['tag']}: outputs of {line['len_min']} to {line['len_max']} tokens")
            value = line["tok_s"] if what == "train" else line["sent_s"]
            name = line["tag"].partition("/")[0].removeprefix(f"{group}_")
            memory = {"peak_memory_mb": line["peak_rss_mb"], "parameters": line["params"]}
            found.append({**entry(name, value, memory), "startup_seconds": line.get("startup_s"), "details": line})
        return found


def entry(name: str, value: float, run: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "peak_memory_mb": run["peak_memory_mb"],
        "parameters": run.get("parameters"),
    }


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


def versions(records: list[dict[str, Any]]) -> dict[str, str]:
    """Versions of the toolkits that ran, and of their torch, by package."""
    found = {}
    for beginning, (environment, package) in PACKAGES.items():
        python = Path(os.environ["VENVS"]) / environment / "bin" / "python"
        if any(one["name"].startswith(beginning) for one in records) and python.exists():
            code = f"from importlib.metadata import version as v; print(v({package!r}), 'torch', v('torch'))"
            done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
            found[package] = done.stdout.strip() or "unknown"
    return found

"""Data preparation: pairs a second by stage, a start from the cache, epoch start, loader speed, memory by corpus size.

Stages, from an empty cache, in one process: text (reading or generating every split into its table), tokenizer
(training it), ids (encoding and caching every split), overlap (looking for test sentences in the training data).
"tokenize and cache" is tokenizer + ids. A second process then starts from the cache: the time until the data is ready,
until the first batch, until the first batch of another epoch, and how many batches a second the loader makes. A
third trains for a few updates, for the batches that the model consumes and for the memory of the trainer; with
data=grammar and --pairs a fourth does so on a corpus of --base-pairs, to see what the size of a corpus costs.

The cache is a temporary folder unless data.cache_dir= is given; 5,000,000 pairs take about 3 GB there.
"""

from __future__ import annotations

import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.process import fresh, memory_mb, peak_memory_mb
from benchmarks.record import markdown
from benchmarks.settings import chosen, compose_training, job_of, prepared

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

OUTPUT = Path("runs/benchmark/prepare.json")
WARM_UP, UPDATES = 5, 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of `seq2seq train`")
    parser.add_argument("--pairs", type=int, metavar="N", help="training pairs, for data=grammar")
    parser.add_argument("--base-pairs", type=int, default=30_000, metavar="N", help="the corpus to compare memory with")
    parser.add_argument("--batches", type=int, default=500, metavar="N", help="batches to ask the loader for")
    parser.add_argument("--updates", type=int, default=UPDATES, metavar="N", help="updates of the trainer")


def run(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        overrides = list(options.overrides)
        if not any(text.startswith("data.cache_dir=") for text in overrides):
            overrides.append(f"data.cache_dir='{folder}'")
        sized = [f"data.sizes.train={options.pairs}"] if options.pairs else []
        settings = {"overrides": [*overrides, *sized], "batches": options.batches}
        training = {"warm_up": WARM_UP, "updates": options.updates}
        stages = fresh("preparation.stages", settings)
        again = fresh("preparation.from_cache", settings)
        trainer = [{"pairs": stages["sizes"].get("train"), **fresh("training.measure", {**settings, **training})}]
        if options.pairs:
            base = {"overrides": [*overrides, f"data.sizes.train={options.base_pairs}"], **training}
            fresh("training.prepare", base)
            trainer.append({"pairs": options.base_pairs, **fresh("training.measure", base)})
    result = {"settings": {**settings, "overrides": options.overrides}, **stages, "from_cache": again}
    result["trainer"] = trainer
    result["loader_ratio"] = again["loader"]["batches_per_second"] / trainer[0]["batches_per_second"]
    if options.pairs:
        result["extra_memory_mb"] = trainer[0]["peak_memory_mb"] - trainer[1]["peak_memory_mb"]
    return {**result, "table": table(result)}


def table(result: dict[str, Any]) -> str:
    stages, again = result["stages"], result["from_cache"]
    rows = [
        (f"prepare: {name}", stage["seconds"], stage["pairs_per_second"], "pairs/s") for name, stage in stages.items()
    ]
    rows.append(("second start: data ready", again["ready_seconds"], None, ""))
    rows.append(("second start: first batch after that", again["first_batch_seconds"], None, ""))
    rows.append(("start of another epoch", again["epoch_start_seconds"], None, ""))
    loader = again["loader"]
    rows.append((f"loader, {loader['batches']} batches", loader["seconds"], loader["batches_per_second"], "batches/s"))
    lines = [markdown(("what", "seconds", "rate", ""), rows), ""]
    lines.append(f"the loader makes batches {result['loader_ratio']:.1f} times as fast as the model consumes them")
    lines.append(f"memory of preparation at its peak: {result['peak_memory_mb']:,.0f} MB")
    for run in result["trainer"]:
        pairs = "a stream" if run["pairs"] is None else f"{run['pairs']:,} pairs"
        lines.append(f"memory of the trainer at its peak, {pairs}: {run['peak_memory_mb']:,.0f} MB")
    if "extra_memory_mb" in result:
        lines.append(f"difference: {result['extra_memory_mb']:+,.0f} MB")
    return "\n".join(lines)


def stages(settings: dict[str, Any]) -> dict[str, Any]:
    """The steps of `TranslationData.prepare`, each timed; each finds the results of those before in the cache."""
    from seq2seq.commands.configuration import build_node
    from seq2seq.data.preparation import find_overlap, prepare_split, prepare_tokenizers

    config = compose_training(settings["overrides"])
    job = job_of(config)
    data = job.data
    corpus, cache_dir = data.corpus, data.cache_dir
    found: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        value = work()
        found[name] = time.perf_counter() - began
        return value

    if config.data.streaming:
        timed("tokenizer and evaluation sets", data.prepare)
        pairs = sum(data.sizes.values())
    else:
        tables = timed("text", lambda: [corpus.load(split) for split in corpus.splits()])
        pairs = sum(map(len, tables))
        tokenizers = timed(
            "tokenizer", lambda: prepare_tokenizers(corpus, build_node(config.tokenizer, "tokenizer"), cache_dir)
        )
        filters = {split: data.filters if split == "train" else None for split in corpus.splits()}
        timed("ids", lambda: [prepare_split(corpus, name, tokenizers, one, cache_dir) for name, one in filters.items()])
        timed("overlap", lambda: find_overlap(corpus, cache_dir))
        found["tokenize and cache"] = found["tokenizer"] + found["ids"]
        found["all"] = sum(found[name] for name in ("text", "tokenizer", "ids", "overlap"))
        data.prepare()
    return {
        "choices": chosen(config),
        "sizes": data.sizes,
        "pairs": pairs,
        "stages": {name: {"seconds": seconds, "pairs_per_second": pairs / seconds} for name, seconds in found.items()},
        "peak_memory_mb": peak_memory_mb(),
    }


def from_cache(settings: dict[str, Any]) -> dict[str, Any]:
    config = compose_training(settings["overrides"])
    began = time.perf_counter()
    data = prepared(config)
    ready = time.perf_counter()
    loader = data.train_loader()
    batches = iter(loader)
    next(batches)
    first = time.perf_counter()
    tokens = count = 0
    for batch in islice(endless(loader, batches), settings["batches"]):
        tokens += int(batch.target_mask.sum())
        count += 1
    end = time.perf_counter()
    state = loader.state_dict()
    if "pool" in state:
        ended = {"epoch": state["epoch"] + 1, "consumed": 0, "pool": 0, "handed_out": 0, "done": 0}
    else:
        ended = {"consumed": state["batches"]}
    loader.load_state_dict({**state, **ended})
    again = time.perf_counter()
    next(iter(loader))
    return {
        "ready_seconds": ready - began,
        "first_batch_seconds": first - ready,
        "epoch_start_seconds": time.perf_counter() - again,
        "loader": {
            "batches": count,
            "seconds": end - first,
            "batches_per_second": count / (end - first),
            "target_tokens_per_second": tokens / (end - first),
        },
        "memory_mb": memory_mb(),
    }


def endless(loader: Any, batches: Any) -> Any:
    """The rest of this epoch, then whole ones."""
    while True:
        yield from batches
        batches = iter(loader)

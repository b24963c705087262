"""Decoding speed: sentences a second, greedy and beam 5, every output exactly 30 tokens; and CTranslate2 beside it.

The model is freshly initialized (or --checkpoint), the text the corpus's first test set (or --input), repeated as far
as --sentences asks. Each row is a process of its own: it loads the bundle, then the clock runs from text to text
(tokenization included) through `Translator`. "batches of 64" are 64 sentences in the order of the file; "its own
batches" is one call with all of them, sorted by length and cut by tokens as `seq2seq translate` does. Outputs get their
length by search.min_length_b = search.max_length_b = 30; with --natural (and --checkpoint) the model ends them.

A Transformer is exported for CTranslate2 as well (float32 and int8) and translated twice, in one call each: through
`engine=ctranslate2`, and by CTranslate2 called directly (no torch in its process): given tokens, with threads within a
batch of 64 and with batches of 64 side by side, and from text to text as ours is, with batches side by side and
SentencePiece before and after. "ratio" is ours over the fastest of these, "text" ours over the last.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.process import fresh, peak_memory_mb
from benchmarks.record import markdown, spread
from benchmarks.settings import chosen, compose_training, job_of, new_model, prepared

if TYPE_CHECKING:
    import argparse

OUTPUT = Path("runs/benchmark/decode.json")
LENGTH, BATCH, BEAM = 30, 64, 5
SEARCHES = {"greedy": 1, "beam5": BEAM}
DIRECT = ("threads within a batch", "batches side by side", "batches side by side, text to text")
QUANTIZATIONS = ("float32", "int8")
BUNDLE, TEXTS, PIECES, SOURCE, TARGET = "bundle", "texts.json", "pieces.json", "source.model", "target.model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of `seq2seq train`")
    parser.add_argument("--checkpoint", help="a run, bundle or .ckpt to decode with, instead of initial weights")
    parser.add_argument("--input", type=Path, help="sentences, one a line, instead of the corpus's test set")
    parser.add_argument("--natural", action="store_true", help="outputs of the length that the model gives them")
    parser.add_argument("--sentences", type=int, default=1000, metavar="N")
    parser.add_argument("--beam-sentences", type=int, metavar="N", help="for beam search (default: --sentences)")
    parser.add_argument("--repetitions", type=int, default=1, metavar="N", help="of each row, interleaved")
    parser.add_argument("--engines", nargs="+", default=["torch", "ctranslate2"], choices=["torch", "ctranslate2"])


def run(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "folder": folder,
            "overrides": options.overrides,
            "checkpoint": options.checkpoint,
            "input": str(options.input) if options.input else None,
            "exported": "ctranslate2" in options.engines,
        }
        model = fresh("decoding.prepare", settings)
        counts = {"greedy": options.sentences, "beam5": options.beam_sentences or options.sentences}
        jobs = [
            {
                **job,
                "folder": folder,
                "sentences": counts[job["search"]],
                "threads": threads(options.threads),
                "length": None if options.natural else LENGTH,
            }
            for job in jobs_of(options.engines, model["exports"])
        ]
        found: list[list[dict[str, Any]]] = [[] for _ in jobs]
        for _ in range(options.repetitions):
            for place, job in enumerate(jobs):
                found[place].append(fresh(f"decoding.{job['function']}", job))
    rows = [summary(job, runs) for job, runs in zip(jobs, found, strict=True)]
    ratios = against_direct(rows)
    return {
        "model": model,
        "length": None if options.natural else LENGTH,
        "rows": rows,
        "ratios": ratios,
        "table": table(rows, ratios),
    }


def jobs_of(engines: list[str], exports: list[str]) -> list[dict[str, Any]]:
    """One measurement each: which engine, search and way of making batches."""
    jobs: list[dict[str, Any]] = []
    for search in SEARCHES:
        if "torch" in engines:
            for batches in (f"batches of {BATCH}", "its own batches"):
                jobs.append({"function": "ours", "engine": "torch", "search": search, "batches": batches})
        for kind in exports:
            name = f"ctranslate2 {kind}"
            jobs.append({"function": "ours", "engine": name, "search": search, "batches": "its own batches"})
            for batches in DIRECT:
                engine = f"{name}, called directly"
                jobs.append({"function": "direct", "engine": engine, "search": search, "batches": batches})
    return jobs


def summary(job: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    keys = ("engine", "search", "batches", "sentences", "threads")
    rates = spread([run["sentences_per_second"] for run in runs])
    memory = spread([run["peak_memory_mb"] for run in runs])
    return {**{key: job[key] for key in keys}, "sentences_per_second": rates, "peak_memory_mb": memory, "runs": runs}


def against_direct(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Ours through engine=ctranslate2 over the fastest direct way ("ratio") and over the one from text to text
    ("text"), medians, by quantization and search."""
    ratios = {}
    for row in rows:
        direct = {
            other["batches"]: other["sentences_per_second"]["median"]
            for other in rows
            if other["engine"] == f"{row['engine']}, called directly" and other["search"] == row["search"]
        }
        if direct:
            ours = row["sentences_per_second"]["median"]
            ratios[f"{row['engine']} {row['search']}"] = {
                "ratio": ours / max(direct.values()),
                "text": ours / direct[DIRECT[-1]],
            }
    return ratios


def table(rows: list[dict[str, Any]], ratios: dict[str, dict[str, float]]) -> str:
    head = ("engine", "search", "batches", "sentences", "sentences/s", "min", "max", "peak MB", "ratio", "text")
    return markdown(
        head,
        [
            (
                *(row[key] for key in ("engine", "search", "batches", "sentences")),
                *(row["sentences_per_second"][key] for key in ("median", "minimum", "maximum")),
                row["peak_memory_mb"]["median"],
                *(ratios.get(f"{row['engine']} {row['search']}", {}).get(key) for key in ("ratio", "text")),
            )
            for row in rows
        ],
    )


def threads(given: int | None) -> int:
    from seq2seq.data.preparation import cores

    return given or int(os.environ.get("OMP_NUM_THREADS") or cores())


def prepare(settings: dict[str, Any]) -> dict[str, Any]:
    """Write the bundle, its exports and the sentences into settings["folder"]."""
    from seq2seq.inference.bundle import Bundle, count_parameters, load_bundle
    from seq2seq.inference.bundle_config import describe

    folder = Path(settings["folder"])
    choices: dict[str, str] = {}
    texts: list[str] = []
    config = data = None
    if not settings["checkpoint"] or not settings["input"]:
        config = compose_training(settings["overrides"])
        data = prepared(config)
        texts = data.pairs(next(split for split in data.sizes if split not in ("train", "valid")))[0]
        choices = chosen(config)
    if settings["checkpoint"]:
        bundle = load_bundle(settings["checkpoint"])
        choices["model"] = str(bundle.config["model"]["_target_"])
    else:
        assert config is not None and data is not None
        job = job_of(config)
        values, pair = job.settings, data.tokenizers
        described = describe(values["model"], values["search"], pair, data.source_language, data.target_language)
        bundle = Bundle(new_model(job).eval(), pair, described)
    if settings["input"]:
        texts = Path(settings["input"]).read_text(encoding="utf-8").splitlines()
    texts = [text for text in texts if text.strip()]
    bundle.save(folder / BUNDLE)
    (folder / TEXTS).write_text(json.dumps(texts), encoding="utf-8")
    source = bundle.tokenizers.source
    for name, tokenizer in ((SOURCE, source), (TARGET, bundle.tokenizers.target)):
        (folder / name).write_bytes(tokenizer.to_bytes())
    pieces = [[*source.pieces(ids), "</s>"] for ids in source.encode(texts)]
    (folder / PIECES).write_text(json.dumps(pieces), encoding="utf-8")
    return {
        "choices": choices,
        "parameters": count_parameters(bundle.model),
        "vocabulary": len(bundle.tokenizers.target),
        "exports": _export(bundle, folder, texts) if settings["exported"] else [],
    }


def _export(bundle: Any, folder: Path, texts: list[str]) -> list[str]:
    from seq2seq.errors import UserError
    from seq2seq.export import export_ctranslate2

    for kind in QUANTIZATIONS:
        try:
            export_ctranslate2(bundle, folder / kind, kind, texts[:BATCH])
        except UserError as error:
            shutil.rmtree(folder / kind, ignore_errors=True)
            print(f"no export for CTranslate2: {error}")
            return []
    return list(QUANTIZATIONS)


def first(items: list[Any], count: int) -> list[Any]:
    """`count` items, from the beginning again where there are too few."""
    return (items * -(-count // len(items)))[:count]


def ours(job: dict[str, Any]) -> dict[str, Any]:
    import torch

    from seq2seq.inference.text_windows import Batching
    from seq2seq.inference.translator import Translator

    torch.set_num_threads(job["threads"])
    folder = Path(job["folder"])
    engine, _, kind = job["engine"].partition(" ")
    own = job["batches"] == "its own batches"
    texts = first(json.loads((folder / TEXTS).read_text(encoding="utf-8")), job["sentences"])
    batching = Batching(window=len(texts)) if own else Batching(max_tokens=10**9)
    translator = Translator.load(
        folder / (kind or BUNDLE),
        search=build_search(SEARCHES[job["search"]], job["length"]),
        batching=batching,
        engine=engine,
    )
    windows = [texts] if own else [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    began, before = time.perf_counter(), time.process_time()
    found = [one for window in windows for one in translator.translate_window(window)]
    seconds, spent = time.perf_counter() - began, time.process_time() - before
    return result(seconds, spent, [len(one.tokens) for one in found], job["length"])


def build_search(beams: int, length: int | None) -> Any:
    """Search as `search=greedy` or `search=beam` sets it up; outputs have exactly `length` tokens, if it is given."""
    from seq2seq.commands.configuration import build_node, compose

    overrides = ["checkpoint=none"]
    if length is not None:
        overrides += [f"search.{name}_length_a=0" for name in ("min", "max")]
        overrides += [f"search.{name}_length_b={length}" for name in ("min", "max")]
    overrides += ["search=greedy"] if beams == 1 else ["search=beam", f"search.beam_size={beams}"]
    return build_node(compose("translate", overrides).search, "search")


def direct(job: dict[str, Any]) -> dict[str, Any]:
    import ctranslate2
    import sentencepiece

    folder, many = Path(job["folder"]), job["batches"] != DIRECT[0]
    pieces = first(json.loads((folder / PIECES).read_text(encoding="utf-8")), job["sentences"])
    texts = first(json.loads((folder / TEXTS).read_text(encoding="utf-8")), job["sentences"])
    source, target = (sentencepiece.SentencePieceProcessor(model_file=str(folder / name)) for name in (SOURCE, TARGET))
    translator = ctranslate2.Translator(
        str(folder / job["engine"].split()[1].rstrip(",")),
        device="cpu",
        inter_threads=job["threads"] if many else 1,
        intra_threads=1 if many else job["threads"],
    )
    length = job["length"]
    forced = {} if length is None else {"min_decoding_length": length, "max_decoding_length": length}
    began, before = time.perf_counter(), time.process_time()
    if job["batches"] == DIRECT[2]:
        pieces = [[*line, "</s>"] for line in source.encode(texts, out_type=str, num_threads=job["threads"])]
    found = translator.translate_batch(
        pieces,
        beam_size=SEARCHES[job["search"]],
        **forced,
        max_batch_size=BATCH,
        batch_type="examples",
    )
    if job["batches"] == DIRECT[2]:
        target.decode([one.hypotheses[0] for one in found])
    seconds, spent = time.perf_counter() - began, time.process_time() - before
    return result(seconds, spent, [len(one.hypotheses[0]) for one in found], length)


def result(seconds: float, cpu_seconds: float, lengths: list[int], wanted: int | None) -> dict[str, Any]:
    if wanted is not None and set(lengths) != {wanted}:
        raise RuntimeError(f"outputs have {min(lengths)} to {max(lengths)} tokens, not {wanted}")
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "sentences_per_second": len(lengths) / seconds,
        "tokens_per_second": sum(lengths) / seconds,
        "peak_memory_mb": peak_memory_mb(),
    }

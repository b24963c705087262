"""Marian, through its Python package: training by its command and log, decoding by its translator, loaded beforehand.

Its threads work on batches of their own, in training and in decoding. Target tokens and seconds of each update come
from the log. Marian forces no length: its end mark gets a bias that no hypothesis survives, and the limit, which is a
multiple of a batch's longest source, is set so that outputs have 30 tokens on average; `sentences_per_second` counts
tokens, in sentences of 30. Its recurrent encoder has the decoder's width in each direction, so the size B128 cannot be
built.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.process import peak_memory_mb

MODEL = "model.npz"
PROGRAM = "import sys; from _pymarian import main; main(sys.argv[1:])"  # ends its process
END_BIAS = "decoder_ff_logit_out_b"
LINE = re.compile(r"Up\. (?P<update>[\d,]+) .* Time (?P<seconds>[\d.,]+)s : (?P<rate>[\d.,]+) words/s")


def options(job: dict[str, Any]) -> dict[str, Any]:
    """Options of `marian train`; True is an option without a value."""
    text, folder, vocabulary = Path(job["text"]), Path(job["folder"]), str(Path(job["folder"], "vocabulary.txt"))
    return {
        "train-sets": [str(text / "train.en"), str(text / "train.de")],
        "vocabs": [vocabulary, vocabulary],
        "model": str(folder / MODEL),
        "tempdir": str(folder),
        **{"type": "transformer", "dim-emb": 128, "enc-depth": 4, "dec-depth": 4},
        **{"transformer-dim-ffn": 256, "transformer-heads": 4, "transformer-dropout": 0.3},
        **{"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"},
        **{"tied-embeddings-all": True, "label-smoothing": 0.1, "cost-type": "ce-mean-words"},
        **{"optimizer": "adam", "optimizer-params": [0.9, 0.98, 1e-9], "learn-rate": 0.0005, "clip-norm": 0},
        **{"cpu-threads": job["threads"], "sync-sgd": True, "mini-batch-words": job["batch_tokens"]},
        **{"max-length": 256, "disp-freq": "1u", "after": f"{job['updates']}u", "seed": 1},
    }


def arguments(options: dict[str, Any]) -> list[str]:
    found = []
    for name, value in options.items():
        values = [] if value is True else value if isinstance(value, list) else [value]
        found += [f"--{name}", *map(str, values)]
    return found


def run_training(job: dict[str, Any]) -> tuple[str, float]:
    """The log of a training of job["updates"] updates, and the time of its first one."""
    folder = Path(job["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{MODEL}*"):  # Marian would resume
        old.unlink()
    words = Path(job["text"], "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = "".join(f"{word}\n" for word in ("</s>", "<unk>", *words))
    (folder / "vocabulary.txt").write_text(vocabulary, encoding="utf-8")
    command = [sys.executable, "-c", PROGRAM, "train", *arguments(options(job))]
    lines, first = [], 0.0
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if not first and LINE.search(line):
                first = time.time()
            print(line, end="")
            lines.append(line)
    if process.returncode:
        raise RuntimeError(lines[-1] if lines else f"status {process.returncode}")
    return "".join(lines), first


def measured(log: str, warm_up: int, updates: int) -> tuple[float, float]:
    """Target tokens and seconds of updates `warm_up` + 1 to `warm_up` + `updates`."""
    numbers = (
        {key: float(text.replace(",", "")) for key, text in one.groupdict().items()} for one in LINE.finditer(log)
    )
    lines = list(islice((one for one in numbers if one["update"] > warm_up), updates))
    if len(lines) < updates:
        raise RuntimeError(f"the log has {len(lines)} updates after {warm_up}, not {updates}")
    return sum(one["rate"] * one["seconds"] for one in lines), sum(one["seconds"] for one in lines)


def parameters(path: Path) -> int:
    import numpy as np

    with np.load(path) as arrays:
        return sum(arrays[name].size for name in arrays if not name.startswith("special:"))


def save(job: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    run_training({**job, "updates": 1})
    path = Path(job["folder"], MODEL)
    with np.load(path) as arrays:
        weights = {name: arrays[name] for name in arrays}
    weights[END_BIAS][..., 0] = -1e9
    np.savez(path, **weights)
    return {}


def train(job: dict[str, Any]) -> dict[str, Any]:
    log, first = run_training({**job, "updates": job["warm_up"] + job["updates"]})
    tokens, seconds = measured(log, job["warm_up"], job["updates"])
    return {
        "target_tokens_per_second": tokens / seconds,
        "target_tokens_per_update": tokens / job["updates"],
        "seconds": seconds,
        "startup_seconds": first - job["began"],
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10,
        "parameters": parameters(Path(job["folder"], MODEL)),
    }


def length_factor(lines: list[str], batch: int, length: int) -> float:
    """The limit, as a multiple of a batch's longest source, with which outputs have `length` tokens on average."""
    sizes = [len(line.split()) + 1 for line in lines]
    batches = [sizes[start : start + batch] for start in range(0, len(sizes), batch)]
    return length * len(sizes) / sum(max(one) * len(one) for one in batches)


def decode(job: dict[str, Any]) -> dict[str, Any]:
    from _pymarian import Translator

    folder, vocabulary = Path(job["folder"]), str(Path(job["folder"], "vocabulary.txt"))
    lines = Path(job["input"]).read_text(encoding="utf-8").splitlines()
    settings = {
        **{"models": str(folder / MODEL), "vocabs": [vocabulary, vocabulary], "cpu-threads": job["threads"]},
        **{"mini-batch": job["batch"], "maxi-batch": 1, "beam-size": job["beams"], "quiet": True},
        **{"max-length": 1000, "max-length-factor": length_factor(lines, job["batch"], job["length"])},
    }
    translator = Translator(" ".join(arguments(settings)))
    began = time.perf_counter()
    found = translator.translate(lines)
    seconds = time.perf_counter() - began
    outputs = [len(line.split()) for line in found]
    return {
        "sentences_per_second": sum(outputs) / job["length"] / seconds,
        "tokens_per_second": sum(outputs) / seconds,
        "seconds": seconds,
        "lengths": [min(outputs), max(outputs)],
        "peak_memory_mb": peak_memory_mb(),
        "parameters": parameters(folder / MODEL),
    }

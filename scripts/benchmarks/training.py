"""Training speed: target tokens a second, share of the hardware's matmul rate, memory, padding.

What runs is `seq2seq train` itself: its configuration, data, loader, optimizer and loss. The clock
runs from the end of update 10 (--warm-up) to the end of update 70 (--updates more); reading the corpus, validation and
saving are outside it. Target tokens are those of the batches without padding, with </s>, without <s>. Memory is the
process's high-water mark at the end of the last update. Utilisation is the rate of the model's floating-point
operations over that of a 2048 x 2048 product (float32; bfloat16 or float16 where the trainer computes in it) measured
in the same process just before and just after. Operations are counted by torch.utils.flop_counter, forward and
backward: 2 m n k a matrix product that is executed, padding included, and nothing for everything else.
"""

from __future__ import annotations

import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.process import fresh, memory_mb, peak_memory_mb
from benchmarks.record import markdown, spread
from benchmarks.settings import chosen, compose_training, job_of, new_model, prepared, use_threads, without_validation

if TYPE_CHECKING:
    import argparse

OUTPUT = Path("runs/benchmark/train.json")
COUNTED = 12
"""Batches whose operations are counted, evenly spaced among those measured."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of `seq2seq train`")
    parser.add_argument("--warm-up", type=int, default=10, metavar="N", help="updates before the clock starts")
    parser.add_argument("--updates", type=int, default=60, metavar="N", help="updates measured")
    parser.add_argument("--repetitions", type=int, default=1, metavar="N")


def run(options: argparse.Namespace) -> dict[str, Any]:
    settings = {"overrides": options.overrides, "warm_up": options.warm_up, "updates": options.updates}
    fresh("training.prepare", settings)
    runs = [fresh("training.measure", settings) for _ in range(options.repetitions)]
    keys = ("target_tokens_per_second", "updates_per_second", "utilisation", "peak_memory_mb")
    summary = {key: spread([run[key] for run in runs]) for key in keys}
    return {"settings": settings, "runs": runs, "summary": summary, "table": table(runs)}


def table(runs: list[dict[str, Any]]) -> str:
    head = ("model", "data", "target tok/s", "updates/s", "tgt tok/update", "padding tgt", "padding src")
    head += ("matmul share", "GFLOP/update", "matmul GFLOP/s", "peak MB", "parameters")
    rows = [
        (
            *(run["choices"].get(name, "-") for name in ("model", "data")),
            *(run[key] for key in ("target_tokens_per_second", "updates_per_second", "target_tokens_per_update")),
            *(f"{run[key]:.1%}" for key in ("target_padding", "source_padding", "utilisation")),
            *(run["flops"]["per_update"] / 1e9, run["flops"]["matmul_per_second"] / 1e9),
            *(run["peak_memory_mb"], run["parameters"]),
        )
        for run in runs
    ]
    return markdown(head, rows)


class Finished(Exception):
    """The last update to be measured is done."""


class Meter:
    """A callback (see `seq2seq.training.loop.fit`) that ends training after `updates` updates."""

    def __init__(self, warm_up: int, updates: int) -> None:
        self.first, self.last = warm_up, warm_up + updates
        self.times: list[float] = []
        self.tokens = 0
        self.cpu_seconds = 0.0
        self.peak_memory_mb = 0.0
        self.memory_mb: dict[str, float] = {}

    def on_train_start(self, state: Any) -> None:
        if self.first == 0:
            self._begin(state)

    def _begin(self, state: Any) -> None:
        self.times.append(time.perf_counter())
        self.tokens = -state.target_tokens
        self.cpu_seconds = -time.process_time()

    def on_update_end(self, state: Any) -> None:
        if state.update == self.first:
            self._begin(state)
        elif state.update > self.first:
            self.times.append(time.perf_counter())
        if state.update == self.last:
            self.tokens += state.target_tokens
            self.cpu_seconds += time.process_time()
            self.peak_memory_mb, self.memory_mb = peak_memory_mb(), memory_mb()
            raise Finished


def prepare(settings: dict[str, Any]) -> dict[str, Any]:
    """Fill the cache, so that no measuring process has to."""
    return {"sizes": prepared(compose_training(settings["overrides"])).sizes}


def measure(settings: dict[str, Any]) -> dict[str, Any]:
    import torch

    from seq2seq.run import Run
    from seq2seq.training.loop import fit

    warm_up, updates = settings["warm_up"], settings["updates"]
    config = without_validation(compose_training(settings["overrides"]), warm_up + updates + 1)
    job = job_of(config)
    data, trainer = job.data, job.trainer
    threads = use_threads(config)
    model = new_model(job)
    device, dtype = _place(trainer.accelerator), _type(trainer.precision)
    rates = [_matmul_rate(device, dtype)]
    meter = Meter(warm_up, updates)
    criterion = job.criterion
    loader = data.train_loader()
    start = dict(loader.state_dict())
    try:
        with tempfile.TemporaryDirectory() as folder:
            fit(
                model,
                data,
                criterion=criterion,
                optimizer=job.optimizer,
                schedule=job.schedule,
                search=job.search,
                settings=trainer,
                run=Run(folder),
                config={},
                callbacks=[meter],
                seed=job.seed,
            )
    except Finished:
        pass
    assert len(meter.times) == updates + 1
    seconds = meter.times[-1] - meter.times[0]
    device_memory = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else None
    rates.append(_matmul_rate(device, dtype))
    loader.load_state_dict(start)
    per_update = trainer.accumulate_grad_batches
    batches = _replay(loader, warm_up * per_update, updates * per_update)
    counts = count_tokens(batches)
    if counts["target"] != meter.tokens:
        raise RuntimeError(f"{counts['target']} target tokens in the batches, but training counted {meter.tokens}")
    sample = batches[:: max(1, len(batches) // COUNTED)]
    operations = _step_flops(model, criterion, sample, device, trainer.precision)
    flops = operations / count_tokens(sample)["target"] * counts["target"] / updates
    matmul = sum(rates) / len(rates)
    return {
        "choices": chosen(config),
        "threads": threads,
        "parameters": sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
        "vocabulary": data.vocabulary()["target_vocabulary"],
        "seconds": seconds,
        "cpu_seconds": meter.cpu_seconds,
        "target_tokens_per_second": counts["target"] / seconds,
        "updates_per_second": updates / seconds,
        "batches_per_second": updates * per_update / seconds,
        "update_seconds": [after - before for before, after in zip(meter.times, meter.times[1:], strict=False)],
        "target_tokens": counts["target"],
        "target_tokens_per_update": counts["target"] / updates,
        "sentences_per_update": counts["sentences"] / updates,
        **padding(counts),
        "flops": {"per_update": flops, "matmul_per_second": matmul, "matmul_before_and_after": rates},
        "utilisation": flops * updates / seconds / matmul,
        "peak_memory_mb": meter.peak_memory_mb,
        "memory_mb": meter.memory_mb,
        "peak_device_memory_mb": device_memory,
    }


def count_tokens(batches: list[Any]) -> dict[str, int]:
    """Sentences, real tokens of each side (end marks included) and the size of the padded matrices."""
    return {
        "sentences": sum(len(batch) for batch in batches),
        "source": sum(int(batch.source_mask.sum()) for batch in batches),
        "source_padded": sum(batch.source_mask.numel() for batch in batches),
        "target": sum(int(batch.target_mask.sum()) for batch in batches),
        "target_padded": sum(batch.target_mask.numel() for batch in batches),
    }


def padding(counts: dict[str, int]) -> dict[str, float]:
    """The share of each side's positions that are padding."""
    return {f"{side}_padding": 1 - counts[side] / counts[f"{side}_padded"] for side in ("target", "source")}


def _replay(loader: Any, first: int, count: int) -> list[Any]:
    """The batches that training saw, as the loader makes them again."""
    from seq2seq.training.loop import endless
    from seq2seq.training.state import TrainingState

    return list(islice(endless(loader, TrainingState()), first, first + count))


def _step_flops(model: Any, criterion: Any, batches: list[Any], device: str, precision: str) -> int:
    import torch

    from benchmarks.flops import count_flops

    model.to(device).train()

    def work() -> None:
        for batch in batches:
            batch = batch.to(device)
            with torch.autocast(device, _type(precision), enabled=precision.endswith("mixed")):
                memory = model.encode(batch.source, batch.source_mask)
                decoded = model.decode(batch.target_in, memory, batch.target_mask)
                loss = criterion(decoded, model.output, batch.target_out, batch.target_mask)
            loss.loss.backward()
            model.zero_grad()

    return count_flops(work)


def _place(accelerator: str) -> str:
    import torch

    return "cuda" if accelerator in ("gpu", "auto") and torch.cuda.is_available() else "cpu"


def _type(precision: str) -> Any:
    import torch

    low = {"bf16": torch.bfloat16, "16": torch.float16}
    return low.get(precision.split("-")[0], torch.float32)


def _matmul_rate(device: str, dtype: Any) -> float:
    from benchmarks.flops import matmul_rate

    return matmul_rate(device, dtype)

"""Look at data, shapes, memory and time before hours are spent."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Sized
from itertools import islice
from typing import Any

from seq2seq.inference.bundle import count_parameters
from seq2seq.pipeline.hints import warn
from seq2seq.pipeline.job import Job
from seq2seq.pipeline.train import check_lengths
from seq2seq.training.optimizer import create_optimizer, parameter_kinds
from seq2seq.training.state import seed_everything

UPDATES = 5


def dry_run(job: Job) -> Iterator[str]:
    """Prepare the data, which stays in the cache, and take a few updates on its first batches; yield lines to print."""
    warn(job)
    job.data.prepare()
    job.trainer.apply_to_torch()
    seed_everything(job.seed)
    model: Any = job.model()
    check_lengths(job, model)
    vocabulary = {name.removesuffix("_vocabulary"): value for name, value in job.data.vocabulary().items()}
    yield "segments    " + ", ".join(f"{split} {size:,}" for split, size in job.data.sizes.items())
    yield "vocabulary  " + ", ".join(f"{name} {value}" for name, value in vocabulary.items())
    parts = {name: count_parameters(part) for name, part in model.named_children()}
    shared = sum(parts.values()) - count_parameters(model)
    note = f", {shared:,} fewer than its parts, which share some" if shared else ""
    yield f"parameters  {count_parameters(model):,}{note}"
    yield from (f"  {name:<10}{size:,}" for name, size in parts.items())
    optimizer = create_optimizer(job.optimizer, model.named_parameters(), parameter_kinds(model))
    loader = job.data.train_loader()
    tokens, batches, began = 0, 0, time.perf_counter()
    for batch in islice(loader, UPDATES):
        if not batches:
            shapes = f"source {tuple(batch.source.shape)}, target {tuple(batch.target_in.shape)}"
            yield f"batch       {shapes}, {int(batch.target_mask.sum()):,} target tokens"
            began = time.perf_counter()
        decoded = model.decode(batch.target_in, model.encode(batch.source, batch.source_mask), batch.target_mask)
        loss = job.criterion(decoded, model.output, batch.target_out, batch.target_mask)
        (loss.loss / loss.tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        tokens, batches = tokens + int(loss.tokens), batches + 1
        yield f"update {batches}    loss {loss.loss.item() / loss.tokens.item():.3f} per token"
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    where = " on the CPU" * (job.trainer.accelerator != "cpu")
    yield f"speed       {tokens / seconds:,.0f} target tokens/s{where}"
    yield f"memory      {memory:,.0f} MiB at its peak so far"
    if isinstance(loader, Sized):
        yield f"an epoch    {len(loader):,} batches, about {len(loader) * seconds / batches / 60:.1f} minutes"
    if updates := job.trainer.limits().max_steps:
        minutes = updates * job.trainer.accumulate_grad_batches * seconds / batches / 60
        yield f"training    {updates:,} updates, about {minutes:.1f} minutes without validation"

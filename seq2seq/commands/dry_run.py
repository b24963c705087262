"""`seq2seq train ... dry_run=true`: a look at data, shapes, memory and time before hours are spent."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sized
from itertools import islice

from omegaconf import DictConfig

from seq2seq.commands.configuration import build
from seq2seq.commands.preflight import check_lengths
from seq2seq.commands.starting import create_model, training_data
from seq2seq.inference.bundle import Bundle, count_parameters

STEPS = 5


def dry_run(config: DictConfig, start: Bundle | None) -> int:
    """Prepare the data (which stays in the cache), take a few updates on its first batches, print what was seen."""
    from seq2seq.training.criterion import Criterion
    from seq2seq.training.optimizer import create_optimizer, parameter_kinds
    from seq2seq.training.progress import seed_everything

    data = training_data(config, start)
    data.prepare()
    trainer = build(config.trainer)
    trainer.apply_to_torch()
    seed_everything(config.seed, 0)
    model = create_model(config, start, data.vocabulary())
    check_lengths(config, model, data)
    print("segments    " + ", ".join(f"{split} {size:,}" for split, size in data.sizes.items()))
    print(
        "vocabulary  "
        + ", ".join(f"{name.removesuffix('_vocabulary')} {value}" for name, value in data.vocabulary().items())
    )
    parts = {name: count_parameters(part) for name, part in model.named_children()}
    shared = sum(parts.values()) - count_parameters(model)
    print(
        f"parameters  {count_parameters(model):,}"
        + (f", {shared:,} fewer than its parts, which share some" if shared else "")
    )
    for name, size in parts.items():
        print(f"  {name:<10}{size:,}")
    optimizer = create_optimizer(build(config.optimizer), model.named_parameters(), parameter_kinds(model))
    criterion, loader = Criterion(config.label_smoothing), data.train_loader()
    tokens, batches, began = 0, 0, time.perf_counter()
    for batch in islice(loader, STEPS):
        if not batches:
            shapes = f"source {tuple(batch.source.shape)}, target {tuple(batch.target_in.shape)}"
            print(f"batch       {shapes}, {int(batch.target_mask.sum()):,} target tokens")
            began = time.perf_counter()
        decoded = model.decode(batch.target_in, model.encode(batch.source, batch.source_mask), batch.target_mask)
        loss = criterion(decoded, model.output, batch.target_out, batch.target_mask)
        (loss.loss / loss.tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        tokens, batches = tokens + int(loss.tokens), batches + 1
        print(f"update {batches}    loss {loss.loss.item() / loss.tokens.item():.3f} a token")
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    where = " on the CPU" * (config.trainer.accelerator != "cpu")
    print(f"speed       {tokens / seconds:,.0f} target tokens/s{where}")
    print(f"memory      {memory:,.0f} MiB at its peak so far")
    if isinstance(loader, Sized):
        print(f"an epoch    {len(loader):,} batches, about {len(loader) * seconds / batches / 60:.1f} minutes")
    if steps := trainer.limits().max_steps:
        minutes = steps * trainer.accumulate_grad_batches * seconds / batches / 60
        print(f"training    {steps:,} updates, about {minutes:.1f} minutes without validation")
    return 0

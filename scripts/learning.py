"""Train every combination in conf/ to copy, and to reverse, strings of one to five digits.

    python scripts/learning.py                                        # all, except those in the file of results
    python scripts/learning.py "luong score=dot" conv --processes 2   # those whose names begin so

Each combination trains from one seed on one thread, with the loss and the greedy search that `seq2seq train` uses,
until it answers 99% of a check set exactly; then it is scored on other strings. What falls short of 98% is trained
once more, from the start, until it answers 99.9%, with three times the updates. Combinations that cannot learn are
trained too. The status is 1 if any other still falls short.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from seq2seq.data.batching import collate
from seq2seq.files import atomic_write
from seq2seq.interfaces import EOS, Batch
from seq2seq.search import GreedySearch, decode_batch
from seq2seq.training.criterion import Criterion
from seq2seq.training.schedule import Decay

TASKS = ("copy", "reverse")
LENGTHS = (1, 5)
FIRST_DIGIT = EOS + 1
VOCABULARY = FIRST_DIGIT + 10
ENOUGH, MORE_THAN_ENOUGH, THRESHOLD = 0.99, 0.999, 0.98
SEED = 1


@dataclass(frozen=True)
class Combination:
    """Model with its parts and sizes, as overrides of `seq2seq train`. cannot: the reason, if it cannot learn."""

    model: str
    parts: tuple[str, ...]
    sizes: tuple[str, ...]
    cannot: str | None = None

    @property
    def name(self) -> str:
        return " ".join([self.model, *(part.replace(".", "/").split("/")[-1] for part in self.parts)])


def combinations() -> Iterator[Combination]:
    from seq2seq.commands.choices import groups

    options = groups()
    width = ("model.dropout=0", "model.width=64")
    embedding = ("model.embedding_width=64",)
    fixed = ("model.dropout=0", "model.width=128", "model.embedding_width=128")
    for context, cell in product(("every_step", "initial_state"), ("gru", "lstm")):
        yield Combination("rnn", (f"model.context={context}", f"model.cell={cell}"), fixed)
    sutskever = ("context=initial_state", "cell=lstm", "bidirectional=false", "reverse_source=true")
    yield Combination("rnn", tuple(f"model.{choice}" for choice in sutskever), fixed)
    scores, alignments = (options[f"model/attention/{part}"] for part in ("score", "alignment"))
    for model, score, alignment in product(("bahdanau", "luong"), scores, alignments):
        parts = (f"model/attention/score={score}", f"model/attention/alignment={alignment}")
        window = ("model.attention.alignment.window=2",) if alignment.startswith("local") else ()
        sizes = fixed if score == "uniform" else width + embedding  # with equal weights, only the state knows the order
        if (score, alignment) != ("uniform", "hard_marginal"):  # equal weights have no best position to predict from
            yield Combination(model, parts, sizes + window)
    conditional = (*width, *embedding, "model.encoder_width=${model.width}")
    for score, alignment in product(scores, alignments):
        if score == "additive" or (alignment == "soft" and score != "uniform"):
            parts = (f"model/attention/score={score}", f"model/attention/alignment={alignment}")
            window = ("model.attention.alignment.window=2",) if alignment.startswith("local") else ()
            yield Combination("conditional_gru", parts, conditional + window)
    for positions in ("sinusoidal", "learned", "none"):
        yield Combination("conv", (f"model.positions={positions}",), (*width, *embedding, "model.layers=2"))
    for window, positions, norm in product(("null", "1"), ("sinusoidal", "learned", "rotary", "none"), ("pre", "post")):
        parts = (f"model.window={window}", f"model.positions={positions}", f"model.norm={norm}")
        blind = window == "null" and positions == "none"
        cannot = "an encoder without positions does not see the order of the digits" if blind else None
        yield Combination("transformer", parts, (*width, "model.layers=2"), cannot)
    beside = ("model.position_width=16", "model.tie_embeddings=false")
    yield Combination("transformer", beside, (*width, "model.layers=2"))


def digits(task: str, size: int, lengths: tuple[int, int], generator: torch.Generator) -> Batch:
    """Random strings of lengths[0] to lengths[1] digits; the target is the same ("copy") or turned ("reverse")."""
    counts = torch.randint(lengths[0], lengths[1] + 1, (size,), generator=generator).tolist()
    rows = torch.randint(FIRST_DIGIT, VOCABULARY, (size, lengths[1]), generator=generator).tolist()
    strings = [row[:count] for row, count in zip(rows, counts, strict=True)]
    return collate([(s, s if task == "copy" else s[::-1]) for s in strings], range(size))


def updates(
    model: torch.nn.Module, task: str, lengths: tuple[int, int], total: int, rate: float = 3e-3, size: int = 64
) -> Iterator[int]:
    """Train, yielding the number of each update; the learning rate falls to zero at `total`."""
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    criterion, schedule = Criterion(smoothing=0.0), Decay(total + 1, warmup=20, shape="linear")
    optimizer = torch.optim.Adam(model.parameters())
    for update in range(1, total + 1):
        model.train()
        batch = digits(task, size, lengths, generator)
        decoded = model.decode(batch.target_in, model.encode(batch.source, batch.source_mask), batch.target_mask)
        loss = criterion(decoded, model.output, batch.target_out, batch.target_mask)
        optimizer.zero_grad()
        (loss.loss / loss.tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = rate * schedule(update, 0.0)
        optimizer.step()
        yield update


def exact_match(model: torch.nn.Module, batch: Batch) -> float:
    """Share of strings whose greedy output is right up to and including EOS."""
    model.eval()
    outputs = decode_batch(model, GreedySearch(), batch.source, batch.source_mask)
    targets = [row[mask][:-1].tolist() for row, mask in zip(batch.target_out, batch.target_mask, strict=True)]
    right = [best.finished and best.tokens == target for (best, *_), target in zip(outputs, targets, strict=True)]
    return sum(right) / len(right)


def learn(combination: Combination, task: str, total: int, seconds: float, enough: float = ENOUGH) -> dict[str, Any]:
    """Train until `enough` of the check set is answered, or the updates or the seconds of processor time are spent."""
    from seq2seq.commands.composition import compose
    from seq2seq.pipeline.build import build

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    settings = compose(f"model={combination.model}", *combination.parts, *combination.sizes)
    vocabulary = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "joint_vocabulary": True}
    model = build(settings["model"], "model", **vocabulary)
    check, test = (digits(task, 1000, LENGTHS, torch.Generator().manual_seed(SEED + i)) for i in (1, 2))
    start = time.process_time()
    for update in updates(model, task, LENGTHS, total):
        spent = time.process_time() - start
        if spent > seconds or (update % 50 == 0 and exact_match(model, check) >= enough):
            break
    result = {"task": task, "exact_match": exact_match(model, test), "updates": update, "seconds": round(spent, 1)}
    return {"combination": combination.name, **asdict(combination), **result}


def learn_patiently(combination: Combination, task: str, total: int, seconds: float) -> dict[str, Any]:
    """`learn`, and once more from the start, for longer, if that was not enough."""
    result = learn(combination, task, total, seconds)
    return learn(combination, task, 3 * total, seconds, MORE_THAN_ENOUGH) if fell_short(result) else result


def fell_short(result: dict[str, Any]) -> bool:
    return result["exact_match"] < THRESHOLD and not result["cannot"]


def table(results: list[dict[str, Any]]) -> str:
    lines = ["| combination | task | exact match | updates | seconds | |", "|---|---|---|---|---|---|"]
    for result in results:
        note = result["cannot"] or ("falls short" if fell_short(result) else "")
        match = f"{100 * result['exact_match']:.1f}%"
        lines.append("| {combination} | {task} | {} | {updates} | {seconds} | {} |".format(match, note, **result))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[""], help="beginnings of names, as in the table; default: all")
    parser.add_argument("--again", action="store_true", help="train also what the file of results has")
    parser.add_argument("--updates", type=int, default=1000, help="most updates a training (default 1000)")
    parser.add_argument("--seconds", type=float, default=120, help="most seconds of processor time (default 120)")
    parser.add_argument("--processes", type=int, default=1, help="trainings at the same time (default 1)")
    parser.add_argument("--output", type=Path, default=Path("data/results/learning.json"))
    options = parser.parse_args(arguments)
    everything = [(c, task) for c in combinations() for task in TASKS]
    found = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else []
    results = {(result["combination"], result["task"]): result for result in found}
    wanted = [
        (combination, task)
        for combination, task in everything
        if combination.name.startswith(tuple(options.names))
        and (options.again or (combination.name, task) not in results)
    ]
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        trainings = [pool.submit(learn_patiently, *each, options.updates, options.seconds) for each in wanted]
        for training in as_completed(trainings):
            result = training.result()
            print(table([result]).splitlines()[-1], flush=True)
            results[result["combination"], result["task"]] = result
            kept = [results[c.name, task] for c, task in everything if (c.name, task) in results]
            with atomic_write(options.output) as file:
                json.dump(kept, file, indent=1)
                file.write("\n")
    print(table([results[c.name, task] for c, task in everything if (c.name, task) in results]))
    return int(any(map(fell_short, results.values())))


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measure this package by hand: speed, memory, start-up, data preparation, complexity, and the same beside its rivals.

    python scripts/benchmark.py train model=transformer data=multi30k data.root=DIR
    python scripts/benchmark.py decode model=bahdanau --sentences 1000
    python scripts/benchmark.py startup
    python scripts/benchmark.py prepare --pairs 5000000 data.variants=16 data.processes=2
    python scripts/benchmark.py complexity --output data/results/complexity
    python scripts/benchmark.py rivals --threads 2 --repetitions 3

`key=value` are the overrides of `seq2seq train`. Every measurement runs alone, in a process of its own. A table goes to
standard output; all values, with versions, machine and command, to a JSON file (--output). Figures are only worth
something on a machine that does nothing else: the load average at the start is in the file.
See `benchmark.py COMMAND --help` for what is counted, and how.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks import complexity, decoding, preparation, rivals, startup, training
from benchmarks.process import MeasurementFailed
from benchmarks.record import Record, write

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

COMMANDS = {
    "train": training,
    "decode": decoding,
    "startup": startup,
    "prepare": preparation,
    "complexity": complexity,
    "rivals": rivals,
}


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        doc = module.__doc__ or ""
        one = commands.add_parser(
            name,
            help=doc.splitlines()[0],
            description=doc,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if module is not complexity:
            one.add_argument("--threads", type=int, help="CPU threads (default: OMP_NUM_THREADS, else all cores)")
        one.add_argument("--output", type=Path, default=module.OUTPUT, metavar="PATH", help="default: %(default)s")
        module.add_arguments(one)
    return main


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options, rest = parser().parse_known_args(arguments)
    if hasattr(options, "overrides"):
        options.overrides = [*options.overrides, *rest]
    unknown = [text for text in rest if text.startswith("--") or not hasattr(options, "overrides")]
    if unknown:
        parser().error(f"unrecognized arguments: {' '.join(unknown)}")
    if getattr(options, "threads", None) is not None:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
    record = Record(options.command, arguments)
    try:
        return write(record, COMMANDS[options.command].run(options), options.output)
    except MeasurementFailed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

"""Requests a second and latency of `seq2seq serve`, with batches of many clients' texts and one text at a time.

    python scripts/load_test.py runs/bahdanau-grammar-seed1 --clients 1 8 32 128 --seconds 10

Each client sends its next request when it has the answer to the last; texts are the run's own test sources.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np

WARM_UP = 1.0
TEXTS = ["A friend should cry.", "A brave child can send Sophie the suitcase."]


@contextmanager
def service(arguments: list[str]) -> Iterator[str]:
    """The address of `seq2seq serve` with these arguments."""
    command = [sys.executable, "-m", "seq2seq", "serve", "port=0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        printed = ""
        while (found := re.search(r"(http://\S+)  \(Ctrl-C stops\)", printed)) is None:
            line = process.stderr.readline()
            if not line:
                sys.exit(printed)
            printed += line
        try:
            yield found[1]
        finally:
            process.terminate()


async def measure(url: str, texts: list[str], clients: int, seconds: float) -> list[float]:
    """Latencies in seconds of the requests answered within the time, after a warm-up."""
    latencies: list[float] = []
    turns = itertools.cycle(texts)
    begin = time.perf_counter() + WARM_UP
    end = begin + seconds
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as session:

        async def client() -> None:
            while (start := time.perf_counter()) < end:
                response = await session.post(f"{url}/translate", json={"text": next(turns)})
                response.raise_for_status()
                stop = time.perf_counter()
                if begin <= stop <= end:
                    latencies.append(stop - start)

        await asyncio.gather(*(client() for _ in range(clients)))
    return latencies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder, bundle or checkpoint")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64], help="values of batching.size")
    parser.add_argument("settings", nargs="*", help="further settings of `seq2seq serve`, such as search=greedy")
    options = parser.parse_intermixed_args()
    file = options.run / "test.src.txt"
    texts = file.read_text(encoding="utf-8").splitlines() if file.is_file() else TEXTS
    print("| batching.size | clients | requests/s | median ms | 95% ms | 99% ms |\n|---|---|---|---|---|---|")
    for size in options.batches:
        with service([f"checkpoints=[{options.run}]", f"batching.size={size}", *options.settings]) as url:
            for clients in options.clients:
                latencies = asyncio.run(measure(url, texts, clients, options.seconds))
                middle, high, highest = 1000 * np.percentile(latencies, [50, 95, 99])
                rate = len(latencies) / options.seconds
                print(f"| {size} | {clients} | {rate:.1f} | {middle:.0f} | {high:.0f} | {highest:.0f} |", flush=True)


if __name__ == "__main__":
    main()

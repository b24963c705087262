"""`seq2seq translate processes=N`: one process a shard on this machine, joined in order."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from omegaconf import DictConfig

from seq2seq.commands.choices import search_path
from seq2seq.commands.translate import finished, join, shard_paths
from seq2seq.errors import UserError
from seq2seq.machine import cores

POLL = 0.05


def translate_in_processes(config: DictConfig, overrides: Sequence[str]) -> int:
    """Run the same command once a shard, wait for all, join their outputs and remove them.

    A shard that stops with an error stops the others; what they have written stays for resume=true. Returns 0, or the
    exit status of the shard that failed.
    """
    count = config.processes
    shards = shard_paths(config.output, count)
    refuse_same_file(config.input, [config.output, *shards])
    if config.resume and Path(config.output).exists() and not any(Path(path).exists() for path in shards):
        raise UserError(
            f"{config.output} was not begun by {count} processes\nGo on without processes=, or without resume=true."
        )
    threads = config.threads or max(1, cores() // count)
    commands = [
        [
            *(sys.executable, "-m", "seq2seq", "translate", *search_path(), *overrides),
            *("processes=1", f"threads={threads}"),
            *(f"shard.index={index}", f"shard.count={count}", f"device={device_of(config.device, index)}"),
        ]
        for index in range(count)
    ]
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        statuses = run_together(commands)
    finally:
        signal.signal(signal.SIGTERM, previous)
    if failed := next((status for status in statuses if status), 0):
        print(f"what the {count} processes have written stays; resume=true goes on from there", file=sys.stderr)
        return failed if failed > 0 else 1
    print(f"{join(shards, config.output)} lines by {count} processes", file=sys.stderr)
    for path in shards:
        Path(path).unlink()
        finished(path).unlink()
    return 0


def run_together(commands: Sequence[Sequence[str]]) -> list[int]:
    """Exit statuses; the first error ends the other processes (their status is then 0). What each says on standard
    error is passed on when it ends."""
    with ExitStack() as files:
        talk = [files.enter_context(tempfile.TemporaryFile()) for _ in commands]
        return _wait(commands, talk)


def _wait(commands: Sequence[Sequence[str]], talk: Sequence[IO[bytes]]) -> list[int]:
    """See `run_together`; `talk` takes what each process says."""
    children = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=file)
        for command, file in zip(commands, talk, strict=True)
    ]
    statuses: dict[int, int] = {}
    try:
        while len(statuses) < len(children) and not any(statuses.values()):
            for index, child in enumerate(children):
                if index not in statuses and child.poll() is not None:
                    statuses[index] = child.returncode
                    if child.returncode < 0:
                        name = signal.Signals(-child.returncode).name
                        print(f"error: the process of shard {index} was killed by {name}", file=sys.stderr)
                    talk[index].seek(0)
                    for line in talk[index].read().decode("utf-8", "replace").splitlines():
                        print(line if child.returncode else f"shard {index}: {line}", file=sys.stderr)
            time.sleep(POLL)
    finally:
        for child in children:
            if child.poll() is None:
                child.terminate()
        for child in children:
            child.wait()
    return [statuses.get(index, 0) for index in range(len(children))]


def device_of(device: str, index: int) -> str:
    """device=cuda spreads the processes over the GPUs; any other device is shared."""
    if device != "cuda":
        return device
    import torch

    return f"cuda:{index % max(1, torch.cuda.device_count())}"


def refuse_same_file(source: Any, outputs: Sequence[Any]) -> None:
    from seq2seq.inference.line_output import same_file

    for output in outputs:
        if same_file(source, output):
            raise UserError(f"output={output} is the input itself; give another file")

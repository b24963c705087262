"""A program that trains in forked children, to be killed, stopped, or run in company. Prints what became of them.

One process imports everything once; each child starts from there as a fresh process would.
"""

import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from toy import ToyData, toy_fit, toy_model, union_of_two

from seq2seq.errors import UserError
from seq2seq.training.interruption import TrainingInterrupted

KILLED = {
    "trainer": {"max_steps": 50, "val_check_interval": 7, "log_every_n_steps": 4, "accumulate_grad_batches": 2},
    "callbacks": {"average_last": 3, "save_every_n_steps": 3},
}
TOGETHER = {"max_steps": 9, "val_check_interval": 4, "log_every_n_steps": 3, "gradient_clip_val": 0.5}


def fork(work: Callable[[], Any]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except TrainingInterrupted as interruption:
        code = interruption.exit_code
    except UserError as error:
        print(error, file=sys.stderr)
        code = 2
    except BaseException as error:
        print(type(error).__name__, error, file=sys.stderr)
    finally:
        os._exit(code)


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed(folder: Path, kills: int = 20) -> list[int]:
    """Children killed at random moments, then one that may finish; their exit codes.

    Each lives for a small share of what a whole training takes here, so that a fast machine does not outrun its killer.
    """
    began = time.monotonic()
    wait(fork(lambda: toy_fit(folder.with_name("timed"), **KILLED)))
    whole = time.monotonic() - began
    chance = random.Random(3)
    codes = []
    for number in range(kills + 1):
        child = fork(lambda: toy_fit(folder, **KILLED))
        if number < kills:
            time.sleep(whole * chance.uniform(0.02, 0.15))
            os.kill(child, signal.SIGKILL)
        codes.append(wait(child))
    return codes


def terminated(folder: Path) -> int:
    child = fork(lambda: toy_fit(folder, trainer={"max_steps": 10**6}))
    while not (folder / "checkpoints" / "last.ckpt").exists():
        time.sleep(0.02)
    os.kill(child, signal.SIGTERM)
    return wait(child)


def together(folder: Path, accumulate: int = 1, breaking: bool = False) -> list[int]:
    """Two processes of one DDP training over gloo."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def work(rank: int) -> None:
        os.environ.update(
            LOCAL_RANK=str(rank), NODE_RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
        )
        model = toy_model(dropout=0.0)
        if breaking and rank == 1:
            model.decode = lambda *arguments: 1 / 0
        settings = {**TOGETHER, "accumulate_grad_batches": accumulate, "devices": 2, "strategy": "ddp"}
        toy_fit(folder, model=model, data=ToyData(train=151), trainer=settings)

    return [wait(child) for child in [fork(lambda rank=rank: work(rank)) for rank in range(2)]]


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = Path(sys.argv[1])
    toy_fit(place / "whole", **KILLED)
    alone = {**TOGETHER, "accumulate_grad_batches": 1}
    toy_fit(place / "alone", model=toy_model(dropout=0.0), data=union_of_two(ToyData(train=151)), trainer=alone)
    results = {
        "killed": killed(place / "killed"),
        "terminated": terminated(place / "terminated"),
        "together": together(place / "together"),
        "accumulating": together(place / "accumulating", accumulate=2),
        "breaking": together(place / "breaking", breaking=True),
    }
    print(json.dumps(results))

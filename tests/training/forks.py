"""A program that trains in forked children, to be killed, stopped, starved of disk, or run in company. Prints what
became of them.

One process imports everything once; each child starts from there as a fresh process would.
"""

import io
import json
import os
import random
import resource
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
from seq2seq.training import checkpoint, loggers, validation
from seq2seq.training.averaging import RecentWeights
from seq2seq.training.signals import TrainingInterrupted
from seq2seq.training.state import TrainingState

KILLED = {
    "trainer": {
        "max_steps": 50,
        "val_check_interval": 7,
        "log_every_n_steps": 4,
        "accumulate_grad_batches": 2,
        "average_last": 3,
        "save_every_n_steps": 3,
    },
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


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def instead(holder: Any, name: str, number: int, replacement: Callable[..., Any]) -> None:
    """The number-th call of `holder.name` becomes `replacement(original, *arguments)`."""
    original, calls = getattr(holder, name), [0]

    def call(*arguments: Any, **keywords: Any) -> Any:
        calls[0] += 1
        return replacement(original, *arguments) if calls[0] == number else original(*arguments, **keywords)

    setattr(holder, name, call)


def half_a_checkpoint(original: Callable[..., None], content: dict[str, Any], stream: io.BufferedWriter) -> None:
    whole = io.BytesIO()
    original(content, whole)
    stream.write(whole.getvalue()[: whole.tell() // 2])
    stream.flush()
    die()


def half_a_line(original: Callable[..., None], history: loggers.History, record: dict[str, Any]) -> None:
    with open(history.path, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(record)[:40])
    die()


def done_and_dead(original: Callable[..., Any], *arguments: Any) -> None:
    original(*arguments)
    die()


def dead(original: Callable[..., Any], *arguments: Any) -> None:
    die()


PLACES: dict[str, Callable[[int], None]] = {
    "the best written, the last not": lambda n: instead(checkpoint, "duplicate", 1, dead),
    "in the middle of a checkpoint": lambda n: instead(checkpoint.torch, "save", n, half_a_checkpoint),
    "a checkpoint written, not renamed": lambda n: instead(os, "replace", n + 1, dead),
    "a checkpoint done": lambda n: instead(checkpoint.Checkpoints, "save", n, done_and_dead),
    "in the middle of validation": lambda n: instead(validation, "decode_batch", n, dead),
    "a line of history cut short": lambda n: instead(loggers.History, "write", n, half_a_line),
    "averaged weights written, no checkpoint": lambda n: instead(RecentWeights, "add", n, done_and_dead),
}
"""Points where a process can be hit worst; n counts from its start."""


def killed_there(folder: Path) -> list[int]:
    """A training killed once in each of PLACES, then left to finish, three times over; exit codes."""

    def work(place: str, number: int) -> None:
        PLACES[place](number)
        toy_fit(folder / str(number), **KILLED)

    codes = []
    for number in (1, 2, 3):
        codes += [wait(fork(lambda place=place, number=number: work(place, number))) for place in PLACES]
        codes.append(wait(fork(lambda number=number: toy_fit(folder / str(number), **KILLED))))
    return codes


class Fill:
    """From an update on there is room for no file larger than `room` bytes."""

    def __init__(self, at: int, room: int) -> None:
        self.at, self.room = at, room

    def on_update_end(self, state: TrainingState) -> None:
        if state.update == self.at:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.room, resource.RLIM_INFINITY))


def filled(folder: Path) -> list[int]:
    """No room for a checkpoint, then none for a line of history, then room again; exit codes."""
    codes = []
    for at, room in ((20, 50_000), (31, 100)):
        codes.append(wait(fork(lambda at=at, room=room: toy_fit(folder, callbacks=(Fill(at, room),), **KILLED))))
    return [*codes, wait(fork(lambda: toy_fit(folder, **KILLED)))]


def terminated(folder: Path) -> int:
    child = fork(lambda: toy_fit(folder, trainer={"max_steps": 10**6}))
    while not (folder / "checkpoints" / "last.ckpt").exists():
        time.sleep(0.02)
    os.kill(child, signal.SIGTERM)
    return wait(child)


def together(folder: Path, accumulate: int = 1, second: Callable[..., Any] | None = None) -> list[int]:
    """Two processes of one DDP training over gloo. second: what the second does at its eighth decoding."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def work(rank: int) -> None:
        os.environ.update(
            LOCAL_RANK=str(rank), NODE_RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
        )
        model = toy_model(dropout=0.0)
        if second and rank == 1:
            instead(model, "decode", 8, second)
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
        "killed there": killed_there(place / "killed there"),
        "filled": filled(place / "filled"),
        "terminated": terminated(place / "terminated"),
        "together": together(place / "together"),
        "accumulating": together(place / "accumulating", accumulate=2),
        "breaking": together(place / "breaking", second=lambda *_: 1 / 0),
        "dying": together(place / "dying", second=dead),
    }
    print(json.dumps(results))

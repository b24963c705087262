"""The processes of one training: which of them is rank zero, and which training a process belongs to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENVIRONMENT = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")
"""Variables that Lightning sets when it starts the other processes of a training."""

TRAINING = "SEQ2SEQ_RUN_DIR"
"""Names the folder that those processes train in, since a command line may hold several trainings."""


def is_rank_zero() -> bool:
    """Return True in the only process of a training, or in the first one, which speaks and writes for all.

    torchrun, Lightning and SLURM number processes by these variables.
    """
    ranks = ("RANK", "NODE_RANK", "GROUP_RANK", "LOCAL_RANK", "SLURM_PROCID")
    return all(os.environ.get(name, "") in ("", "0") for name in ranks)


def takes_part(folder: Path) -> bool:
    """Return False in a process that Lightning started for a training in another folder."""
    own = str(folder.resolve())
    return is_rank_zero() or os.environ.get(TRAINING, own) == own


@contextmanager
def process_group(folder: Path) -> Iterator[None]:
    """Let other processes join the training in `folder`; afterwards this process can begin another training."""
    import torch.distributed

    before = {name: os.environ.get(name) for name in (*ENVIRONMENT, TRAINING)}
    if "LOCAL_RANK" not in os.environ:
        os.environ[TRAINING] = str(folder.resolve())
    try:
        yield
    finally:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

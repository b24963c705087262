"""Training batches without end, each with the loader's state after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from seq2seq.errors import UserError
from seq2seq.interfaces import Batch
from seq2seq.training.progress import Progress

LoaderState = dict[str, int]


class Loader(Protocol):
    """Batches of one epoch at a time, as `TranslationData.train_loader()`: each `iter` goes on where the state
    says, with the next epoch when one is done. The state's "epoch", "consumed" and "batches" tell where it is;
    it counts the batches handed over.
    """

    def __iter__(self) -> Iterator[Batch]: ...

    def state_dict(self) -> LoaderState: ...

    def load_state_dict(self, state: LoaderState) -> None: ...


class BatchStream:
    """Endless (batch, loader state after it) pairs, epoch after epoch, from where `progress` stands.

    The trainer sees one epoch that never ends, so that the run's own progress alone decides where a resumed run goes
    on. `loader` is called once, when the first batch is wanted.
    """

    def __init__(self, loader: Callable[[], Loader], progress: Progress) -> None:
        self._loader = loader
        self._progress = progress

    def __iter__(self) -> Iterator[tuple[Batch, LoaderState]]:
        loader = self._loader()
        if self._progress.loader:
            loader.load_state_dict(self._progress.loader)
        empty = 0  # a run may have been stopped just before the end of an epoch
        while empty < 2:
            empty += 1
            for batch in loader:
                empty = 0
                yield batch, loader.state_dict()
        raise UserError("no training pair is left after filtering: see data.max_length and data.length_ratio.")

"""The training loop, and what it needs set up before it starts."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.optim import Optimizer

from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import PRIMARY
from seq2seq.interfaces import Batch
from seq2seq.kernels.product import Product, onednn_products
from seq2seq.run import Run
from seq2seq.search import Search
from seq2seq.training.averaging import RecentWeights, try_average
from seq2seq.training.checkpoint import Checkpoints
from seq2seq.training.criterion import Criterion
from seq2seq.training.loggers import Log, LoggerFactory
from seq2seq.training.optimizer import create_optimizer, parameter_kinds
from seq2seq.training.schedule import Schedule
from seq2seq.training.settings import TrainerSettings
from seq2seq.training.signals import StopSignals, TrainingInterrupted
from seq2seq.training.state import Stopwatch, TrainingState, seed_everything
from seq2seq.training.update import TrainingModule, Updater, inputs
from seq2seq.training.validation import Score, Validator, validate, whole_weights

logger = logging.getLogger(__name__)


class Loader(Protocol):
    """Batches of one epoch per iteration, such as `TranslationData.train_loader()`. Each iteration continues where the
    state says, with the next epoch when one is done. The state's "epoch", "consumed" and "batches" count the batches
    handed out."""

    def __iter__(self) -> Iterator[Batch]: ...

    def state_dict(self) -> dict[str, int]: ...

    def load_state_dict(self, state: dict[str, int]) -> None: ...


class Data(Protocol):
    """The part of `data.translation_data.TranslationData` that training uses, already prepared."""

    tokenizers: Any

    @property
    def fingerprint(self) -> str: ...

    def train_loader(self, rank: int, world_size: int) -> Loader: ...

    def evaluation_batches(self, split: str, max_tokens: int) -> Iterable[Batch]: ...

    def pairs(self, split: str) -> tuple[list[str], list[str]]: ...


@dataclass(frozen=True)
class TrainingResult:
    """checkpoint: the best, to export. device: of this process's model. main: True in the process that writes results.
    averaged: the mean of the last weights is the best model."""

    state: TrainingState
    checkpoint: Path
    device: torch.device
    main: bool
    averaged: bool

    def summary(self) -> dict[str, Any]:
        """The "training" section of metrics.json."""
        state = self.state
        return {
            "averaged": self.averaged,
            "updates": state.update,
            "epochs": round(state.epochs, 4),
            "seconds": round(state.seconds, 3),
            "cpu_seconds": round(state.cpu_seconds, 3),
            "target_tokens": state.target_tokens,
            "target_tokens_per_second": round(state.tokens_per_second, 1),
            "best_update": state.best_update,
            f"best_valid_{PRIMARY.key}": state.best_score,
            "skipped_updates": state.skipped,
            "stopped": state.stopped or "",
            "threads": torch.get_num_threads(),
            "onednn": [str(Product(*fields)) for fields in state.onednn or ()],
        }


def fit(
    model: nn.Module,
    data: Data,
    *,
    criterion: Criterion,
    optimizer: Callable[[Iterable[Any]], Optimizer],
    schedule: Schedule,
    search: Search,
    settings: TrainerSettings,
    run: Run,
    config: dict[str, Any],
    loggers: Sequence[LoggerFactory] = (),
    callbacks: Sequence[Any] = (),
    seed: int = 1,
    score: Score | None = None,
) -> TrainingResult:
    """Train `model` in the run's folder, resuming from its last checkpoint if there is one.

    Writes checkpoints and history.jsonl. Validation is on the split "valid" by `search`; `score` (None: the
    primary metric with its default signature) chooses the best checkpoint. config is what a checkpoint says about
    itself (plain values). callbacks: objects with any of the methods on_train_start(state), on_update_end(state),
    on_validation_end(state, validation) and on_train_end(state), called in every process (`Fabric.call`). On a CPU a
    resumed run is bit-identical to one that never stopped, unless a limit, an interval or the schedule is given as wall
    time.

    Raises:
        UserError: settings that cannot work here, a damaged checkpoint, a full disk, a loss that is not finite.
        TrainingInterrupted: SIGTERM or Ctrl-C; the state has been saved.
    """
    fabric = settings.create_fabric(callbacks)
    with StopSignals() as signals, peers_watched(), matmul_precision_restored():
        fabric.launch()
        settings.apply_to_torch()
        seed_everything(seed, fabric.global_rank)
        original = TrainingModule(model, criterion, settings.compile)
        kinds = parameter_kinds(original)
        module = fabric.setup_module(original)
        optim = fabric.setup_optimizers(create_optimizer(optimizer, original.named_parameters(), kinds))
        state = TrainingState()
        update = Updater(fabric, optim, schedule, settings, state)
        inference = {"config": config, "tokenizers": data.tokenizers.state()}
        checkpoints = Checkpoints(fabric, run, module, optim, schedule, state, inference, data.fingerprint)
        checkpoints.restore()
        batches = endless(data.train_loader(fabric.global_rank, fabric.world_size), state)
        validator = Validator.on_data(data, search, settings.validation_tokens, settings.samples, score)
        log = Log(run, state, settings, loggers, fabric.is_global_zero)
        try:
            with chosen_products(fabric, original, settings, state):
                averaged, interrupted = train(batches, module, update, validator, checkpoints, log, signals)
        finally:
            log.close()
    if interrupted:
        # Without a signal of its own, this process stops because another one was asked to.
        raise TrainingInterrupted(signals.received or signal.SIGTERM, state.update)
    best = run.averaged if averaged else run.best
    return TrainingResult(state, best, fabric.device, fabric.is_global_zero, averaged)


def train(
    batches: Iterator[Batch],
    module: Any,
    update: Updater,
    validator: Validator,
    checkpoints: Checkpoints,
    log: Log,
    signals: StopSignals,
) -> tuple[bool, bool]:
    """Train until a limit is reached or a signal asks to stop. Return (averaged, interrupted).

    Each turn validates and saves where that is due, stops if it is time, and otherwise takes one update and logs it. A
    checkpoint stands for everything up to its update, so a resumed run repeats nothing and misses nothing.
    """
    fabric, settings, schedule, state = update.fabric, update.settings, update.schedule, update.state
    recent = RecentWeights(checkpoints.run.recent_weights, settings.average_last)
    if fabric.is_global_zero:
        recent.forget_after(state.update)
    watch = Stopwatch(state)
    saved_update, saved_seconds, stopping = state.update, state.seconds, False
    fabric.call("on_train_start", state)
    while True:
        # Validate
        end = settings.end(state)
        better = validated = False
        if not stopping and state.update != state.validated_update and (end or settings.validation_due(state)):
            with watch.aside():
                validation = validate(fabric, module, validator, signals)
            if validation is None:
                stopping = True
            else:
                validated, better = True, state.record_validation(validation.score, validation.nll)
                schedule.observe(state.update, better)
                log.validation(validation)
                fabric.call("on_validation_end", state, validation)
                if settings.average_last:
                    weights = whole_weights(module)
                    if fabric.is_global_zero:
                        recent.add(state.update, weights)
                end = settings.end(state)

        # Save
        due = state.update != saved_update and settings.saving_due(state, saved_seconds)
        if validated or stopping or due:
            with watch.aside():
                state.seconds = max(state.seconds, fabric.broadcast(watch.seconds()))
                checkpoints.save(better)
            saved_update, saved_seconds = state.update, state.seconds

        # Stop
        if stopping:
            return False, True
        if end:
            state.stopped = end
            averaged, stopping = try_average(fabric, module, validator, checkpoints, recent, watch, signals)
            fabric.call("on_train_end", state)
            return averaged, stopping

        # Micro-batches
        sums = torch.zeros(3, dtype=torch.float64, device=fabric.device)
        for left in reversed(range(settings.accumulate_grad_batches)):
            batch = next(batches)
            with fabric.no_backward_sync(module, enabled=left > 0):
                scaled, *parts = module(*inputs(batch, fabric.device))
                fabric.backward(scaled)
            sums += torch.stack([part.double() for part in parts])

        # Update
        stopping = update(sums, watch, signals.received is not None)
        fabric.call("on_update_end", state)

        # Log
        log.update()
        if state.update % settings.log_every_n_steps == 0 and state.window.updates:
            log.training()


def endless(loader: Loader, state: TrainingState) -> Iterator[Batch]:
    """Yield batches epoch after epoch from where the state stands, and keep the loader's state in it.

    Raises:
        UserError: there is no batch.
    """
    if state.loader:
        loader.load_state_dict(state.loader)
    empty = 0  # a run may have stopped just before the end of an epoch
    while empty < 2:
        empty += 1
        for batch in loader:
            empty = 0
            state.loader = loader.state_dict()
            yield batch
    raise UserError("no training pair is left after filtering: see data.max_length and data.length_ratio.")


@contextmanager
def chosen_products(
    fabric: Fabric, model: nn.Module, settings: TrainerSettings, state: TrainingState
) -> Iterator[None]:
    """Compute products with oneDNN as the checkpoint did, so that a resumed run is bit-identical, or in a new run as
    the settings say. Rank zero chooses for all processes."""
    if state.onednn is None:
        products = settings.products(model, fabric.device) if fabric.is_global_zero else []
        state.onednn = fabric.broadcast([list(product) for product in products])
    chosen = [Product(*fields) for fields in state.onednn]
    if settings.matmul != "mkl" and fabric.is_global_zero:
        logger.info("matrix products computed by oneDNN (others by torch): %s", ", ".join(map(str, chosen)) or "none")
    with onednn_products(chosen):
        yield


@contextmanager
def matmul_precision_restored() -> Iterator[None]:
    """Return to exact products at the end: whoever loads the model will translate with them."""
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


@contextmanager
def peers_watched() -> Iterator[None]:
    """Turn a broken connection to another process of this training into a plain error."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.distributed.DistError) and "gloo" not in str(error):
            raise
        raise UserError(
            "another process of this training has ended: its own error says why, or it was killed, perhaps for lack of "
            "memory\nThe last good checkpoint is intact; the same command resumes from it."
        ) from error

"""What happens between updates: logging, validation, checkpoints, early stopping, the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from seq2seq.errors import UserError
from seq2seq.interfaces import Model
from seq2seq.training.averaging import RecentWeights
from seq2seq.training.checkpoint import MODEL_PREFIX, duplicate, model_weights, unwritable, write_checkpoint
from seq2seq.training.limits import Limits, ValidationInterval
from seq2seq.training.loggers import Observer, training_record, validation_record
from seq2seq.training.module import TranslationModule
from seq2seq.training.progress import Progress, Window, restore_random_state, undisturbed
from seq2seq.training.signals import StopSignals
from seq2seq.training.validation import Validation, Validator

logger = logging.getLogger(__name__)

LAST, BEST, AVERAGED = "last.ckpt", "best.ckpt", "averaged.ckpt"


@dataclass(frozen=True)
class CallbackSettings:
    """The `callbacks` group.

    patience: stop after so many validations in a row without a new best BLEU (None: never). average_last: at the end
    also try the mean of the weights of the last so many validations (0: don't), and export it if its validation BLEU
    is better than the best checkpoint's. save_every_n_steps, save_minutes: save last.ckpt at least this often,
    besides after every validation (None: no such rule). samples: translations to show. progress: a live bar, or,
    where stderr is no terminal, a log line now and then.
    """

    patience: int | None = 10
    average_last: int = 0
    save_every_n_steps: int | None = None
    save_minutes: float | None = 5.0
    samples: int = 4
    progress: bool = True

    def __post_init__(self) -> None:
        for name in ("patience", "save_every_n_steps", "save_minutes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UserError(f"callbacks.{name} must be positive or null, got {value}")
        for name in ("average_last", "samples"):
            if getattr(self, name) < 0:
                raise UserError(f"callbacks.{name} must not be negative, got {getattr(self, name)}")
        if self.average_last == 1:
            raise UserError("callbacks.average_last=1 is no mean; give 2 or more, or 0 for none")


class Supervisor(Callback):
    """Acts at the end of each update, always in the same order: history line, validation, checkpoint, end. So a
    checkpoint stands for everything up to its update, and a run taken up from it repeats nothing and misses nothing.

    Decisions rest on `module.progress` alone, which is the same in all processes.
    """

    def __init__(
        self,
        folder: Path,
        settings: CallbackSettings,
        limits: Limits,
        interval: ValidationInterval,
        log_every_n_steps: int,
        validator: Validator,
        observers: Sequence[Observer],
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.limits = limits
        self.interval = interval
        self.log_every_n_steps = log_every_n_steps
        self.validator = validator
        self.observers = observers
        self.signals = StopSignals()
        self.interrupted = False
        self.averaged = False
        self.recent = RecentWeights(folder / "average", settings.average_last)
        self._saved_seconds = 0.0

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        assert isinstance(module, TranslationModule)
        progress = module.progress
        if module.restored_random_state is not None:
            restore_random_state(module.restored_random_state)
        self.signals.listen()  # Only now, after Lightning has set handlers of its own.
        module.stop_requested = lambda: self.signals.received is not None
        self._saved_seconds = progress.seconds
        if trainer.is_global_zero:
            self.recent.forget_after(progress.update)
        self._tell(trainer, lambda observer: observer.start(self.folder.parent, progress, self.limits))
        module.stopwatch.start(progress)
        if progress.pending:
            self._validate(trainer, module)
        self._end_if_due(trainer, module)

    def on_train_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(module, TranslationModule)
        if not module.updated:
            return
        module.updated = False
        progress = module.progress
        module.stopwatch.record(progress)
        self._tell(trainer, lambda observer: observer.update(progress))
        if progress.update % self.log_every_n_steps == 0 and progress.window.updates:
            self._log(trainer, progress)
        if module.stopping:
            self._interrupt(trainer, module)
        elif self.interval.due(progress):
            self._validate(trainer, module)
        elif self._saving_due(progress):
            self._save(trainer, module)
        self._end_if_due(trainer, module)

    def teardown(self, trainer: Trainer, module: LightningModule, stage: str) -> None:
        self._tell(trainer, lambda observer: observer.close())

    def _log(self, trainer: Trainer, progress: Progress) -> None:
        record = training_record(progress)
        nll = record["train_nll"]
        best = progress.lowest_train_nll
        if best is not None and nll > best + max(1.0, 0.5 * best):
            logger.warning(
                "update %d: training diverges, NLL %.2f a token after %.2f at its best; "
                "lower optimizer.lr or lengthen schedule.warmup",
                progress.update,
                nll,
                best,
            )
        progress.lowest_train_nll = nll if best is None else min(best, nll)
        progress.window = Window(seconds=progress.seconds - progress.aside_seconds)
        self._tell(trainer, lambda observer: observer.record(record))

    def _validate(self, trainer: Trainer, module: TranslationModule) -> None:
        progress = module.progress
        progress.pending = True
        with module.stopwatch.aside():
            validation = self.run_validation(trainer, module)
            if validation is None:
                self._interrupt(trainer, module)
                return
            progress.pending = False
            progress.validations += 1
            progress.validated_update = progress.update
            progress.validated_epochs = progress.epochs
            progress.validated_seconds = progress.seconds
            better = progress.improves(validation.bleu, validation.nll)
            if better:
                progress.best_bleu, progress.best_nll = validation.bleu, validation.nll
                progress.best_update, progress.stale = progress.update, 0
            else:
                progress.stale += 1
            module.schedule.observe(progress.update, better)
            record = validation_record(progress, validation)
            self._tell(trainer, lambda observer: observer.record(record))
            self._tell(trainer, lambda observer: observer.validated(progress, validation))
            if self.settings.average_last:
                # Whole in the first process even where they are sharded.
                weights = model_weights(trainer.strategy.lightning_module_state_dict())
                if trainer.is_global_zero:
                    self._keep(progress.update, weights)
        self._save(trainer, module, best=better)

    def _keep(self, update: int, weights: dict[str, torch.Tensor]) -> None:
        try:
            self.recent.add(update, weights)
        except OSError as error:
            raise unwritable(f"weights in {self.folder}", error) from error

    def run_validation(self, trainer: Trainer, module: TranslationModule) -> Validation | None:
        """Validate without leaving a trace on training; None if told to stop meanwhile (in a single process)."""
        alone = trainer.world_size == 1

        def interrupted() -> bool:
            return alone and self.signals.received is not None

        def validate(model: Model, device: torch.device) -> Validation | None:
            return self.validator(model, device, interrupted)

        module.eval()
        try:
            with undisturbed():
                result = trainer.strategy.validation_step(validate)
        finally:
            module.train()
        assert result is None or isinstance(result, Validation)
        return result

    def _saving_due(self, progress: Progress) -> bool:
        steps, minutes = self.settings.save_every_n_steps, self.settings.save_minutes
        return (steps is not None and progress.update % steps == 0) or (
            minutes is not None and progress.seconds - self._saved_seconds >= 60 * minutes
        )

    def _save(self, trainer: Trainer, module: TranslationModule, best: bool = False) -> None:
        """The best is written first: should the process die between the two, the run goes on from the older last and
        writes the best again."""
        with module.stopwatch.aside():
            module.progress.seconds = max(module.progress.seconds, _shared_seconds(trainer, module))
            path = self.folder / (BEST if best else LAST)
            trainer.save_checkpoint(path, weights_only=False)
            if best and trainer.is_global_zero:
                duplicate(path, self.folder / LAST)
        self._saved_seconds = module.progress.seconds

    def _interrupt(self, trainer: Trainer, module: TranslationModule) -> None:
        self._save(trainer, module)
        self.interrupted = True
        trainer.should_stop = True

    def _end_if_due(self, trainer: Trainer, module: TranslationModule) -> None:
        progress = module.progress
        if self.interrupted:
            return
        reason = self.limits.reached(progress)
        if reason is None and self.settings.patience is not None and progress.stale >= self.settings.patience:
            reason = "patience"
        if reason is None:
            return
        if progress.update != progress.validated_update:
            self._validate(trainer, module)
            if self.interrupted:
                return
        progress.stopped = reason
        if self.settings.average_last:
            self._try_average(trainer, module)
        trainer.should_stop = True

    def _try_average(self, trainer: Trainer, module: TranslationModule) -> None:
        trainer.strategy.barrier("average")
        if len(self.recent.paths()) < 2:
            return
        weights = {MODEL_PREFIX + name: value for name, value in self.recent.average().items()}
        others = {name: value for name, value in module.state_dict().items() if not name.startswith(MODEL_PREFIX)}
        trainer.strategy.load_model_state_dict({"state_dict": {**weights, **others}}, strict=True)
        with module.stopwatch.aside():
            validation = self.run_validation(trainer, module)
        if validation is None:
            self.interrupted, trainer.should_stop = True, True
            return
        self.averaged = module.progress.improves(validation.bleu, validation.nll)
        logger.info(
            "mean of the last %d: perplexity %.2f, BLEU %.2f (%s the best checkpoint)",
            len(self.recent.paths()),
            validation.perplexity,
            validation.bleu,
            "better than" if self.averaged else "no better than",
        )
        if self.averaged:
            module.progress.best_bleu, module.progress.best_nll = validation.bleu, validation.nll
            if trainer.is_global_zero:
                write_checkpoint({"state_dict": weights, "seq2seq": module.inference}, self.folder / AVERAGED)

    def _tell(self, trainer: Trainer, what: Callable[[Observer], None]) -> None:
        if trainer.is_global_zero:
            for observer in self.observers:
                try:
                    what(observer)
                except OSError as error:
                    raise unwritable(f"the log in {self.folder.parent}", error) from error


def _shared_seconds(trainer: Trainer, module: TranslationModule) -> float:
    """The first process's time."""
    return float(trainer.strategy.broadcast(module.stopwatch.seconds()))

"""The training step and the update, as a LightningModule."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from seq2seq.errors import UserError
from seq2seq.interfaces import Batch, Model
from seq2seq.training.criterion import Criterion
from seq2seq.training.optimizer import create_optimizer, parameter_kinds
from seq2seq.training.progress import Progress, Stopwatch, random_state
from seq2seq.training.schedule import Schedule
from seq2seq.training.stream import LoaderState
from seq2seq.training.validation import Validation

logger = logging.getLogger(__name__)

UNIT = 1024.0
"""Losses are divided by this constant before backward, so that float16 gradients stay in range; the update, which
divides by the true number of tokens, takes it out again."""


class TranslationModule(LightningModule):
    """Trains a model (`interfaces.Model`): micro-batches in, updates out.

    Every micro-batch contributes the gradient of its summed loss. The update divides by the number of target tokens of
    all its micro-batches in all processes, so that neither accumulation nor the number of processes changes what is
    minimised; then clips the gradient's norm to `gradient_clip_val` (None: not at all), and sets the rate of this
    update. An update whose loss or gradient is not finite is skipped whole, optimizer state included; `max_skipped` in
    a row raise UserError.

    optimizer(groups) makes the optimizer, of `optimizer.GROUPS`; its `lr` is multiplied by schedule(update, seconds).
    inference: what a checkpoint must hold besides the weights to translate alone, {"config": plain mapping,
    "tokenizers": {name: bytes}}. corpus: the fingerprint of what it is trained on.
    """

    def __init__(
        self,
        model: Model,
        criterion: Criterion,
        optimizer: Callable[[Iterable[Any]], Optimizer],
        schedule: Schedule,
        inference: dict[str, Any],
        corpus: str,
        gradient_clip_val: float | None = 1.0,
        max_skipped: int = 10,
        compile: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.criterion = criterion
        self.make_optimizer = optimizer
        self.schedule = schedule
        self.inference = inference
        self.corpus = corpus
        self.gradient_clip_val = gradient_clip_val
        self.max_skipped = max_skipped
        self.progress = Progress()
        self.stopwatch = Stopwatch()
        self.stop_requested: Callable[[], bool] = lambda: False
        self.stopping = False
        self.updated = False
        self.restored_random_state: dict[str, Any] | None = None
        self._encode = torch.compile(model.encode, dynamic=True) if compile else model.encode
        self._decode = torch.compile(model.decode, dynamic=True) if compile else model.decode
        self._kinds = parameter_kinds(self)
        self._base_rates: list[float] = []
        self._sums: Tensor | None = None

    def configure_optimizers(self) -> Optimizer:
        optimizer = create_optimizer(self.make_optimizer, self.named_parameters(), self._kinds)
        self._base_rates = [float(group["lr"]) for group in optimizer.param_groups]
        # A fused optimizer would unscale float16 gradients itself, after the hook that normalises and clips them.
        optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]
        return optimizer

    def transfer_batch_to_device(
        self, batch: tuple[Batch, LoaderState], device: torch.device, dataloader_idx: int
    ) -> tuple[Batch, LoaderState]:
        return (batch[0] if device.type == "cpu" else batch[0].to(device, non_blocking=True)), batch[1]

    def training_step(self, item: tuple[Batch, LoaderState], batch_idx: int) -> Tensor:
        batch, self.progress.loader = item
        memory = self._encode(batch.source, batch.source_mask)
        decoded = self._decode(batch.target_in, memory, batch.target_mask)
        loss = self.criterion(decoded, self.model.output, batch.target_out, batch.target_mask)
        sums = torch.stack([loss.loss.detach().double(), loss.nll.double(), loss.tokens.double()])
        self._sums = sums if self._sums is None else self._sums + sums
        scaled: Tensor = loss.loss / UNIT
        return scaled

    def validation_step(  # type: ignore[override]
        self, validate: Callable[[Model, torch.device], Validation | None]
    ) -> Validation | None:
        """Called through the strategy, so that precision and sharding hold here as in training."""
        return validate(self.model, self.device)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        gradients = [p.grad for p in parameters]
        loss, nll, tokens, norm, seconds, stop = self._gather(gradients)
        self.progress.seconds, self.stopping, self.updated = seconds, stop > 0, True
        scale = self.trainer.accumulate_grad_batches * self.trainer.world_size * UNIT / max(1.0, tokens)
        norm *= scale
        if not (math.isfinite(loss) and math.isfinite(norm)):
            for parameter in parameters:
                parameter.grad = None
            self._skipped(loss, norm)
            return
        if self.gradient_clip_val is not None:
            scale *= min(1.0, self.gradient_clip_val / (norm + 1e-6))
        if gradients:
            torch._foreach_mul_(gradients, scale)
        self._advance(optimizer, loss, nll, int(tokens), norm)

    def _gather(self, gradients: list[Tensor]) -> list[float]:
        """loss, nll, tokens and gradient norm (before scaling) of this update over all processes, the seconds of
        process 0, and whether any process wants to stop: one reduction, one wait for the device."""
        assert self._sums is not None
        sharded = dist.is_initialized() and isinstance(self.trainer.strategy, FSDPStrategy)
        square = get_total_norm(gradients).double().square() if gradients else self._sums.new_zeros(())
        mine = [0.0 if self.trainer.global_rank else self.stopwatch.seconds(), float(self.stop_requested())]
        values = torch.cat([self._sums, square.to(self._sums).view(1), self._sums.new_tensor(mine)])
        self._sums = None
        if self.trainer.world_size > 1:
            if not sharded:
                values[3] /= self.trainer.world_size
            dist.all_reduce(values)
        loss, nll, tokens, square_sum, seconds, stop = values.tolist()
        return [loss, nll, tokens, math.sqrt(square_sum) if square_sum >= 0 else math.nan, seconds, stop]

    def _advance(self, optimizer: Optimizer, loss: float, nll: float, tokens: int, norm: float) -> None:
        progress = self.progress
        progress.update += 1
        progress.skipped_in_row = 0
        progress.target_tokens += tokens
        factor = self.schedule(progress.update, progress.seconds)
        for group, rate in zip(optimizer.param_groups, self._base_rates, strict=True):
            group["lr"] = rate * factor
        progress.learning_rate = self._base_rates[0] * factor
        window = progress.window
        window.loss += loss
        window.nll += nll
        window.tokens += tokens
        window.norm += norm
        window.updates += 1

    def _skipped(self, loss: float, norm: float) -> None:
        progress = self.progress
        progress.skipped += 1
        progress.skipped_in_row += 1
        what, value = ("loss", loss) if not math.isfinite(loss) else ("gradient", norm)
        logger.warning("update %d skipped: its %s is %g", progress.update + 1, what, value)
        if progress.skipped_in_row >= self.max_skipped:
            raise UserError(
                f"training stopped: the {what} was not finite in {progress.skipped_in_row} updates in a row, after "
                f"update {progress.update}; the last checkpoint, if there is one, is from before that\n"
                "Lower optimizer.lr, lengthen schedule.warmup, lower trainer.gradient_clip_val or use "
                "trainer.precision=32-true."
            )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Only what a resumed run needs, as plain values and tensors; Lightning's loop counters are not."""
        states: list[Any] = [random_state()]
        if self.trainer.world_size > 1:
            states = [None] * self.trainer.world_size
            dist.all_gather_object(states, random_state())
        checkpoint.pop("loops", None)
        self.stopwatch.record(self.progress)
        checkpoint["seq2seq"] = {
            **self.inference,
            "corpus": self.corpus,
            "progress": self.progress.state_dict(),
            "schedule": self.schedule.state_dict(),
            "random": states,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        saved = checkpoint["seq2seq"]
        if saved["tokenizers"] != self.inference["tokenizers"]:
            raise UserError(
                "cannot resume: the checkpoint's tokenizers are not those of this corpus and these settings\n"
                "Give the same data and tokenizer to go on, or another run_dir= to start anew."
            )
        if saved.get("corpus", self.corpus) != self.corpus:  # older checkpoints do not tell
            raise UserError(
                "cannot resume: the corpus (some text of training, validation or test) is not what it was\n"
                "Give the same data to go on, or another run_dir= to start anew."
            )
        self.progress.load_state_dict(saved["progress"])
        self.schedule.load_state_dict(saved["schedule"])
        if len(saved["random"]) == self.trainer.world_size:
            self.restored_random_state = saved["random"][self.trainer.global_rank]

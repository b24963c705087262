"""One update: the loss of micro-batches, and the optimizer's step on the gradient of their mean."""

from __future__ import annotations

import logging
import math
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.fabric.strategies.fsdp import FSDPStrategy
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from seq2seq.errors import UserError
from seq2seq.interfaces import Batch, Model
from seq2seq.training.criterion import Criterion
from seq2seq.training.schedule import Schedule
from seq2seq.training.settings import TrainerSettings
from seq2seq.training.state import Stopwatch, TrainingState

logger = logging.getLogger(__name__)

UNIT = 1024.0
"""Losses are divided by this constant before backward, so that float16 gradients stay in range; the update, which
divides by the true number of tokens, takes it out again."""


class TrainingModule(nn.Module):
    """A model with its criterion: the part of training that a strategy (DDP, FSDP) wraps."""

    model: Model

    def __init__(self, model: nn.Module, criterion: Criterion, compile: bool = False) -> None:
        super().__init__()
        self.model = model  # type: ignore[assignment]
        self.criterion = criterion
        self._encode = torch.compile(self.model.encode, dynamic=True) if compile else self.model.encode
        self._decode = torch.compile(self.model.decode, dynamic=True) if compile else self.model.decode

    def forward(
        self, source: Tensor, source_mask: Tensor, target_in: Tensor, target_out: Tensor, target_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute the loss over UNIT, to differentiate, and the batch's loss, plain NLL and tokens, to report."""
        if self.criterion.twice:
            source, source_mask, target_in, target_out, target_mask = (
                each.repeat(2, 1) for each in (source, source_mask, target_in, target_out, target_mask)
            )
        memory = self._encode(source, source_mask)
        decoded = self._decode(target_in, memory, target_mask)
        loss = self.criterion(decoded, self.model.output, target_out, target_mask)
        return loss.loss / UNIT, loss.loss.detach(), loss.nll, loss.tokens


def inputs(batch: Batch, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The arguments of `TrainingModule.forward`, on the device."""
    if device.type != "cpu":
        batch = batch.to(device, non_blocking=True)
    return batch.source, batch.source_mask, batch.target_in, batch.target_out, batch.target_mask


class Updater:
    """Applies updates: each divides the summed gradient by the number of target tokens in all micro-batches of all
    processes, so neither accumulation nor the number of processes changes what is minimized; then clips its norm, sets
    the scheduled rate, and steps. An update whose loss or gradient is not finite is skipped whole, optimizer state
    included; `settings.max_skipped` in a row raise UserError. optimizer: as `fabric.setup_optimizers` returns it.
    """

    def __init__(
        self, fabric: Fabric, optimizer: Any, schedule: Schedule, settings: TrainerSettings, state: TrainingState
    ) -> None:
        self.fabric = fabric
        self.optimizer = optimizer
        self.schedule = schedule
        self.settings = settings
        self.state = state
        self.rates = [float(group["lr"]) for group in optimizer.param_groups]

    def __call__(self, sums: Tensor, watch: Stopwatch, stop: bool) -> bool:
        """Step once. sums (3,) float64: loss, plain NLL and tokens of this process. Return True if any process has
        asked to `stop`."""
        self.fabric.strategy.precision.unscale_gradients(self.optimizer.optimizer)
        parameters = [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
        gradients = [p.grad for p in parameters]
        loss, nll, tokens, norm, self.state.seconds, stopping = self._gather(sums, gradients, watch, stop)
        scale = self.fabric.world_size * UNIT / max(1.0, tokens)
        norm *= scale
        if math.isfinite(loss) and math.isfinite(norm):
            clip = self.settings.gradient_clip_val
            if gradients:
                torch._foreach_mul_(gradients, scale if clip is None else scale * min(1.0, clip / (norm + 1e-6)))
            self._advance(loss, nll, int(tokens), norm)
        else:
            for parameter in parameters:
                parameter.grad = None
            self._skip(loss, norm)
        self.optimizer.step()  # without gradients only the scaler of float16 takes note
        self.optimizer.zero_grad()
        watch.record_cpu()
        return stopping > 0

    def _gather(self, sums: Tensor, gradients: list[Tensor], watch: Stopwatch, stop: bool) -> list[float]:
        """Loss, NLL, tokens and gradient norm (before scaling) over all processes, the seconds of the first process,
        and the number of processes that ask to stop: one reduction, one wait for the device."""
        square = get_total_norm(gradients).double().square() if gradients else sums.new_zeros(())
        seconds = watch.seconds() if self.fabric.is_global_zero else 0.0
        values = torch.cat([sums, square.to(sums).view(1), sums.new_tensor([seconds, float(stop)])])
        if self.fabric.world_size > 1:
            if not isinstance(self.fabric.strategy, FSDPStrategy):  # whose shards add up; elsewhere all have the same
                values[3] /= self.fabric.world_size
            dist.all_reduce(values)
        loss, nll, tokens, square_sum, seconds, stopping = values.tolist()
        return [loss, nll, tokens, math.sqrt(square_sum) if square_sum >= 0 else math.nan, seconds, stopping]

    def _advance(self, loss: float, nll: float, tokens: int, norm: float) -> None:
        state, window = self.state, self.state.window
        state.update += 1
        state.skipped_in_row = 0
        state.target_tokens += tokens
        factor = self.schedule(state.update, state.seconds)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        state.learning_rate = self.rates[0] * factor
        window.loss += loss
        window.nll += nll
        window.tokens += tokens
        window.norm += norm
        window.updates += 1

    def _skip(self, loss: float, norm: float) -> None:
        state = self.state
        state.skipped += 1
        state.skipped_in_row += 1
        what, value = ("loss", loss) if not math.isfinite(loss) else ("gradient", norm)
        logger.warning("update %d skipped: its %s is %g", state.update + 1, what, value)
        if state.skipped_in_row >= self.settings.max_skipped:
            raise UserError(
                f"training stopped: the {what} was not finite in {state.skipped_in_row} updates in a row, after "
                f"update {state.update}; the last checkpoint, if there is one, is from before that\n"
                "Lower optimizer.lr, lengthen schedule.warmup, lower trainer.gradient_clip_val or use "
                "trainer.precision=32-true."
            )

"""Warnings about settings that are possible and hardly meant."""

from __future__ import annotations

import logging
import math
from collections.abc import Sized

from seq2seq.evaluation.languages import tokenizer_advice
from seq2seq.pipeline.job import Job

logger = logging.getLogger(__name__)


def warn(job: Job) -> None:
    """Warn before data are prepared."""
    limits, schedule, data = job.trainer.limits(), job.settings["schedule"], job.data
    if limits.max_steps is not None and schedule.get("warmup", 0) >= limits.max_steps:
        logger.warning(
            "schedule.warmup=%d: with trainer.max_steps=%d the learning rate only rises",
            schedule["warmup"],
            limits.max_steps,
        )
    if "total" in schedule and (limits.max_epochs is not None or limits.max_seconds is not None):
        logger.warning(
            "the learning rate falls until update %d, wherever trainer.max_epochs or max_time end the training; see "
            "schedule=wall_clock and schedule.total",
            schedule["total"],
        )
    tokenize = job.settings["tokenize"]
    if advice := tokenizer_advice(tokenize, data.target_language, ()):
        logger.warning(advice)
    if job.settings["data"].get("tokenized") and tokenize != "none":
        logger.warning("tokenize=%s cuts tokenized text again; papers have tokenize=none lowercase=true", tokenize)
    if job.start is not None:
        logger.info("the tokenizers are those of checkpoint=%s", job.settings["checkpoint"])
    interval = job.trainer.val_check_interval
    if data.streaming and isinstance(interval, float) and (job.trainer.max_epochs is None or interval % 1):
        logger.warning(
            "trainer.val_check_interval=%s: a stream is validated at the end of a pass; for more, give a number of "
            "updates, such as 1000, or a time",
            interval,
        )


def warn_of_late_validation(job: Job, processes: int) -> None:
    """Warn that training ends before a validation is due, so none can stop it or choose the best checkpoint. Nothing
    is known of a stream."""
    interval, last = job.trainer.val_check_interval, job.trainer.max_steps
    if not isinstance(interval, float) or last is None:
        return
    loader = job.data.train_loader(0, processes)
    if not isinstance(loader, Sized):
        return
    due = math.ceil(len(loader) * interval / job.trainer.accumulate_grad_batches)
    if due > last:
        logger.warning(
            "trainer.val_check_interval=%s: its %d updates are more than trainer.max_steps=%d, so there is one "
            "validation, at the end; for more, give a number of updates, such as %d, or a time",
            interval,
            due,
            last,
            max(1, last // 10),
        )

"""What can be said about a training before it begins, so that nothing impossible is found out hours later."""

from __future__ import annotations

import logging
import math
from collections.abc import Sized
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from seq2seq.commands.config_check import check_data
from seq2seq.commands.configuration import build
from seq2seq.commands.scoring import test_splits
from seq2seq.commands.starting import create_model, training_data
from seq2seq.errors import UserError
from seq2seq.search.penalties import NO_COVERAGE

if TYPE_CHECKING:
    from seq2seq.data.translation_data import TranslationData
    from seq2seq.inference.bundle import Bundle

logger = logging.getLogger(__name__)

UNSPACED = {"ja": "ja-mecab", "km": "char", "ko": "ko-mecab", "lo": "char", "my": "char", "th": "char", "zh": "zh"}
"""Languages whose words sacreBLEU's default does not find, and what does."""


def check_values(config: DictConfig, start: Bundle | None) -> None:
    """Build all that needs no data, and let the model look at one word, so that impossible values are refused before
    anything is prepared."""
    import torch

    from seq2seq.data.corpora import check_split
    from seq2seq.evaluation.metrics import bleu_metric
    from seq2seq.training.criterion import Criterion
    from seq2seq.training.optimizer import create_optimizer, parameter_kinds

    check_data(config)
    if not 0 <= config.seed < 2**32:
        raise UserError(f"seed={config.seed} must be at least 0 and below 2 ** 32")
    bleu_metric(config.tokenize)
    Criterion(config.label_smoothing)
    tiny = {"source_vocabulary": 8, "target_vocabulary": 8, "joint_vocabulary": config.tokenizer.joint}
    model = create_model(config, start, start.tokenizers.vocabulary() if start else tiny).eval()
    word, mask = torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.bool)
    with torch.no_grad():
        model.decode(word, model.encode(word, mask), mask)
    built = {
        name: build(config[name])
        for name in ("tokenizer", "optimizer", "trainer", "callbacks", "schedule", "search", "logger")
    }
    if built["search"].ranking.coverage_penalty and not model.attends:
        raise UserError(NO_COVERAGE)
    create_optimizer(built["optimizer"], model.named_parameters(), parameter_kinds(model))
    data = training_data(config, start)
    check_split(data.corpus, "valid")
    test_splits(data, config.test_splits)


def check_lengths(config: DictConfig, model: Any, data: TranslationData) -> None:
    """Refuse prepared data with a segment for which a model with learned positions (`interfaces.Model`) has too few."""
    way_out = "Raise model.maximum_positions, lower data.max_length (of training), or take other positions."
    unforeseen = data.streaming or build(config.tokenizer).sampling
    for side, longest in (("source", model.longest_source), ("target", model.longest_output)):
        if longest is None:
            continue
        if unforeseen and data.filters.max_length > longest:
            raise UserError(
                f"data.max_length={data.filters.max_length}: the model has positions for {longest} {side} tokens\n"
                f"{way_out}"
            )
        for split in {*data.sizes} & {"train", "valid", *test_splits(data, config.test_splits)}:
            length, row = data.longest(split, side)
            if length > longest:
                raise UserError(
                    f"{split}: segment {row + 1} has {length} {side} tokens, and the model positions for {longest}\n"
                    f"{way_out}"
                )


def warn(config: DictConfig, data: TranslationData) -> None:
    """Say what can be meant so, and hardly is."""
    limits, schedule = build(config.trainer).limits(), config.schedule
    if limits.max_steps is not None and schedule.get("warmup", 0) >= limits.max_steps:
        logger.warning(
            "schedule.warmup=%d: with trainer.max_steps=%d the learning rate only rises",
            schedule.warmup,
            limits.max_steps,
        )
    if "total" in schedule and (limits.max_epochs is not None or limits.max_seconds is not None):
        logger.warning(
            "the learning rate falls until update %d, wherever trainer.max_epochs or max_time end the training; see "
            "schedule=wall_clock and schedule.total",
            schedule.total,
        )
    language, tokenize = data.target_language, config.tokenize
    better = UNSPACED.get(language.partition("-")[0].partition("_")[0].lower())
    if better and tokenize in ("13a", "intl"):
        logger.warning("tokenize=%s finds few words in %s: see tokenize=%s", tokenize, language, better)
    if config.data.get("tokenized") and tokenize != "none":
        logger.warning("tokenize=%s cuts tokenised text again; papers have tokenize=none lowercase=true", tokenize)
    trainer = build(config.trainer)
    interval = trainer.val_check_interval
    if data.streaming and isinstance(interval, float) and (trainer.max_epochs is None or interval % 1):
        logger.warning(
            "trainer.val_check_interval=%s: a stream is validated at the end of a pass; for more, give a number of "
            "updates, such as 1000, or a time",
            interval,
        )


def warn_of_late_validation(config: DictConfig, data: TranslationData, processes: int) -> None:
    """Say that trainer.max_steps is reached before a validation is due, so that none can end training or choose the
    best checkpoint. Of a stream that is not known."""
    trainer = build(config.trainer)
    interval, last = trainer.val_check_interval, trainer.max_steps
    if not isinstance(interval, float) or last is None:
        return
    loader = data.train_loader(0, processes)
    if not isinstance(loader, Sized):
        return
    due = math.ceil(len(loader) * interval / trainer.accumulate_grad_batches)
    if due > last:
        logger.warning(
            "trainer.val_check_interval=%s: its %d updates are more than trainer.max_steps=%d, so there is one "
            "validation, at the end; for more, give a number of updates, such as %d, or a time",
            interval,
            due,
            last,
            max(1, last // 10),
        )

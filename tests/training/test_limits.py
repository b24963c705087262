"""Ends of training, times of validation, settings that cannot work."""

import math
from pathlib import Path

import pytest
from toy import ToyData, history, toy_fit

from seq2seq.errors import UserError
from seq2seq.training.settings import Limits, TrainerSettings, ValidationInterval
from seq2seq.training.state import TrainingState


def test_epochs_end_training(tmp_path: Path) -> None:
    result = toy_fit(tmp_path, trainer={"max_steps": None, "max_epochs": 2, "val_check_interval": 1.0})
    batches = len(ToyData().train_loader().sampler)
    assert (result.state.update, result.state.epochs, result.state.stopped) == (2 * batches, 2.0, "max_epochs")
    assert [line["update"] for line in history(tmp_path) if "valid_bleu" in line] == [batches, 2 * batches]


def test_an_update_begun_in_the_last_epoch_is_finished(tmp_path: Path) -> None:
    batches = len(ToyData().train_loader().sampler)
    settings = {"max_steps": None, "max_epochs": 1, "accumulate_grad_batches": 2}
    assert toy_fit(tmp_path, trainer=settings).state.update == math.ceil(batches / 2)
    assert batches % 2 == 1


def test_fraction_of_the_limit() -> None:
    state = TrainingState(update=5, seconds=30.0, loader={"epoch": 0, "consumed": 2, "batches": 10})
    assert Limits(10, None, 40.0).fraction(state) == 0.75
    assert Limits(None, 1, None).fraction(state) == pytest.approx(0.2)
    assert Limits(5).reached(5, 0.2, 30.0) == "max_steps"
    assert Limits(6, 1, 30.0).reached(5, 0.2, 30.0) == "max_time"
    assert Limits(6, 1, 31.0).reached(5, 0.2, 30.0) is None


def test_validation_intervals() -> None:
    def due(interval, update, epochs=0.0, seconds=0.0):
        epoch, rest = divmod(round(epochs * 100), 100)
        loader = {"epoch": epoch, "consumed": rest, "batches": 100}
        return ValidationInterval(interval).due(
            TrainingState(update=update, seconds=seconds, loader=loader, validated_epochs=1.0, validated_seconds=50.0)
        )

    assert due(10, 20) and not due(10, 21)
    assert due(1.0, 1, epochs=2.0) and not due(1.0, 1, epochs=1.99)
    assert due(0.25, 1, epochs=1.25) and not due(0.25, 1, epochs=1.24)
    assert due(0.4, 1, epochs=1.2)  # though 1.2 / 0.4 is 2.9999999999999996
    assert due("00:00:00:10", 1, seconds=60.0) and not due("00:00:00:10", 1, seconds=59.0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("accumulate_grad_batches", 0),
        ("max_steps", 0),
        ("gradient_clip_val", -1.0),
        ("val_check_interval", 0),
        ("val_check_interval", "soon"),
        ("max_time", "1h"),
        ("max_time", "00:00:00:00"),
        ("strategy", "ddp_spawn"),
        ("threads", 0),
        ("matmul_precision", "low"),
    ],
)
def test_impossible_settings_are_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(UserError, match=key):
        TrainerSettings(**{"max_steps": 1, key: value})


@pytest.mark.parametrize("matmul", ["auto", "onednn"])
def test_products_of_onednn_in_a_compiled_model_are_refused(matmul: str) -> None:
    with pytest.raises(UserError, match=f"trainer.matmul={matmul} has no effect on a compiled model"):
        TrainerSettings(max_steps=1, matmul=matmul, compile=True)


def test_training_without_an_end_is_refused() -> None:
    with pytest.raises(UserError, match="max_steps"):
        TrainerSettings()


def test_an_accelerator_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"trainer\.accelerator=tpu"):
        toy_fit(tmp_path, trainer={"accelerator": "tpu"})

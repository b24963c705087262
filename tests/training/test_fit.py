"""The update and what training tells of it, against plain loops and hand-worked numbers."""

import logging
import math
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from precision import assert_float32_close, float32_approx
from toy import ToyData, history, toy_fit, toy_model

from seq2seq.errors import UserError
from seq2seq.interfaces import Batch
from seq2seq.training.checkpoint import model_weights, read_checkpoint
from seq2seq.training.criterion import Criterion
from seq2seq.training.schedule import Constant, InverseSqrt
from seq2seq.training.state import TrainingState, random_state, restore_random_state, seed_everything

SGD = partial(torch.optim.SGD, lr=0.5)


def plain_update(model: torch.nn.Module, batches: list[Batch], rate: float, clip: float | None) -> float:
    """One step of gradient descent on the mean smoothed loss of all tokens; returns the gradient's norm."""
    model.train()
    total, tokens = torch.zeros(()), 0
    for batch in batches:
        features = model.decode(batch.target_in, model.encode(batch.source, batch.source_mask), batch.target_mask)
        logits = model.logits(features.features)[batch.target_mask]
        target = batch.target_out[batch.target_mask]
        total = total + F.cross_entropy(logits, target, label_smoothing=0.1, reduction="sum")
        tokens += len(target)
    gradients = torch.autograd.grad(total / tokens, list(model.parameters()))
    norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter -= rate * gradient * (min(1.0, clip / norm) if clip else 1.0)
    return norm


def test_r_drop_without_dropout_trains_as_usual(tmp_path: Path) -> None:
    trained = []
    for name, weight in (("without", 0.0), ("with", 5.0)):
        run = tmp_path / name
        toy_fit(run, model=toy_model(dropout=0.0), trainer={"max_steps": 10}, criterion=Criterion(0.1, weight))
        trained.append(history(run)[-1])
    assert trained[1]["target_tokens"] == trained[0]["target_tokens"]
    assert trained[1]["valid_perplexity"] == float32_approx(trained[0]["valid_perplexity"])


def test_r_drop_brings_predictions_under_dropout_together(tmp_path: Path) -> None:
    def disagreement(weight: float) -> float:
        model = toy_model(dropout=0.5)
        toy_fit(tmp_path / str(weight), model=model, criterion=Criterion(0.0, weight))
        torch.manual_seed(1)
        batch = next(iter(ToyData().train_loader()))
        one, other = (
            model.train().logits(
                model.decode(batch.target_in, model.encode(batch.source, batch.source_mask), batch.target_mask).features
            )
            for _ in range(2)
        )
        return F.kl_div(one.log_softmax(-1), other.log_softmax(-1), reduction="batchmean", log_target=True).item()

    assert disagreement(5.0) < 0.7 * disagreement(0.0)


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_updates_are_those_of_a_plain_loop(tmp_path: Path, clip: float | None, accumulate: int) -> None:
    settings = {
        "max_steps": 4,
        "accumulate_grad_batches": accumulate,
        "gradient_clip_val": clip,
        "log_every_n_steps": 1,
        "val_check_interval": 100,
    }
    toy_fit(tmp_path, model=toy_model(dropout=0.0), optimizer=SGD, schedule=Constant(), trainer=settings)
    model = toy_model(dropout=0.0)
    loader = iter(ToyData().train_loader())
    norms = [plain_update(model, [next(loader) for _ in range(accumulate)], 0.5, clip) for _ in range(4)]
    lines = [line for line in history(tmp_path) if "gradient_norm" in line]
    assert [line["gradient_norm"] for line in lines] == float32_approx(norms)
    trained = model_weights(read_checkpoint(tmp_path / "checkpoints/last.ckpt")["state_dict"])
    for name, value in model.state_dict().items():
        assert_float32_close(trained[name], value)


def test_history_tells_the_plain_nll_rates_and_tokens(tmp_path: Path) -> None:
    settings = {"max_steps": 3, "log_every_n_steps": 1, "val_check_interval": 100}
    result = toy_fit(tmp_path, model=toy_model(dropout=0.0), schedule=InverseSqrt(2), trainer=settings)
    first, second, third = (line for line in history(tmp_path) if "train_loss" in line)
    batch = next(iter(ToyData().train_loader()))
    model = toy_model(dropout=0.0)
    logits = model.logits(
        model.decode(batch.target_in, model.encode(batch.source, batch.source_mask), batch.target_mask).features
    )[batch.target_mask]
    target = batch.target_out[batch.target_mask]
    assert first["train_nll"] == float32_approx(F.cross_entropy(logits, target).item())
    assert first["train_loss"] == float32_approx(F.cross_entropy(logits, target, label_smoothing=0.1).item())
    assert first["train_perplexity"] == pytest.approx(math.exp(first["train_nll"]))
    assert first["target_tokens"] == len(target)
    rates = [line["learning_rate"] for line in (first, second, third)]
    assert rates == pytest.approx([3e-3 / 2, 3e-3, 3e-3 * math.sqrt(2 / 3)])
    assert result.state.target_tokens == third["target_tokens"] > second["target_tokens"]
    assert result.summary()["updates"] == 3


def poison(model: torch.nn.Module, calls: set[int], factor: float = math.nan) -> torch.nn.Module:
    """The model with its features times `factor` at the given training batches, counted from 1."""
    decode, seen = model.decode, [0]

    def poisoned(target_in, memory, target_mask=None):
        output = decode(target_in, memory, target_mask)
        seen[0] += model.training
        return type(output)(output.features * factor) if model.training and seen[0] in calls else output

    model.decode = poisoned
    return model


def test_an_update_that_is_not_finite_is_skipped_whole(tmp_path: Path) -> None:
    """Batches 2 and 3 are poisoned, so three updates see batches 1, 4 and 5."""
    settings = {"max_steps": 3, "val_check_interval": 100, "gradient_clip_val": None}
    model = poison(toy_model(dropout=0.0), {2, 3})
    result = toy_fit(tmp_path, model=model, optimizer=SGD, schedule=Constant(), trainer=settings)
    assert (result.state.update, result.state.skipped) == (3, 2)
    plain = toy_model(dropout=0.0)
    for number, batch in zip(range(1, 6), ToyData().train_loader(), strict=False):
        if number not in (2, 3):
            plain_update(plain, [batch], 0.5, None)
    trained = model_weights(read_checkpoint(tmp_path / "checkpoints/last.ckpt")["state_dict"])
    for name, value in plain.state_dict().items():
        assert_float32_close(trained[name], value)


def test_a_gradient_that_is_not_finite_is_enough(tmp_path: Path) -> None:
    model = toy_model()
    weight, calls = next(model.parameters()), [0]

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return gradient * (math.inf if calls[0] == 2 else 1.0)

    weight.register_hook(spoil)
    result = toy_fit(tmp_path, model=model, trainer={"max_steps": 4})
    assert (result.state.update, result.state.skipped) == (4, 1)


def test_too_many_in_a_row_end_training_with_the_last_good_state(tmp_path: Path) -> None:
    model = poison(toy_model(), set(range(13, 100)))
    with pytest.raises(UserError, match=r"3 updates in a row.*the last checkpoint, if there is one"):
        toy_fit(tmp_path, model=model, trainer={"max_skipped": 3, "max_steps": 50})
    saved = read_checkpoint(tmp_path / "checkpoints/last.ckpt")
    assert saved["seq2seq"]["state"]["update"] == 10
    assert all(value.isfinite().all() for value in model_weights(saved["state_dict"]).values())


def test_divergence_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"max_steps": 12, "log_every_n_steps": 4, "val_check_interval": 100}
    toy_fit(tmp_path / "healthy", trainer=settings)
    assert "diverges" not in caplog.text
    model = poison(toy_model(), set(range(9, 13)), factor=100.0)
    toy_fit(tmp_path / "ill", model=model, trainer=settings)
    assert caplog.text.count("update 12: training diverges") == 1


@pytest.mark.parametrize("log_every", [5, 100])
def test_divergence_from_the_first_update_on_is_reported(
    log_every: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rate = partial(torch.optim.SGD, lr=1e6)
    settings = {"max_steps": 10, "log_every_n_steps": log_every, "val_check_interval": 10}
    toy_fit(tmp_path, optimizer=rate, schedule=Constant(), trainer=settings)
    assert "update 10: training diverges, NLL" in caplog.text


def test_weight_decay_spares_vectors(tmp_path: Path) -> None:
    optimizer = partial(torch.optim.SGD, lr=1.0, weight_decay=1.0)
    settings = {"max_steps": 1, "gradient_clip_val": 1e-9}
    toy_fit(tmp_path, optimizer=optimizer, schedule=Constant(), trainer=settings)
    trained = model_weights(read_checkpoint(tmp_path / "checkpoints/last.ckpt")["state_dict"])
    for name, value in toy_model().state_dict().items():
        expected = torch.zeros_like(value) if value.ndim > 1 else value
        assert_float32_close(trained[name], expected)


def test_random_states_come_back() -> None:
    import random

    import numpy as np

    def draw() -> tuple:
        return torch.rand(2).tolist(), np.random.rand(), np.random.randn(), random.random(), random.gauss(0, 1)

    seed_everything(4)
    draw()
    state = random_state()
    first = draw()
    restore_random_state(state)
    assert draw() == first
    seed_everything(4, rank=1)
    other = draw()
    seed_everything(4)
    assert draw() != other


def test_bfloat16_trains(tmp_path: Path) -> None:
    result = toy_fit(tmp_path, model=toy_model("transformer"), trainer={"precision": "bf16-mixed", "max_steps": 10})
    assert result.state.update == 10 and result.state.skipped == 0
    weights = model_weights(read_checkpoint(tmp_path / "checkpoints/last.ckpt")["state_dict"])
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in weights.values())


def test_coarser_products_end_with_the_training(tmp_path: Path) -> None:
    seen = []

    class Watch:
        def on_update_end(self, state: TrainingState) -> None:
            seen.append(torch.get_float32_matmul_precision())

    toy_fit(tmp_path, trainer={"matmul_precision": "medium", "max_steps": 2}, callbacks=(Watch(),))
    assert set(seen) == {"medium"} and torch.get_float32_matmul_precision() == "highest"


@pytest.mark.slow
def test_it_learns_to_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "seq2seq")
    result = toy_fit(
        tmp_path,
        model=toy_model("transformer", dropout=0.0),
        data=ToyData(train=400, max_tokens=300),
        optimizer=partial(torch.optim.Adam, lr=1e-2),
        schedule=InverseSqrt(30),
        trainer={"max_steps": 150, "val_check_interval": 150},
    )
    assert result.state.best_score is not None and result.state.best_score > 50
    assert f"BLEU {result.state.best_score:.2f}" in caplog.text

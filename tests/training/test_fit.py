"""The update, validation and the end of training, against plain loops and hand-worked numbers."""

import json
import logging
import math
from functools import partial
from pathlib import Path

import pytest
import sacrebleu
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from toy import Letters, ToyData, toy_fit, toy_model

from seq2seq.data.batching import collate
from seq2seq.errors import UserError
from seq2seq.interfaces import Batch
from seq2seq.search import GreedySearch, decode_batch
from seq2seq.training.checkpoint import model_weights, read_checkpoint
from seq2seq.training.limits import Limits, ValidationInterval
from seq2seq.training.observers import Observer
from seq2seq.training.progress import Progress, random_state, restore_random_state, seed_everything
from seq2seq.training.schedule import Constant, InverseSqrt
from seq2seq.training.trainer import TrainerSettings, TrainingResult
from seq2seq.training.validation import Validation, Validator, likelihood

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


def history(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "history.jsonl").read_text().splitlines()]


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
    loader = iter(ToyData().train_dataloader())
    norms = [plain_update(model, [next(loader) for _ in range(accumulate)], 0.5, clip) for _ in range(4)]
    lines = [line for line in history(tmp_path) if "gradient_norm" in line]
    assert [line["gradient_norm"] for line in lines] == pytest.approx(norms, rel=1e-4)
    trained = model_weights(read_checkpoint(tmp_path / "checkpoints/last.ckpt"))
    for name, value in model.state_dict().items():
        torch.testing.assert_close(trained[name], value, rtol=1e-4, atol=1e-6)


def test_history_tells_the_plain_nll_rates_and_tokens(tmp_path: Path) -> None:
    settings = {"max_steps": 3, "log_every_n_steps": 1, "val_check_interval": 100}
    result = toy_fit(tmp_path, model=toy_model(dropout=0.0), schedule=InverseSqrt(2), trainer=settings)
    first, second, third = (line for line in history(tmp_path) if "train_loss" in line)
    batch = next(iter(ToyData().train_dataloader()))
    model = toy_model(dropout=0.0)
    logits = model.logits(
        model.decode(batch.target_in, model.encode(batch.source, batch.source_mask), batch.target_mask).features
    )[batch.target_mask]
    target = batch.target_out[batch.target_mask]
    assert first["train_nll"] == pytest.approx(F.cross_entropy(logits, target).item(), rel=1e-5)
    assert first["train_loss"] == pytest.approx(F.cross_entropy(logits, target, label_smoothing=0.1).item(), rel=1e-5)
    assert first["train_perplexity"] == pytest.approx(math.exp(first["train_nll"]))
    assert first["target_tokens"] == len(target)
    rates = [line["learning_rate"] for line in (first, second, third)]
    assert rates == pytest.approx([3e-3 / 2, 3e-3, 3e-3 * math.sqrt(2 / 3)])
    assert result.target_tokens == third["target_tokens"] > second["target_tokens"]
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
    assert (result.updates, result.skipped_updates) == (3, 2)
    plain = toy_model(dropout=0.0)
    for number, batch in zip(range(1, 6), ToyData().train_dataloader(), strict=False):
        if number not in (2, 3):
            plain_update(plain, [batch], 0.5, None)
    trained = model_weights(read_checkpoint(tmp_path / "checkpoints/last.ckpt"))
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(trained[name], value, rtol=1e-4, atol=1e-6)


def test_too_many_in_a_row_end_training_with_the_last_good_state(tmp_path: Path) -> None:
    model = poison(toy_model(), set(range(13, 100)))
    with pytest.raises(UserError, match=r"3 updates in a row.*last\.ckpt"):
        toy_fit(tmp_path, model=model, trainer={"max_skipped": 3, "max_steps": 50})
    saved = read_checkpoint(tmp_path / "checkpoints/last.ckpt")
    assert saved["seq2seq"]["progress"]["update"] == 10
    assert all(value.isfinite().all() for value in model_weights(saved).values())


def test_divergence_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"max_steps": 12, "log_every_n_steps": 4, "val_check_interval": 100}
    toy_fit(tmp_path / "healthy", trainer=settings)
    assert "diverges" not in caplog.text
    model = poison(toy_model(), set(range(9, 13)), factor=100.0)
    toy_fit(tmp_path / "ill", model=model, trainer=settings)
    assert caplog.text.count("update 12: training diverges") == 1


def test_weight_decay_spares_vectors(tmp_path: Path) -> None:
    optimizer = partial(torch.optim.SGD, lr=1.0, weight_decay=1.0)
    settings = {"max_steps": 1, "gradient_clip_val": 1e-9}
    toy_fit(tmp_path, optimizer=optimizer, schedule=Constant(), trainer=settings)
    trained = model_weights(read_checkpoint(tmp_path / "checkpoints/last.ckpt"))
    for name, value in toy_model().state_dict().items():
        expected = torch.zeros_like(value) if value.ndim > 1 else value
        torch.testing.assert_close(trained[name], expected, rtol=0, atol=1e-6)


class Collect(Observer):
    def __init__(self) -> None:
        self.validations: list[tuple[int, Validation]] = []

    def validated(self, progress: Progress, validation: Validation) -> None:
        self.validations.append((progress.update, validation))


class TestValidation:
    def test_is_likelihood_and_bleu_of_each_segment_once(self, tmp_path: Path) -> None:
        collect = Collect()
        data = ToyData(valid=11)
        model = toy_model()
        toy_fit(tmp_path, model=model, data=data, observers=(collect,))
        update, last = collect.validations[-1]
        assert update == 30
        model.eval()
        total, tokens, texts = 0.0, 0, []
        for row, pair in enumerate(data.splits["valid"]):
            batch = collate([pair], [row])
            memory = model.encode(batch.source, batch.source_mask)
            logits = model.logits(model.decode(batch.target_in, memory, batch.target_mask).features)
            total += F.cross_entropy(logits[0], batch.target_out[0], reduction="sum").item()
            tokens += batch.target_out.numel()
            best = decode_batch(model, GreedySearch(), batch.source, batch.source_mask)[0][0]
            texts.append(Letters().decode(best.tokens))
        assert last.nll == pytest.approx(total / tokens, rel=1e-5)
        assert last.hypotheses == texts
        assert last.bleu == pytest.approx(sacrebleu.corpus_bleu(texts, [data.pairs("valid")[1]]).score)

    def test_samples_show_text_and_attention(self) -> None:
        data, model = ToyData(valid=9), toy_model("transformer").eval()
        letters = Letters()
        validator = Validator(
            list(data.evaluation_batches("valid", 100)),
            *data.pairs("valid"),
            GreedySearch(),
            letters.decode,
            letters.pieces,
            letters.pieces,
            samples=3,
        )
        result = validator(model, "cpu")
        assert result is not None and [sample.row for sample in result.samples] == [0, 3, 6]
        for sample in result.samples:
            assert sample.source == data.pairs("valid")[0][sample.row]
            assert sample.source_pieces == [*sample.source.split(), "</s>"]
            assert sample.weights is not None and len(sample.weights) == len(sample.target_pieces)
            assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in sample.weights)
            assert all(len(row) == len(sample.source_pieces) for row in sample.weights)

    def test_likelihood_by_segment(self) -> None:
        data, model = ToyData(valid=5), toy_model().eval()
        alone = {}
        for row, pair in enumerate(data.splits["valid"]):
            alone |= likelihood(model, [collate([pair], [row])])
        together = likelihood(model, [collate(data.splits["valid"], range(5))])
        assert alone.keys() == together.keys() == set(range(5))
        for row, (nll, tokens) in alone.items():
            assert together[row] == (pytest.approx(nll, rel=1e-5), tokens)
            assert tokens == len(data.splits["valid"][row][1]) + 1

    def test_the_best_checkpoint_is_the_best_validation(self, tmp_path: Path) -> None:
        collect = Collect()
        result = toy_fit(tmp_path, observers=(collect,), trainer={"val_check_interval": 5})
        best = max(collect.validations, key=lambda item: (item[1].bleu, -item[1].nll))
        assert (result.best_update, result.best_valid_bleu) == (best[0], best[1].bleu)
        assert result.checkpoint == tmp_path / "checkpoints/best.ckpt"
        assert read_checkpoint(result.checkpoint)["seq2seq"]["progress"]["update"] == best[0]

    def test_patience_ends_training(self, tmp_path: Path) -> None:
        frozen = partial(torch.optim.SGD, lr=0.0)
        settings = {"max_steps": 1000, "val_check_interval": 2}
        result = toy_fit(tmp_path, optimizer=frozen, trainer=settings, callbacks={"patience": 3})
        assert (result.stopped, result.updates, result.best_update) == ("patience", 8, 2)


class TestAveraging:
    def fit(self, run_dir: Path, rate: float, collect: Collect) -> TrainingResult:
        return toy_fit(
            run_dir,
            model=toy_model("transformer", dropout=0.0),
            data=ToyData(train=400, max_tokens=200),
            optimizer=partial(torch.optim.Adam, lr=rate),
            schedule=Constant(),
            trainer={"max_steps": 60, "val_check_interval": 10},
            callbacks={"average_last": 3},
            observers=(collect,),
        )

    def test_the_mean_of_the_last_is_exported_when_it_is_better(self, tmp_path: Path) -> None:
        """At a constant high rate the iterates jump about, and their mean is the better model."""
        collect = Collect()
        result = self.fit(tmp_path, 0.01, collect)
        files = sorted((tmp_path / "checkpoints/average").glob("*"))
        assert [int(path.stem) for path in files] == [40, 50, 60]
        assert result.averaged and result.checkpoint.name == "averaged.ckpt"
        assert result.best_valid_bleu is not None
        assert result.best_valid_bleu > max(validation.bleu for _, validation in collect.validations)
        averaged = read_checkpoint(result.checkpoint)
        weights = [load_file(path) for path in files]
        for name, value in model_weights(averaged).items():
            torch.testing.assert_close(value, sum(each[name] for each in weights) / 3)
        assert averaged["seq2seq"]["tokenizers"] == {"tokenizer": b"letters\x00\xff"}

    def test_and_not_when_it_is_not(self, tmp_path: Path) -> None:
        """At a rate of zero the mean is no better than any."""
        collect = Collect()
        result = self.fit(tmp_path, 0.0, collect)
        assert not result.averaged and result.checkpoint.name == "best.ckpt"
        assert not (tmp_path / "checkpoints/averaged.ckpt").exists()


class TestLimits:
    def test_epochs(self, tmp_path: Path) -> None:
        result = toy_fit(tmp_path, trainer={"max_steps": None, "max_epochs": 2, "val_check_interval": 1.0})
        batches = len(ToyData().train_dataloader().sampler)
        assert (result.updates, result.epochs, result.stopped) == (2 * batches, 2.0, "max_epochs")
        assert [line["update"] for line in history(tmp_path) if "valid_bleu" in line] == [batches, 2 * batches]

    def test_an_update_begun_in_the_last_epoch_is_finished(self, tmp_path: Path) -> None:
        batches = len(ToyData().train_dataloader().sampler)
        settings = {"max_steps": None, "max_epochs": 1, "accumulate_grad_batches": 2}
        assert toy_fit(tmp_path, trainer=settings).updates == math.ceil(batches / 2)
        assert batches % 2 == 1

    def test_fraction(self) -> None:
        progress = Progress(update=5, seconds=30.0, loader={"epoch": 0, "consumed": 2, "batches": 10})
        assert Limits(10, None, 40.0).fraction(progress) == 0.75
        assert Limits(None, 1, None).fraction(progress) == pytest.approx(0.2)
        assert Limits(5).reached(progress) == "max_steps"
        assert Limits(6, 1, 30.0).reached(progress) == "max_time"
        assert Limits(6, 1, 31.0).reached(progress) is None

    def test_validation_intervals(self) -> None:
        def due(interval, update, epochs=0.0, seconds=0.0):
            epoch, rest = divmod(round(epochs * 100), 100)
            loader = {"epoch": epoch, "consumed": rest, "batches": 100}
            return ValidationInterval(interval).due(
                Progress(update=update, seconds=seconds, loader=loader, validated_epochs=1.0, validated_seconds=50.0)
            )

        assert due(10, 20) and not due(10, 21)
        assert due(1.0, 1, epochs=2.0) and not due(1.0, 1, epochs=1.99)
        assert due(0.25, 1, epochs=1.25) and not due(0.25, 1, epochs=1.24)
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
    ],
)
def test_impossible_settings_are_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(UserError, match=key):
        TrainerSettings(**{"max_steps": 1, key: value})


def test_training_without_an_end_is_refused() -> None:
    with pytest.raises(UserError, match="max_steps"):
        TrainerSettings()


def test_an_accelerator_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"trainer\.accelerator=tpu"):
        toy_fit(tmp_path, trainer={"accelerator": "tpu"})


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
    assert result.updates == 10 and result.skipped_updates == 0
    weights = model_weights(read_checkpoint(tmp_path / "checkpoints/last.ckpt"))
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in weights.values())


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
    assert result.best_valid_bleu is not None and result.best_valid_bleu > 50
    assert f"BLEU {result.best_valid_bleu:.2f}" in caplog.text

"""A run that is killed or stopped, and started again, is the run that was never touched."""

import os
import signal
from pathlib import Path

import pytest
import torch
from toy import ToyData, ToyTokenizers, everything, toy_fit, toy_model

from seq2seq.errors import UserError
from seq2seq.kernels import product
from seq2seq.kernels.product import Product, products_of
from seq2seq.training.checkpoint import read_checkpoint, write_checkpoint
from seq2seq.training.loop import TrainingResult
from seq2seq.training.schedule import Plateau
from seq2seq.training.signals import TrainingInterrupted
from seq2seq.training.state import TrainingState


class StopAt:
    """Sends this process a signal after an update, or in the validation after it."""

    def __init__(self, update: int, number: int = signal.SIGTERM) -> None:
        self.at, self.number = update, number

    def on_update_end(self, state: TrainingState) -> None:
        if state.update == self.at:
            os.kill(os.getpid(), self.number)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("update", "saved", "validated"), [(3, 4, 0), (10, 10, 0)], ids=["between validations", "in a validation"]
)
def test_stopped_by_sigterm_it_goes_on_as_if_never_stopped(
    tmp_path: Path, update: int, saved: int, validated: int
) -> None:
    with pytest.raises(TrainingInterrupted, match="SIGTERM") as caught:
        toy_fit(tmp_path / "stopped", callbacks=(StopAt(update),))
    assert caught.value.exit_code == 75
    state = read_checkpoint(tmp_path / "stopped/checkpoints/last.ckpt")["seq2seq"]["state"]
    assert (state["update"], state["validated_update"]) == (saved, validated)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    toy_fit(tmp_path / "stopped")
    toy_fit(tmp_path / "whole")
    assert everything(tmp_path / "stopped") == everything(tmp_path / "whole")


def test_ctrl_c_saves_too(tmp_path: Path) -> None:
    with pytest.raises(TrainingInterrupted, match="SIGINT") as caught:
        toy_fit(tmp_path, callbacks=(StopAt(5, signal.SIGINT),))
    assert caught.value.exit_code == 130
    assert read_checkpoint(tmp_path / "checkpoints/last.ckpt")["seq2seq"]["state"]["update"] == 6


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    first = toy_fit(tmp_path)
    before = (tmp_path / "checkpoints/last.ckpt").read_bytes(), (tmp_path / "history.jsonl").read_bytes()
    second = toy_fit(tmp_path)
    assert (second.state.update, second.state.best_score) == (first.state.update, first.state.best_score)
    assert before == ((tmp_path / "checkpoints/last.ckpt").read_bytes(), (tmp_path / "history.jsonl").read_bytes())


@pytest.mark.slow
def test_a_higher_limit_goes_on(tmp_path: Path) -> None:
    toy_fit(tmp_path / "two", trainer={"max_steps": 20})
    assert toy_fit(tmp_path / "two", trainer={"max_steps": 30}).state.update == 30
    toy_fit(tmp_path / "one", trainer={"max_steps": 30})
    assert everything(tmp_path / "two") == everything(tmp_path / "one")


@pytest.mark.slow
def test_the_plateau_schedule_is_taken_up_too(tmp_path: Path) -> None:
    def fit(name: str, steps: int) -> None:
        schedule = Plateau(warmup=2, factor=0.5, patience=1)
        toy_fit(tmp_path / name, schedule=schedule, trainer={"max_steps": steps, "val_check_interval": 3})

    fit("two", 15)
    fit("two", 30)
    fit("one", 30)
    assert read_checkpoint(tmp_path / "one/checkpoints/last.ckpt")["seq2seq"]["schedule"]["rate"] < 1
    assert everything(tmp_path / "two") == everything(tmp_path / "one")


def test_time_counts_over_resumes(tmp_path: Path) -> None:
    first = toy_fit(tmp_path, trainer={"max_steps": 20})
    second = toy_fit(tmp_path, trainer={"max_steps": 40})
    assert second.state.seconds > first.state.seconds
    last = toy_fit(tmp_path, trainer={"max_steps": 10**6, "max_time": "00:00:00:01", "val_check_interval": 1000})
    assert last.state.stopped == "max_time" and last.state.seconds >= 1


class OtherTokenizers(ToyTokenizers):
    def state(self) -> dict[str, bytes]:
        return {"tokenizer": b"other"}


def test_other_tokenizers_are_refused(tmp_path: Path) -> None:
    toy_fit(tmp_path, trainer={"max_steps": 5})
    data = ToyData()
    data.tokenizers = OtherTokenizers()
    with pytest.raises(UserError, match="tokenizers"):
        toy_fit(tmp_path, data=data)


@pytest.mark.slow
def test_other_data_are_refused(tmp_path: Path) -> None:
    toy_fit(tmp_path, trainer={"max_steps": 5})
    with pytest.raises(UserError, match="cannot resume"):
        toy_fit(tmp_path, data=ToyData(train=300))


@pytest.mark.slow
def test_weights_alone_are_not_resumed(tmp_path: Path) -> None:
    toy_fit(tmp_path, trainer={"max_steps": 5})
    path = tmp_path / "checkpoints/last.ckpt"
    write_checkpoint({name: read_checkpoint(path)[name] for name in ("state_dict", "seq2seq")}, path)
    with pytest.raises(UserError, match=r"cannot resume: .*last\.ckpt holds weights alone"):
        toy_fit(tmp_path)


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    path.unlink()  # It may be a link to another.
    if how == "one bit":
        content[len(content) // 2] ^= 1
    path.write_bytes({"cut short": content[: len(content) // 2], "one bit": content, "empty": b""}[how])


DAMAGE = ["cut short", "one bit", "empty"]


@pytest.mark.slow
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_last_checkpoint_costs_only_the_way_back_to_the_best(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"max_steps": 20, "val_check_interval": 5}
    toy_fit(tmp_path / "whole", trainer=settings)
    toy_fit(tmp_path / "hurt", trainer={**settings, "max_steps": 14})
    folder = tmp_path / "hurt" / "checkpoints"
    best = read_checkpoint(folder / "best.ckpt")["seq2seq"]["state"]["update"]
    assert best < read_checkpoint(folder / "last.ckpt")["seq2seq"]["state"]["update"] == 14
    damage(folder / "last.ckpt", how)
    toy_fit(tmp_path / "hurt", trainer=settings)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert str(folder / "last.ckpt") in warning and warning.endswith("resuming from best.ckpt instead")
    assert everything(tmp_path / "hurt") == everything(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("how", DAMAGE)
def test_where_all_checkpoints_are_damaged_the_run_is_refused(tmp_path: Path, how: str) -> None:
    toy_fit(tmp_path, trainer={"max_steps": 5})
    for name in ("last.ckpt", "best.ckpt"):
        damage(tmp_path / "checkpoints" / name, how)
    with pytest.raises(UserError, match=r"last\.ckpt.*best\.ckpt.*\nRemove .*checkpoints to train from the beginning"):
        toy_fit(tmp_path)


@pytest.mark.slow
def test_validation_leaves_no_trace_on_training(tmp_path: Path) -> None:
    often = toy_fit(tmp_path / "often", trainer={"val_check_interval": 3})
    never = toy_fit(tmp_path / "never", trainer={"val_check_interval": 1000})
    assert often.state.update == never.state.update
    states = [read_checkpoint(tmp_path / name / "checkpoints/last.ckpt")["state_dict"] for name in ("often", "never")]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0] if key.startswith("model."))


@pytest.mark.slow
def test_the_transformer_resumes_bit_for_bit(tmp_path: Path) -> None:
    for name, stops in (("two", (13, 20)), ("one", (20,))):
        for stop in stops:
            toy_fit(tmp_path / name, model=toy_model("transformer"), trainer={"max_steps": stop})
    first, second = (
        read_checkpoint(tmp_path / name / "checkpoints/last.ckpt")["state_dict"] for name in ("one", "two")
    )
    assert all(torch.equal(first[key], second[key]) for key in first if key.startswith("model."))


@pytest.mark.slow
def test_a_resumed_run_takes_the_checkpoints_choice_of_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    choices: list[list[Product]] = []
    monkeypatch.setattr(product, "BLOCK", 8)
    monkeypatch.setattr("seq2seq.training.settings.available", lambda: True)
    monkeypatch.setattr("seq2seq.training.settings.measure", lambda _: choices.pop())
    every = products_of(toy_model("transformer"))

    def fit(name: str, steps: int, *measured: list[Product]) -> TrainingResult:
        choices[:] = measured
        with caplog.at_level("INFO"):
            return toy_fit(
                tmp_path / name, model=toy_model("transformer"), trainer={"max_steps": steps, "matmul": "auto"}
            )

    fit("two", 20, every)
    caplog.clear()
    result = fit("two", 30, [])  # another measurement, that is not asked for
    assert choices == [[]] and result.state.onednn == [list(each) for each in every]
    assert result.summary()["onednn"][0] == str(every[0]) == "forward 12x16 from 8 rows"
    assert caplog.text.count("forward 12x16 from 8 rows") == 1
    fit("one", 30, every)
    assert everything(tmp_path / "two") == everything(tmp_path / "one")
    if product.available():
        fit("torch", 30, [])
        assert everything(tmp_path / "torch") != everything(tmp_path / "one")
    assert not product._onednn


def test_products_are_torchs_own_by_default(tmp_path: Path) -> None:
    assert toy_fit(tmp_path).summary()["onednn"] == []

"""Muon against the singular value decomposition, the equations in float64, and torch's Adam."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from toy import everything, toy_fit, toy_model

from seq2seq.errors import UserError
from seq2seq.training.muon import Muon, orthogonalised
from seq2seq.training.optimizer import create_optimizer, parameter_kinds


@pytest.mark.parametrize("shape", [(24, 24), (16, 40), (40, 16)])
def test_orthogonalised_keeps_singular_vectors_and_evens_out_their_values(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1)).double()
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    values = values.clamp(min=0.05 * values.max())
    result = orthogonalised((left * values) @ right)
    middle = left.t() @ result @ right.t()
    torch.testing.assert_close(middle, middle.diagonal().diag(), rtol=0, atol=1e-9)
    assert middle.diagonal().min() > 0.65 and middle.diagonal().max() < 1.25


def test_matrices_move_by_the_equations_in_float64() -> None:
    generator = np.random.default_rng(2)
    start, gradients = generator.normal(size=(6, 2, 5)), generator.normal(size=(4, 6, 2, 5))
    parameter = torch.nn.Parameter(torch.tensor(start))
    optimizer = Muon([{"params": [parameter], "matrices": True}], lr=0.1, momentum=0.9, weight_decay=0.5)
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        optimizer.step()

    expected, momentum = start.reshape(6, 10), np.zeros((6, 10))
    for gradient in gradients.reshape(4, 6, 10):
        momentum = 0.9 * momentum + gradient
        x = gradient + 0.9 * momentum
        x = x / np.linalg.norm(x)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x - 4.7750 * gram @ x + 2.0315 * gram @ gram @ x
        expected = expected * (1 - 0.1 * 0.5) - 0.1 * 0.2 * np.sqrt(10) * x
    np.testing.assert_allclose(parameter.detach().numpy().reshape(6, 10), expected, atol=1e-6)


def test_other_groups_move_as_adam_moves_them() -> None:
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(7, 3, generator=generator).double()
    mine, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    settings = {"lr": 0.02, "betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0.1}
    optimizers = Muon([{"params": [mine]}], **settings), torch.optim.AdamW([theirs], **settings)
    for _ in range(5):
        gradient = torch.randn(7, 3, generator=generator).double()
        for parameter, optimizer in zip((mine, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_maps_and_tables_and_vectors_are_told_apart(kind: str) -> None:
    model = toy_model(kind)
    optimizer = create_optimizer(Muon, model.named_parameters(), parameter_kinds(model))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    maps, tables, vectors = (
        {names[id(parameter)] for parameter in group["params"]} for group in optimizer.param_groups
    )
    assert [group["matrices"] for group in optimizer.param_groups] == [True, False, False]
    assert maps | tables | vectors == set(names.values())
    assert tables and all("embed" in name or name == "output.weight" for name in tables)
    assert not any("embed" in name for name in maps)
    assert all(parameter.ndim == 1 for name, parameter in model.named_parameters() if name in vectors)


@pytest.mark.slow
def test_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    optimizer = partial(Muon, lr=0.01)
    whole = toy_fit(tmp_path / "whole", optimizer=optimizer, trainer={"max_steps": 20})
    toy_fit(tmp_path / "parts", optimizer=optimizer, trainer={"max_steps": 8})
    parts = toy_fit(tmp_path / "parts", optimizer=optimizer, trainer={"max_steps": 20})
    assert whole.state.update == parts.state.update == 20
    left = [everything(tmp_path / name)["last.ckpt"] for name in ("whole", "parts")]
    assert left[0]["state_dict"] == left[1]["state_dict"]
    assert left[0]["optimizer"] == left[1]["optimizer"]


@pytest.mark.parametrize(
    ("key", "value"), [("lr", -1.0), ("momentum", 1.0), ("weight_decay", float("nan")), ("betas", (0.9,))]
)
def test_bad_settings_are_refused(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(UserError, match=rf"{key} must be .*\n.*keys under optimizer"):
        toy_fit(tmp_path, optimizer=partial(Muon, **{"lr": 0.1, key: value}))


def test_flattened_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="fsdp"):
        Muon([{"params": [torch.nn.Parameter(torch.zeros(9))], "matrices": True}])


def test_a_third_beta_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"betas must be two numbers, got \[0.9, 0.98, 0.99\]"):
        toy_fit(tmp_path, optimizer=partial(torch.optim.Adam, lr=0.1, betas=(0.9, 0.98, 0.99)))

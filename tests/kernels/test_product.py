"""Products by oneDNN against float64, and the cases that are left to torch."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from precision import assert_float32_close
from torch import Tensor

from seq2seq.kernels import product
from seq2seq.kernels.cross_entropy import cross_entropy_reference, fused_cross_entropy
from seq2seq.kernels.product import KINDS, Linear, Product, linear, measure, onednn_products, products_of
from seq2seq.models import create_transformer

needs_onednn = pytest.mark.skipif(not product.available(), reason="this build of torch has no oneDNN")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the left operands that oneDNN gets, in blocks of 16 rows."""
    seen: list[tuple[int, ...]] = []
    original = product._by_onednn

    def count(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
        seen.append(tuple(left.shape))
        return original(left, right, bias)

    monkeypatch.setattr(product, "_by_onednn", count)
    monkeypatch.setattr(product, "BLOCK", 16)
    return seen


def everything(*shapes: tuple[int, int]) -> list[Product]:
    return [Product(kind, *shape, many) for shape in shapes for kind in KINDS for many in (False, True)]


@pytest.fixture
def given() -> Iterator[None]:
    with onednn_products(everything((24, 7), (7, 24))):
        yield


def problem(rows: tuple[int, ...], outputs: int, inputs: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((*rows, inputs), (outputs, inputs), (outputs,))
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


@needs_onednn
@pytest.mark.parametrize("rows", [(16,), (40,), (5, 17)], ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), [(24, 7), (7, 24)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_linear_by_onednn_equals_float64(
    calls: list, given: None, rows: tuple[int, ...], outputs: int, inputs: int, with_bias: bool
) -> None:
    found, expected = [], []
    for dtype, results in ((torch.float32, found), (torch.float64, expected)):
        x, weight, bias = problem(rows, outputs, inputs, dtype)
        parameters = [x, weight, bias] if with_bias else [x, weight]
        result = linear(*parameters)
        results += [result, *torch.autograd.grad(result.square().sum(), parameters)]
    assert len(calls) == 3 * (torch.Size(rows).numel() // 16)
    assert_float32_close(found, [each.float() for each in expected])


@needs_onednn
def test_oneDNN_gets_blocks_of_one_number_of_rows(calls: list, given: None) -> None:
    x, weight, _ = problem((75,), 24, 7)
    linear(x, weight).sum().backward()
    assert calls == [(16, 7)] * 4 + [(16, 24)] * 4 + [(7, 16)] * 4


@needs_onednn
def test_the_result_may_be_changed_in_place(calls: list, given: None) -> None:
    x, weight, bias = problem((40,), 24, 7)
    F.relu(linear(x, weight, bias), inplace=True).sum().backward()
    gradient = weight.grad
    weight.grad = None
    F.relu(F.linear(x, weight, bias)).sum().backward()
    assert_float32_close(gradient, weight.grad)


@needs_onednn
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_fused_cross_entropy_by_onednn_equals_the_reference_in_float64(calls: list, smoothing: float) -> None:
    target = torch.randint(24, (40,), generator=torch.Generator().manual_seed(3))
    found, expected = [], []
    with onednn_products(everything((24, 7))):
        parameters = problem((40,), 24, 7)
        loss, _ = fused_cross_entropy(*parameters, target, smoothing, chunk=17 * 24)
        found += [loss, *torch.autograd.grad(loss, parameters)]
    parameters = problem((40,), 24, 7, torch.float64)
    loss, _ = cross_entropy_reference(*parameters, target, smoothing)
    expected += [loss, *torch.autograd.grad(loss, parameters)]
    assert len(calls) == 6
    assert_float32_close(found, [each.float() for each in expected])


@pytest.mark.parametrize("case", ["float64", "autocast", "few rows", "another shape", "no operator", "outside"])
def test_linear_falls_back_to_torch(calls: list, given: None, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    x, weight, bias = problem(
        (15 if case == "few rows" else 40,), 24, 9 if case == "another shape" else 7,
        torch.float64 if case == "float64" else torch.float32,
    )  # fmt: skip
    if case == "no operator":
        monkeypatch.setattr(product, "available", lambda: False)
    chosen = [] if case == "outside" else everything((24, 7))
    with onednn_products(chosen), torch.autocast("cpu", torch.bfloat16, enabled=case == "autocast"):
        result = linear(x, weight, bias)
        result.sum().backward()
        torch.testing.assert_close(result, F.linear(x, weight, bias), rtol=0, atol=0)
    assert not calls


def test_compiled_graphs_hold_torchs_own_product(calls: list, given: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    linear(*problem((40,), 24, 7)).sum().backward()
    assert not calls


def test_the_choice_ends_with_its_block() -> None:
    with pytest.raises(KeyError), onednn_products(everything((24, 7))):
        raise KeyError
    assert not product._onednn


@pytest.mark.parametrize(("seconds_per_row", "kept"), [(0.5, True), (0.9, False), (2.0, False)])
def test_measure_keeps_what_onednn_does_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, seconds_per_row: float, kept: bool
) -> None:
    clock = 0.0

    def spend(rows: Tensor, seconds: float) -> None:
        nonlocal clock
        clock += len(rows) * seconds

    def by_torch(rows: Tensor, weight: Tensor, out: Tensor) -> None:
        spend(rows, 1.0)

    def by_onednn(rows: Tensor, weight: Tensor, bias: None = None) -> Tensor:
        spend(rows, seconds_per_row)
        return rows @ weight.t()

    monkeypatch.setattr(product, "_by_onednn", by_onednn)
    monkeypatch.setattr(product, "available", lambda: True)
    monkeypatch.setattr(product.time, "perf_counter", lambda: clock)
    monkeypatch.setattr(torch, "mm", by_torch)
    one = Product("input", 24, 7, False)
    assert measure([one]) == [one] * kept


@needs_onednn
def test_measure_times_both_ways_and_draws_nothing(calls: list) -> None:
    before = torch.get_rng_state()
    products = everything((24, 7))
    assert set(measure(products)) <= set(products)
    assert calls and torch.equal(before, torch.get_rng_state())


def test_a_models_products_are_those_of_its_layers() -> None:
    model = create_transformer(50, 50, True, 16, 1, heads=2, feedforward_width=24)
    shapes = {(one.outputs, one.inputs) for one in products_of(model)}
    assert shapes == {(16, 16), (32, 16), (48, 16), (24, 16), (16, 24), (50, 16)}


def test_linear_has_the_weights_of_torchs_layer() -> None:
    assert Linear(3, 4).state_dict().keys() == torch.nn.Linear(3, 4).state_dict().keys()

"""The product x W^T + b and its gradients, by torch's own matrix product or oneDNN's, whichever is faster.

torch multiplies float32 matrices with MKL, which reaches half the speed that some processors allow (AMD's with
AVX-512); oneDNN is in every build of torch for x86. The faster one depends on processor, threads and shape, so it is
measured. A measurement may come out differently the next time, and the results of the two differ in the last bits. The
default is therefore torch's own product, with which one seed gives one result; `measure` is used only on request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

BLOCK = 512
"""Rows passed to oneDNN at once. It compiles and keeps a program for every shape, so each weight has one number of
rows; rows that do not fill a block are left to torch."""
LARGEST = 2**21
"""Most elements on a block's wider side; a wide weight, such as an output layer's, gets fewer rows."""
MANY = 4
"""Blocks of `BLOCK` rows from which a product counts as `many`, which is measured separately."""
GAIN = 1.15
"""Speedup from which oneDNN is chosen."""
REPETITIONS = 5

Shape = tuple[int, int]
"""Numbers of outputs and inputs of a weight."""


class Product(NamedTuple):
    """One class of products with a weight (outputs, inputs), over few or `many` blocks of rows.

    kind: "forward" x W^T, "input" g W or "weight" g^T x, for x (N, inputs) and g (N, outputs).
    """

    kind: str
    outputs: int
    inputs: int
    many: bool

    def __str__(self) -> str:
        rows = block_rows(self.outputs, self.inputs) * (MANY if self.many else 1)
        return f"{self.kind} {self.outputs}x{self.inputs} from {rows} rows"


KINDS = ("forward", "input", "weight")

_onednn: frozenset[Product] = frozenset()


@contextmanager
def onednn_products(products: Iterable[Product]) -> Iterator[None]:
    """Compute these products with oneDNN inside the context; like torch's matmul precision, for the whole process."""
    global _onednn
    before, _onednn = _onednn, frozenset(products) if available() else frozenset()
    try:
        yield
    finally:
        _onednn = before


def available() -> bool:
    """Return True if this build of torch has oneDNN's product."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def block_rows(outputs: int, inputs: int) -> int:
    return max(1, min(BLOCK, LARGEST // max(outputs, inputs)))


class Linear(nn.Linear):
    """`nn.Linear` that multiplies with `linear`."""

    def forward(self, inputs: Tensor) -> Tensor:
        return linear(inputs, self.weight, self.bias)

    def weight_shapes(self) -> list[Shape]:
        return [(self.out_features, self.in_features)]


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """inputs (..., K), weight (N, K), bias (N,) -> (..., N), as `F.linear`. Differentiable once."""
    if not (_onednn and _applies(inputs) and _applies(weight)):
        return F.linear(inputs, weight, bias)
    outputs: Tensor = _Linear.apply(inputs, weight, bias)
    return outputs


def _applies(tensor: Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and tensor.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        outputs = inputs.new_empty(*inputs.shape[:-1], len(weight))  # no view, so that it may be changed in place
        forward_product(inputs.reshape(-1, inputs.shape[-1]), weight, bias, outputs.view(-1, len(weight)))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        inputs, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        need_inputs, need_weight, need_bias = ctx.needs_input_grad
        return (
            input_product(rows, weight).view(inputs.shape) if need_inputs else None,
            weight_product(rows, inputs.reshape(-1, inputs.shape[-1])) if need_weight else None,
            rows.sum(0) if need_bias else None,
        )


def forward_product(rows: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """rows (N, K), weight (M, K), bias (M,) -> (N, M), written to `out` if it is given; without gradients."""
    out = rows.new_empty(len(rows), len(weight)) if out is None else out
    done = 0
    for part in _blocks("forward", rows, *weight.shape):
        out[part] = _by_onednn(rows[part], weight, bias)
        done = part.stop
    if done < len(rows):
        if bias is None:
            torch.mm(rows[done:], weight.t(), out=out[done:])
        else:
            torch.addmm(bias, rows[done:], weight.t(), out=out[done:])
    return out


def input_product(gradient: Tensor, weight: Tensor) -> Tensor:
    """gradient (N, M) of `forward_product`'s result, weight (M, K) -> gradient (N, K) of its rows."""
    out = gradient.new_empty(len(gradient), weight.shape[1])
    done = 0
    for part in _blocks("input", gradient, *weight.shape):
        out[part] = _by_onednn(gradient[part], weight.t())
        done = part.stop
    if done < len(gradient):
        torch.mm(gradient[done:], weight, out=out[done:])
    return out


def weight_product(gradient: Tensor, rows: Tensor, total: Tensor | None = None) -> Tensor:
    """gradient (N, M) of `forward_product`'s result, rows (N, K) -> gradient (M, K) of its weight, added to `total` if
    it is given."""
    outputs, inputs = gradient.shape[1], rows.shape[1]
    done = 0
    for part in _blocks("weight", gradient, outputs, inputs):
        if outputs > inputs:  # the left operand is copied, so it is the narrower one
            product = _by_onednn(rows[part].t(), gradient[part].t()).t()
        else:
            product = _by_onednn(gradient[part].t(), rows[part].t())
        total = product.contiguous() if total is None else total.add_(product)
        done = part.stop
    if total is None:
        return gradient.t() @ rows
    return total.addmm_(gradient[done:].t(), rows[done:]) if done < len(rows) else total


def _blocks(kind: str, rows: Tensor, outputs: int, inputs: int) -> list[slice]:
    """The blocks of rows (N, ...) that oneDNN is to multiply; the rows after them are left to torch."""
    if not _onednn or not _applies(rows):
        return []
    size = block_rows(outputs, inputs)
    count = len(rows) // size
    if Product(kind, outputs, inputs, size == BLOCK and count >= MANY) not in _onednn:
        return []
    return [slice(start, start + size) for start in range(0, count * size, size)]


def _by_onednn(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left (N, K), right (M, K), bias (M,) -> (N, M)."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")
    return product


def products_of(model: nn.Module) -> list[Product]:
    """List all classes of products in a model, whose layers name the shapes of their weights in `weight_shapes`."""
    named: list[Callable[[], list[Shape]]] = [getattr(module, "weight_shapes", list) for module in model.modules()]
    shapes = {shape for of_layer in named for shape in of_layer()}
    return [
        Product(kind, *shape, many)
        for shape in sorted(shapes)
        for kind in KINDS
        for many in ((False, True) if block_rows(*shape) == BLOCK else (False,))
    ]


@torch.no_grad()
def measure(products: Iterable[Product]) -> list[Product]:
    """Time each class of products both ways, and return those that oneDNN computes faster by `GAIN` every time."""
    return [product for product in products if available() and _wins(product)]


def _wins(product: Product) -> bool:
    size = block_rows(product.outputs, product.inputs)
    count = size * (MANY if product.many else 1) + size // 4  # some blocks and a remainder
    rows, gradient = torch.ones(count, product.inputs), torch.ones(count, product.outputs)
    weight, bias = torch.ones(product.outputs, product.inputs), torch.ones(product.outputs)
    work: dict[str, Callable[[], Tensor]] = {
        "forward": lambda: forward_product(rows, weight, bias),
        "input": lambda: input_product(gradient, weight),
        "weight": lambda: weight_product(gradient, rows),
    }

    def seconds(products: list[Product]) -> float:
        with onednn_products(products):
            began = time.perf_counter()
            work[product.kind]()
            return time.perf_counter() - began

    seconds([]), seconds([product])  # warm-up: both build what they keep
    return all(seconds([]) >= GAIN * seconds([product]) for _ in range(REPETITIONS))

"""Floating-point operations: what a training step's matrix products take, and how fast the machine multiplies."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

SIZE = 2048
"""Size of the square matrices that measure the machine's rate: 50 MB in all, far beyond any cache."""

RULE = (
    "2 m n k for each (m, k) x (k, n) matrix product that forward and backward execute (convolutions, attention and "
    "matrix-vector products too), padding included; nothing for elementwise work, softmax, dropout or the optimizer"
)


def matmul_rate(device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32, repeats: int = 7) -> float:
    """Floating-point operations a second of a large square product; the median of several."""
    left, right = (torch.randn(SIZE, SIZE, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(left)
    times = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        torch.mm(left, right, out=out)
        if out.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return 2 * SIZE**3 / sorted(times[2:])[repeats // 2]


def count_flops(work: Callable[[], Any]) -> int:
    """Operations of `work`'s matrix products, by RULE."""
    with FlopCounterMode(display=False, custom_mapping=more_formulas()) as counter:
        work()
    return int(counter.get_total_flops())


def more_formulas() -> dict[Any, Any]:
    """Formulas missing from torch's counter: in-place operations, matrix-vector products, the CPU's fused attention."""
    aten = torch.ops.aten
    own = {
        "addmm_": _added_product,
        "baddbmm_": _added_product,
        "mv": _vector_product,
        "addmv": _added_vector_product,
        "addmv_": _added_vector_product,
        "_scaled_dot_product_flash_attention_for_cpu": _attention,
        "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    }
    return {getattr(aten, name): formula for name, formula in own.items() if hasattr(aten, name)}


def _added_product(total: Any, left: Any, right: Any, **_: Any) -> int:
    """left (.., m, k), right (.., k, n)."""
    return 2 * prod(left) * int(right[-1])


def _vector_product(matrix: Any, vector: Any, **_: Any) -> int:
    return 2 * prod(matrix)


def _added_vector_product(total: Any, matrix: Any, vector: Any, **_: Any) -> int:
    return 2 * prod(matrix)


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """query (B, H, Q, d), key (B, H, S, d): Q K^T and its product with V."""
    return 2 * prod(query[:3]) * key[2] * (query[3] + value[3])


def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Q K^T again; the gradients of weights, V, Q and K."""
    return 2 * prod(query[:3]) * key[2] * (3 * query[3] + 2 * value[3])

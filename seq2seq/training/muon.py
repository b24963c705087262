"""Muon: orthogonalised momentum for matrices, Adam for the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


class Muon(Optimizer):
    """Parameter groups marked `matrices` move along the nearest orthogonal matrix to their Nesterov momentum (Jordan et
    al. 2024), by `lr` times 0.2 sqrt(larger side), so that entries move about as far as Adam moves them and one rate
    serves both (Liu et al. 2025). All other groups are Adam's, with `betas` and `eps`.

    Parameters of more than two dimensions count as (first, all others). weight_decay is decoupled from the gradient.
    Whole matrices are needed: parameters sharded or flattened by FSDP raise ValueError.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.001,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        weight_decay: float = 0.0,
    ) -> None:
        for name, value in (("lr", lr), ("weight_decay", weight_decay)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0, got {value}")
        if len(betas) != 2:
            raise ValueError(f"betas must be two numbers, got {list(betas)}")
        for name, value in (("momentum", momentum), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
        defaults = {"lr": lr, "momentum": momentum, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "matrices": False})
        if any(p.ndim < 2 for group in self.param_groups if group["matrices"] for p in group["params"]):
            raise ValueError("Muon needs whole matrices, so it does not go with strategy=fsdp")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters and group["weight_decay"]:
                torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            move = self._orthogonal if group["matrices"] else self._adam
            for parameter in parameters:
                move(parameter, parameter.grad, group)
        return loss

    def _orthogonal(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].mul_(group["momentum"]).add_(gradient)
        direction = orthogonalised(torch.add(gradient, momentum, alpha=group["momentum"]).flatten(1))
        rate = group["lr"] * 0.2 * math.sqrt(max(direction.shape))
        parameter.add_(direction.view_as(parameter), alpha=-rate)

    def _adam(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state.update(step=torch.zeros(()), mean=torch.zeros_like(parameter), square=torch.zeros_like(parameter))
        state["step"] += 1
        step, (first, second) = state["step"].item(), group["betas"]
        mean = state["mean"].lerp_(gradient, 1 - first)
        square = state["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        deviation = square.div(1 - second**step).sqrt_().add_(group["eps"])
        parameter.addcdiv_(mean, deviation, value=-group["lr"] / (1 - first**step))


def orthogonalised(matrix: Tensor) -> Tensor:
    """About U V^T of the singular value decomposition U S V^T of a matrix (M, N): five Newton-Schulz steps, which leave
    singular values near 1 where they were not far below the largest (Jordan et al. 2024)."""
    a, b, c = COEFFICIENTS
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.t()
    estimate: Tensor = wide / (wide.norm() + 1e-7)
    for _ in range(ITERATIONS):
        gram = estimate @ estimate.t()
        polynomial = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        estimate = torch.addmm(estimate, polynomial, estimate, beta=a)
    return estimate if wide is matrix else estimate.t()

"""Scores, which rate how well each key answers a query. An alignment turns them into weights.

Every score has `project(keys (B, S, Dk)) -> (B, S, A)`, called once per source, and
`forward(query (B, Q, Dq), projected (B, S, A)) -> (B, Q, S)`. `forward` also takes a window of keys for each query,
projected (B, Q, W, A) -> (B, Q, W).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.kernels.product import Linear


class Score(nn.Module):
    """Base of the scores. A subclass defines `forward`, and `project` if part of its work depends on keys only."""

    def project(self, keys: Tensor) -> Tensor:
        """Do the work that does not depend on the query: keys (B, S, Dk) -> (B, S, A)."""
        return keys

    def forward(self, query: Tensor, projected: Tensor) -> Tensor:
        """query (B, Q, Dq), projected (B, S, A) or (B, Q, W, A) -> scores (B, Q, S) or (B, Q, W)."""
        raise NotImplementedError


class AdditiveScore(Score):
    """Additive score, w_v^T tanh(W_q q + W_k k) (Bahdanau et al. 2015, appendix A.1.2).

    Luong's "concat" score, w_v^T tanh(W [q; k]), is the same function with W = [W_q W_k].
    """

    def __init__(self, query_width: int, key_width: int, width: int):
        super().__init__()
        _require_positive("AdditiveScore", query_width=query_width, key_width=key_width, width=width)
        self.query = Linear(query_width, width, bias=False)
        self.key = Linear(key_width, width, bias=False)
        self.vector = nn.Parameter(torch.empty(width))
        nn.init.uniform_(self.vector, -1 / math.sqrt(width), 1 / math.sqrt(width))

    def project(self, keys: Tensor) -> Tensor:
        projected: Tensor = self.key(keys)
        return projected

    def forward(self, query: Tensor, projected: Tensor) -> Tensor:
        queries, keys = self.query(query).unsqueeze(2), _each_query(projected)
        if queries.dtype in (torch.float16, torch.bfloat16):
            hidden: Tensor = (queries + keys).tanh_()  # (B, Q, S, A)
            return hidden @ self.vector
        # tanh x = 2 sigmoid(2 x) - 1, and on a CPU torch computes a sigmoid in a third of the time of a tanh. Half
        # precision loses too many digits that way.
        twice = torch.add(2 * queries, keys, alpha=2)  # (B, Q, S, A)
        return twice.sigmoid_() @ (2 * self.vector) - self.vector.sum()


class DotScore(Score):
    """Dot product, q^T k (Luong et al. 2015, equation 8), of queries and keys of one width."""

    def forward(self, query: Tensor, projected: Tensor) -> Tensor:
        return _dot(query, projected)


class ScaledDotScore(Score):
    """Scaled dot product, q^T k / sqrt(d) (Vaswani et al. 2017, equation 1).

    The dot product of two d-dimensional vectors with independent entries of unit variance has variance d; the division
    brings it to 1 whatever the width.
    """

    def __init__(self, width: int):
        super().__init__()
        _require_positive("ScaledDotScore", width=width)
        self.scale = 1 / math.sqrt(width)

    def forward(self, query: Tensor, projected: Tensor) -> Tensor:
        return _dot(query * self.scale, projected)


class GeneralScore(Score):
    """Bilinear score, q^T W k (Luong et al. 2015, equation 8, "general"). W k is computed once per source."""

    def __init__(self, query_width: int, key_width: int):
        super().__init__()
        _require_positive("GeneralScore", query_width=query_width, key_width=key_width)
        self.key = Linear(key_width, query_width, bias=False)

    def project(self, keys: Tensor) -> Tensor:
        projected: Tensor = self.key(keys)
        return projected

    def forward(self, query: Tensor, projected: Tensor) -> Tensor:
        return _dot(query, projected)


class GaussianScore(Score):
    """Logarithm of a Gaussian kernel, -|q - k|^2 / (2 width^2) (Nadaraya 1964, Watson 1964).

    With a softmax over it, attention is Nadaraya-Watson kernel regression. `width` is in the units of the keys; if
    `learned`, it is the initial value of a parameter, and stays positive (the parameter is its logarithm).
    """

    def __init__(self, width: float = 1.0, learned: bool = False):
        super().__init__()
        _require_positive("GaussianScore", width=width)
        log_width = torch.tensor(math.log(width))
        self.log_width: Tensor
        if learned:
            self.log_width = nn.Parameter(log_width)
        else:
            self.register_buffer("log_width", log_width, persistent=False)

    @property
    def width(self) -> Tensor:
        return self.log_width.exp()

    def forward(self, query: Tensor, projected: Tensor) -> Tensor:
        _require_same_width(query, projected)
        distance = (query.unsqueeze(2) - _each_query(projected)).square().sum(-1)
        return distance * (-0.5 * torch.exp(-2 * self.log_width))


class UniformScore(Score):
    """Score of 0 for every key: with a softmax, average pooling."""

    def forward(self, query: Tensor, projected: Tensor) -> Tensor:
        return query.new_zeros(query.shape[0], query.shape[1], projected.shape[-2])


def _dot(query: Tensor, projected: Tensor) -> Tensor:
    _require_same_width(query, projected)
    if projected.dim() == 4:
        return torch.matmul(projected, query.unsqueeze(-1)).squeeze(-1)
    return torch.bmm(query, projected.transpose(1, 2))


def _each_query(projected: Tensor) -> Tensor:
    """Give keys an axis for queries: (B, S, A) -> (B, 1, S, A); windows (B, Q, W, A) have one already."""
    return projected if projected.dim() == 4 else projected.unsqueeze(1)


def _require_same_width(query: Tensor, projected: Tensor) -> None:
    if query.shape[-1] != projected.shape[-1]:
        raise UserError(
            f"this score needs queries and keys of one width, got {query.shape[-1]} and {projected.shape[-1]}; "
            "the additive and general scores take two widths"
        )


def _require_positive(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise UserError(f"{owner}: {name} must be positive, got {value}")

"""Step functions (`interfaces.Step`) of models, and the decoding of one padded batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Protocol

import torch
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.interfaces import Hypothesis, Model, Step
from seq2seq.search.options import Search
from seq2seq.search.shortlist import Columns, ListedModel, ListedState, Shortlist


class Stepper(Protocol):
    """Half of a `Model` that a step function needs."""

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor | None]: ...

    def logits(self, features: Tensor, out: Tensor | None = None) -> Tensor: ...


def model_step(model: Stepper) -> Step:
    """Return the model's step function, with log-probabilities instead of features."""
    log_probabilities = LogProbabilities(model)

    def step(tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor | None]:
        features, state, weights = model.step(tokens, state)
        return log_probabilities(features), state, weights

    return step


class LogProbabilities:
    """Log-probabilities of a model: features (N, D) -> (N, V) float32.

    Without gradients, a call may overwrite the result of the call before: on a CPU, allocating memory of this size
    costs more than the softmax.
    """

    def __init__(self, model: Stepper) -> None:
        self.model = model
        self._memory: Tensor | None = None

    def __call__(self, features: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return torch.log_softmax(self.model.logits(features).float(), -1)
        memory = self._memory
        if memory is not None:
            memory = memory[: len(features)] if len(memory) >= len(features) else None
        logits = self.model.logits(features, memory).float()
        if memory is None:
            self._memory = logits
        return torch.log_softmax(logits, -1, out=logits)


@dataclass(frozen=True)
class EnsembleState:
    """States of several models."""

    states: tuple[Any, ...]

    def select(self, rows: Tensor) -> EnsembleState:
        return EnsembleState(tuple(state.select(rows) for state in self.states))


def ensemble_step(models: Sequence[Stepper]) -> Step:
    """Return a step function of the mean of probabilities, P(y) = sum_m P_m(y) / M; its state is an `EnsembleState`.

    Weights (N, 1, S) are averaged over each model's heads, then over the models that attend.
    """
    normalized = [LogProbabilities(model) for model in models]

    def step(tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState, Tensor | None]:
        outputs = [model.step(tokens, own) for model, own in zip(models, state.states, strict=True)]
        parts = [of_model(output[0]) for of_model, output in zip(normalized, outputs, strict=True)]
        weights = [output[2].mean(1, keepdim=True) for output in outputs if output[2] is not None]
        return (
            mean_probability(parts),
            EnsembleState(tuple(output[1] for output in outputs)),
            torch.stack(weights).mean(0) if weights else None,
        )

    return step


def mean_probability(log_probs: Sequence[Tensor]) -> Tensor:
    """Return the logarithm of the mean probability, given log-probabilities of one shape."""
    total = log_probs[0]
    for other in log_probs[1:]:
        total = torch.logaddexp(total, other)
    return total - log(len(log_probs)) if len(log_probs) > 1 else total


def start_decoding(
    models: Sequence[Model], source: Tensor, mask: Tensor, columns: Columns | None = None
) -> tuple[Step, Any]:
    """Return the step function and the first state of one model, or of an ensemble, over all tokens or `columns`."""
    if not models:
        raise UserError("no model was given to decode with")
    states: tuple[Any, ...] = tuple(model.start(model.encode(source, mask)) for model in models)
    steppers: Sequence[Stepper] = models
    if columns is not None:
        states = tuple(ListedState(state, columns) for state in states)
        steppers = [ListedModel(model, columns) for model in models]
    if len(steppers) == 1:
        return model_step(steppers[0]), states[0]
    return ensemble_step(steppers), EnsembleState(states)


@torch.inference_mode()
def decode_batch(
    models: Model | Sequence[Model],
    search: Search,
    source: Tensor,
    mask: Tensor,
    *,
    prefix: Sequence[Sequence[int]] | None = None,
    numbers: Sequence[int] | None = None,
    with_weights: bool = False,
    shortlist: Shortlist | None = None,
) -> list[list[Hypothesis]]:
    """Translate one padded batch: source (B, S) ending in EOS, mask (B, S) -> n-best lists, see `Search`.

    Models must be in eval mode; several are an ensemble (`ensemble_step`). Outputs have at most the models'
    `longest_output` tokens. With a shortlist, each sentence has its own vocabulary, over which its log-probabilities
    are normalized.
    """
    models = models if isinstance(models, Sequence) else [models]
    longest = min((model.longest_output for model in models if model.longest_output is not None), default=None)
    columns = None
    if shortlist is not None:
        columns = Columns.of(shortlist.tokens(source, len(models[0].output.weight), prefix))
        prefix = None if prefix is None else columns.find(prefix)
    step, state = start_decoding(models, source, mask, columns)
    found = search(step, state, mask.sum(1), prefix=prefix, numbers=numbers, longest=longest, with_weights=with_weights)
    for own, hypotheses in zip(() if columns is None else columns.tokens.tolist(), found, strict=False):
        for one in hypotheses:
            one.tokens = [own[column] for column in one.tokens]
    return found

"""The recurrence of a GRU with additive attention over a whole target, as one differentiable operation.

The operations of a step are so small that recording one for the backward pass costs about as much as running it. This
loop records nothing: each weight's gradient is one matrix product after the loop, and tanh(W_q s + W_k h) is computed
again in the backward pass, so that memory never holds (T, B, S, A). It is computed as 2 sigmoid(2 x) - 1: on a CPU,
torch computes a sigmoid in a third of the time of a tanh, and the constant -sum(w_v) that the -1 adds to each score
cancels in the softmax.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class AttentiveGRUWeights(NamedTuple):
    """Parameters of `attentive_gru`, gates in the order r, z, n of `torch.nn.GRU`.

    recurrent (3 D, D) and bias (3 D,) act on the state, feed (3 D, C) takes the context into the gates; query (A, D)
    and vector (A,) are W_q and w_v of the additive score.
    """

    recurrent: Tensor
    bias: Tensor
    feed: Tensor
    query: Tensor
    vector: Tensor


class ConditionalWeights(NamedTuple):
    """Parameters that a conditional GRU adds.

    feed_bias (3 D,) joins the context in the second cell's gates; recurrent (3 D, D) and bias (3 D,) are the first
    cell's.
    """

    feed_bias: Tensor
    recurrent: Tensor
    bias: Tensor


def attentive_gru(
    gates: Tensor, hidden: Tensor, keys: Tensor, values: Tensor, mask: Tensor, weights: AttentiveGRUWeights
) -> tuple[Tensor, Tensor]:
    """Attend from the previous state, then recur, for T steps (Bahdanau et al. 2015, appendix A.1.2 and A.2.2):

    a_t = softmax_s(w_v^T tanh(W_q s_{t-1} + k_s)) over the mask, c_t = sum_s a_ts v_s, s_t = GRU(x_t + W_c c_t,
    s_{t-1}).

    gates (T, B, 3 D): the input half of each step's gates, x_t. hidden (B, D): s_0. keys (B, S, A), values (B, S, C),
    mask (B, S) -> states (T, B, D), contexts (T, B, C). Differentiable once.
    """
    states, contexts = _AttentiveGRU.apply(gates, hidden, keys, values, mask, *weights, None, None, None)
    return states, contexts


def conditional_gru(
    gates: Tensor,
    hidden: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    weights: AttentiveGRUWeights,
    conditional: ConditionalWeights,
) -> tuple[Tensor, Tensor]:
    """Recur, attend, recur again, for T steps (the conditional GRU of dl4mt and Nematus, Sennrich et al. 2017):

    s'_t = GRU1(x_t, s_{t-1}), attention from s'_t as in `attentive_gru`, s_t = GRU2(W_c c_t + b, s'_t).

    Shapes are those of `attentive_gru`, whose recurrent weights are the second cell's here.
    """
    states, contexts = _AttentiveGRU.apply(gates, hidden, keys, values, mask, *weights, *conditional)
    return states, contexts


def attentive_gru_reference(
    gates: Tensor, hidden: Tensor, keys: Tensor, values: Tensor, mask: Tensor, weights: AttentiveGRUWeights
) -> tuple[Tensor, Tensor]:
    """Compute `attentive_gru` step by step, with the gradients that autograd derives."""
    states, contexts = [], []
    for inputs in gates.unbind(0):  # (B, 3 D)
        context = _attend_reference(hidden, keys, values, mask, weights)
        hidden = _gru_reference(inputs + context @ weights.feed.t(), hidden, weights.recurrent, weights.bias)
        states.append(hidden)
        contexts.append(context)
    return torch.stack(states), torch.stack(contexts)


def conditional_gru_reference(
    gates: Tensor,
    hidden: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    weights: AttentiveGRUWeights,
    conditional: ConditionalWeights,
) -> tuple[Tensor, Tensor]:
    """Compute `conditional_gru` step by step, with the gradients that autograd derives."""
    states, contexts = [], []
    for inputs in gates.unbind(0):  # (B, 3 D)
        middle = _gru_reference(inputs, hidden, conditional.recurrent, conditional.bias)
        context = _attend_reference(middle, keys, values, mask, weights)
        inputs = context @ weights.feed.t() + conditional.feed_bias
        hidden = _gru_reference(inputs, middle, weights.recurrent, weights.bias)
        states.append(hidden)
        contexts.append(context)
    return torch.stack(states), torch.stack(contexts)


def _attend_reference(
    state: Tensor, keys: Tensor, values: Tensor, mask: Tensor, weights: AttentiveGRUWeights
) -> Tensor:
    """state (B, D) -> context (B, C), zeros where the mask allows nothing."""
    scores = torch.tanh((state @ weights.query.t()).unsqueeze(1) + keys) @ weights.vector  # (B, S)
    attention = torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=1) * mask
    return (attention.unsqueeze(2) * values).sum(1)


def _gru_reference(inputs: Tensor, state: Tensor, recurrent: Tensor, bias: Tensor) -> Tensor:
    """inputs (B, 3 D), state (B, D) -> the next state (B, D)."""
    input_r, input_z, input_n = inputs.chunk(3, dim=1)
    state_r, state_z, state_n = (state @ recurrent.t() + bias).chunk(3, dim=1)
    reset, update = torch.sigmoid(input_r + state_r), torch.sigmoid(input_z + state_z)
    return (1 - update) * torch.tanh(input_n + reset * state_n) + update * state


class _AttentiveGRU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        hidden: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        recurrent: Tensor,
        bias: Tensor,
        feed: Tensor,
        query: Tensor,
        vector: Tensor,
        feed_bias: Tensor | None,
        first: Tensor | None,
        first_bias: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        steps, batch, gate_width = gates.shape
        width = hidden.shape[1]
        states = gates.new_empty(steps + 1, batch, width)
        states[0] = hidden
        contexts = gates.new_empty(steps, batch, values.shape[2])
        attention = gates.new_empty(steps, batch, keys.shape[1])
        candidates = gates.new_empty(steps, batch, width)
        # One product maps the state to the recurrent half of the gates, U s + c, and to twice the query, 2 W_q s. The
        # first two thirds of the gates' columns then become r and z in place.
        own = torch.cat([recurrent, 2 * query])
        keys, vector = 2 * keys, 2 * vector
        own_bias = torch.cat([bias, bias.new_zeros(len(query))])
        halves = gates.new_empty(steps, batch, len(own))
        # The first cell's results, candidates and gates.
        first_steps = 0 if first is None else steps
        between, first_candidates = gates.new_empty(2, first_steps, batch, width).unbind(0)
        first_halves = gates.new_empty(first_steps, batch, gate_width)
        energies = torch.empty_like(keys)
        padding = ~mask
        for t in range(steps):
            state, half, context, weights, inputs = states[t], halves[t], contexts[t], attention[t], gates[t]
            if first is not None and first_bias is not None and feed_bias is not None:
                torch.addmm(first_bias, state, first.t(), out=first_halves[t])
                _recur(inputs, first_halves[t], state, first_candidates[t], between[t])
                state, inputs = between[t], feed_bias
            torch.addmm(own_bias, state, own.t(), out=half)
            torch.add(keys, half[:, None, gate_width:], out=energies).sigmoid_()
            scores = (energies @ vector).masked_fill_(padding, torch.finfo(keys.dtype).min)
            torch.softmax(scores, dim=1, out=weights).masked_fill_(padding, 0)
            torch.bmm(weights.unsqueeze(1), values, out=context.unsqueeze(1))
            inputs = torch.addmm(inputs, context, feed.t())
            _recur(inputs, half[:, :gate_width], state, candidates[t], states[t + 1])
        ctx.save_for_backward(
            *(keys, values, own, feed, vector, states, contexts, attention, halves, candidates),
            *(first, between, first_candidates, first_halves),
        )
        return states[1:], contexts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor, grad_contexts: Tensor) -> tuple[Tensor | None, ...]:
        keys, values, own, feed, vector, states, contexts, attention, halves, candidates, *cell = ctx.saved_tensors
        first, between, first_candidates, first_halves = cell
        steps, batch, width = candidates.shape
        gate_width = 3 * width
        grad_gates = halves.new_empty(steps, batch, gate_width)
        grad_halves = torch.empty_like(halves)
        if first is not None:
            grad_first_gates, grad_first_halves = halves.new_empty(2, steps, batch, gate_width).unbind(0)
        grad_contexts = grad_contexts.clone()
        grad_scores = torch.empty_like(attention)
        grad_vector = torch.zeros_like(vector)
        grad_keys = torch.zeros_like(keys)
        energies = torch.empty_like(keys)
        grad_state = torch.zeros_like(states[0])
        entered = states[:-1] if first is None else between  # the states that attend
        for t in range(steps - 1, -1, -1):
            half, grad_half = halves[t], grad_halves[t]
            grad_query = grad_half[:, gate_width:]
            kept = _recur_backward(
                *(grad_state + grad_states[t], half[:, :gate_width], entered[t], candidates[t]),
                *(grad_gates[t], grad_half[:, :gate_width]),
            )

            grad_context = grad_contexts[t].addmm_(grad_gates[t], feed)
            weighted = torch.bmm(grad_context.unsqueeze(1), values.mT).squeeze(1).mul_(attention[t])
            grad_score = grad_scores[t]
            torch.addcmul(weighted, attention[t], weighted.sum(1, keepdim=True), value=-1, out=grad_score)
            torch.add(keys, half[:, None, gate_width:], out=energies).sigmoid_()
            grad_vector.addmv_(energies.flatten(0, 1).t(), grad_score.flatten())
            energies.addcmul_(energies, energies, value=-1)  # sigmoid' = sigmoid - sigmoid^2
            grad_keys.addcmul_(energies, grad_score.unsqueeze(2))
            grad_query.copy_(torch.bmm(grad_score.unsqueeze(1), energies).squeeze(1).mul_(vector))
            grad_state = kept.addmm_(grad_half, own)
            if first is not None:
                kept = _recur_backward(
                    *(grad_state, first_halves[t], states[t], first_candidates[t]),
                    *(grad_first_gates[t], grad_first_halves[t]),
                )
                grad_state = kept.addmm_(grad_first_halves[t], first)
        grad_keys.mul_(2 * vector)
        grad_values = torch.bmm(attention.permute(1, 2, 0), grad_contexts.transpose(0, 1))
        flat_gates, flat_halves = grad_gates.flatten(0, 1), grad_halves.flatten(0, 1)
        grad_own = flat_halves.t() @ entered.flatten(0, 1)
        grad_bias = flat_halves[:, :gate_width].sum(0)
        grad_feed = flat_gates.t() @ contexts.flatten(0, 1)
        grad_conditional: tuple[Tensor | None, ...] = (None, None, None)
        if first is not None:
            flat_first = grad_first_halves.flatten(0, 1)
            grad_conditional = (flat_gates.sum(0), flat_first.t() @ states[:-1].flatten(0, 1), flat_first.sum(0))
            grad_gates = grad_first_gates
        return (
            *(grad_gates, grad_state, grad_keys, grad_values, None),
            *(grad_own[:gate_width], grad_bias, grad_feed, 2 * grad_own[gate_width:], 2 * grad_vector),
            *grad_conditional,
        )


def _recur(inputs: Tensor, half: Tensor, state: Tensor, candidate: Tensor, result: Tensor) -> None:
    """Run one step of a GRU: inputs and half (B, 3 D), the gates' input and recurrent halves, state (B, D).

    candidate and result (B, D) are written to, and the first two thirds of `half` become r and z.
    """
    width = state.shape[1]
    pair = 2 * width  # columns of r and z
    reset, update = half[:, :pair].add_(inputs[:, :pair]).sigmoid_().chunk(2, dim=1)
    torch.addcmul(inputs[:, pair:], reset, half[:, pair:], out=candidate).tanh_()
    torch.lerp(candidate, state, update, out=result)


def _recur_backward(
    grad_result: Tensor, half: Tensor, state: Tensor, candidate: Tensor, grad_inputs: Tensor, grad_half: Tensor
) -> Tensor:
    """Write the gradients of both halves of `_recur`, return that of the state except for its part through `half`."""
    pair = 2 * state.shape[1]
    reset, update, carried = half.chunk(3, dim=1)
    grad_reset, grad_update, grad_candidate = grad_inputs.chunk(3, dim=1)
    grad_carried = grad_half[:, pair:]
    kept = grad_result * update
    fresh = grad_result - kept
    torch.addcmul(fresh, fresh * candidate, candidate, value=-1, out=grad_candidate)
    torch.mul(state - candidate, update, out=grad_update).mul_(fresh)
    torch.mul(grad_candidate, reset, out=grad_carried)
    torch.mul(grad_carried, carried, out=grad_reset)
    grad_reset.addcmul_(grad_reset, reset, value=-1)
    grad_half[:, :pair] = grad_inputs[:, :pair]
    return kept

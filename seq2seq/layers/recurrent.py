"""Recurrent layers: GRU and LSTM, run over a whole sequence in one fused call or one step at a time.

Both ways use the same parameters, so a decoder whose recurrence depends on attention (one step at a time) and one whose
recurrence does not (one call) are built from the same layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.kernels.dropout import Dropout
from seq2seq.kernels.product import Shape, linear

LayerState = tuple[Tensor, ...]
"""State of one layer: (hidden (N, D),) of a GRU, (hidden (N, D), cell (N, D)) of an LSTM. hidden is the output."""


class RecurrentLayer(Protocol):
    """Recurrent layer of one direction. gate_width is 3 D for a GRU and 4 D for an LSTM."""

    width: int
    gate_width: int
    state_tensors: int

    def __call__(
        self, inputs: Tensor, state: LayerState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        """inputs (B, T, E), state before the first step (None: zeros) -> outputs (B, T, D), state after the last step.

        With `mask` (B, T), padded on the right, the returned state is that of each row's last real position. Outputs
        at padding are unspecified but finite.
        """
        ...

    def gates(self, inputs: Tensor) -> Tensor:
        """Compute the input half of the gates, (..., E) -> (..., gate_width)."""
        ...

    def step(self, gates: Tensor, state: LayerState) -> LayerState:
        """Advance by one step, given the input half of the gates (N, gate_width)."""
        ...


class GRULayer(nn.Module):
    """Gated recurrent unit (Cho et al. 2014) in the form of `torch.nn.GRU`:

    r = sigmoid(W_r x + b_r + U_r h + c_r), z = sigmoid(W_z x + b_z + U_z h + c_z),
    n = tanh(W_n x + b_n + r * (U_n h + c_n)), h' = (1 - z) * n + z * h.
    """

    state_tensors = 1

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.width, self.gate_width = width, 3 * width
        self.rnn = nn.GRU(input_width, width, batch_first=True)
        initialize_gates(self.rnn, gates=3)

    def forward(
        self, inputs: Tensor, state: LayerState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        outputs, final = self.rnn(inputs, None if state is None else state[0].unsqueeze(0))
        return outputs, (final[0] if mask is None else last_real(outputs, mask),)

    def gates(self, inputs: Tensor) -> Tensor:
        weight, _, bias, _ = self.rnn.all_weights[0]
        return linear(inputs, weight, bias)

    def weight_shapes(self) -> list[Shape]:
        return [(self.gate_width, self.rnn.input_size)]

    def step(self, gates: Tensor, state: LayerState) -> LayerState:
        (hidden,) = state
        _, weight, _, bias = self.rnn.all_weights[0]
        recurrent = torch.addmm(bias, hidden, weight.t())
        pair = 2 * self.width  # columns of r and z
        reset, update = torch.sigmoid(gates[:, :pair] + recurrent[:, :pair]).chunk(2, dim=1)
        candidate = torch.tanh(torch.addcmul(gates[:, pair:], reset, recurrent[:, pair:]))
        # Under autocast the gates may have fewer bits than the state, which keeps its type.
        return (torch.lerp(candidate.to(hidden.dtype), hidden, update.to(hidden.dtype)),)


class LSTMLayer(nn.Module):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; forget gate: Gers et al. 2000), as `torch.nn.LSTM`:

    i, f, o = sigmoid(W x + b + U h + c), g = tanh(W_g x + b_g + U_g h + c_g), c' = f * c + i * g, h' = o * tanh(c').
    """

    state_tensors = 2

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.width, self.gate_width = width, 4 * width
        self.rnn = nn.LSTM(input_width, width, batch_first=True)
        initialize_gates(self.rnn, gates=4)
        with torch.no_grad():
            self.rnn.all_weights[0][2][width : 2 * width] = 1.0  # forget little at first (Jozefowicz et al. 2015)

    def forward(
        self, inputs: Tensor, state: LayerState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        initial = None if state is None else (state[0].unsqueeze(0), state[1].unsqueeze(0))
        if mask is None:
            outputs, (hidden, cell) = self.rnn(inputs, initial)
            return outputs, (hidden[0], cell[0])
        packed = nn.utils.rnn.pack_padded_sequence(
            inputs, real_lengths(mask).cpu(), batch_first=True, enforce_sorted=False
        )
        packed_outputs, (hidden, cell) = self.rnn(packed, initial)
        outputs, _ = nn.utils.rnn.pad_packed_sequence(packed_outputs, batch_first=True, total_length=inputs.shape[1])
        return outputs, (hidden[0], cell[0])

    def gates(self, inputs: Tensor) -> Tensor:
        weight, _, bias, _ = self.rnn.all_weights[0]
        return linear(inputs, weight, bias)

    def weight_shapes(self) -> list[Shape]:
        return [(self.gate_width, self.rnn.input_size)]

    def step(self, gates: Tensor, state: LayerState) -> LayerState:
        hidden, cell = state
        _, weight, _, bias = self.rnn.all_weights[0]
        gates = gates + torch.addmm(bias, hidden, weight.t())
        enter, forget, candidate, output = gates.chunk(4, dim=1)  # i, f, g, o
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
        return torch.sigmoid(output) * torch.tanh(cell), cell


LAYERS: dict[str, type[GRULayer] | type[LSTMLayer]] = {"gru": GRULayer, "lstm": LSTMLayer}


def create_layer(cell: str, input_width: int, width: int) -> GRULayer | LSTMLayer:
    """Create a layer by the name of its cell, "gru" or "lstm"."""
    if cell not in LAYERS:
        raise UserError(f"cell={cell!r} is not a recurrent cell; choose one of {', '.join(LAYERS)}.")
    if input_width < 1 or width < 1:
        raise UserError(f"width={width} with inputs of {input_width}: a recurrent layer needs positive widths.")
    return LAYERS[cell](input_width, width)


class RecurrentStack(nn.Module):
    """Layers on top of each other in one direction, with dropout between them. Without layers: the identity."""

    def __init__(self, cell: str, input_width: int, width: int, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        if layers < 0:
            raise UserError(f"layers={layers} must not be negative.")
        self.layers = nn.ModuleList(create_layer(cell, width if i else input_width, width) for i in range(layers))
        self.dropout = Dropout(dropout)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: int) -> RecurrentLayer:
        return cast(RecurrentLayer, self.layers[index])

    def forward(self, inputs: Tensor, states: Sequence[LayerState]) -> tuple[Tensor, tuple[LayerState, ...]]:
        """inputs (B, T, E), the state of each layer -> top outputs (B, T, D), states after the last step."""
        final = []
        for i, state in enumerate(states):
            inputs, state = self[i](self.dropout(inputs) if i else inputs, state)
            final.append(state)
        return inputs, tuple(final)

    def step(self, gates: Tensor, states: Sequence[LayerState]) -> tuple[LayerState, ...]:
        """Advance by one step: input half of the first layer's gates (N, G), state of each layer -> next states."""
        following: list[LayerState] = []
        for i, state in enumerate(states):
            if i:
                gates = self[i].gates(self.dropout(following[-1][0]))
            following.append(self[i].step(gates, state))
        return tuple(following)


class RecurrentEncoder(nn.Module):
    """Encoder of padded sentences in one or both directions; padding affects neither real positions nor final states.

    Each layer's output has `width` features: with `bidirectional`, width / 2 from left to right followed by width / 2
    from right to left. Dropout acts between layers.
    """

    def __init__(
        self, cell: str, input_width: int, width: int, layers: int, bidirectional: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if layers < 1:
            raise UserError(f"layers={layers} must be at least 1.")
        if bidirectional and width % 2:
            raise UserError(f"width={width} must be even: a bidirectional encoder gives half of it to each direction.")
        each = width // 2 if bidirectional else width
        self.forwards, self.backwards = (
            nn.ModuleList(create_layer(cell, width if i else input_width, each) for i in range(count))
            for count in (layers, layers * bidirectional)
        )
        self.dropout = Dropout(dropout)

    def forward(self, inputs: Tensor, mask: Tensor) -> tuple[Tensor, tuple[LayerState, ...]]:
        """inputs (B, S, E), mask (B, S) -> outputs (B, S, D), unspecified at padding, and each layer's final state.

        A final state is that of the left-to-right direction after the last real token, followed on the feature axis by
        that of the right-to-left direction after the first token.
        """
        reading = reversal(mask)
        finals = []
        for i, layer in enumerate(self.forwards):
            if i:
                inputs = self.dropout(inputs)
            outputs, final = layer(inputs, None, mask)
            if self.backwards:
                backward, backward_final = self.backwards[i](reorder(inputs, reading), None, mask)
                outputs = torch.cat([outputs, reorder(backward, reading)], dim=-1)
                final = tuple(torch.cat(pair, dim=-1) for pair in zip(final, backward_final, strict=True))
            inputs = outputs
            finals.append(final)
        return inputs, tuple(finals)


def real_lengths(mask: Tensor) -> Tensor:
    """Count real tokens: mask (B, S), padded on the right -> lengths (B,), at least 1."""
    return mask.sum(dim=1).clamp(min=1)


def last_real(outputs: Tensor, mask: Tensor) -> Tensor:
    """Pick each row's last real position: outputs (B, S, D), mask (B, S) -> (B, D)."""
    return outputs[torch.arange(outputs.shape[0], device=outputs.device), real_lengths(mask) - 1]


def reversal(mask: Tensor) -> Tensor:
    """Return positions (B, S) that read each row's real tokens backwards and leave padding in place.

    mask (B, S) is padded on the right. As a permutation it is its own inverse.
    """
    places = torch.arange(mask.shape[1], device=mask.device)
    lengths = mask.sum(dim=1, keepdim=True)
    return torch.where(mask, lengths - 1 - places, places)


def reorder(sequence: Tensor, positions: Tensor) -> Tensor:
    """Permute each row: sequence (B, S, D), positions (B, S) -> (B, S, D); [b, s] is sequence[b, positions[b, s]]."""
    rows = torch.arange(sequence.shape[0], device=sequence.device).unsqueeze(1) * sequence.shape[1]  # (B, 1)
    return sequence.flatten(0, 1).index_select(0, (rows + positions).flatten()).view_as(sequence)


def initialize_gates(rnn: nn.GRU | nn.LSTM, gates: int) -> None:
    """Make each gate's recurrent matrix orthogonal (Saxe et al. 2014), its input matrix Xavier uniform, biases zero."""
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            if name.startswith("bias"):
                parameter.zero_()
                continue
            for block in parameter.chunk(gates):
                nn.init.orthogonal_(block) if name.startswith("weight_hh") else nn.init.xavier_uniform_(block)

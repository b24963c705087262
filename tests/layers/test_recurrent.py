"""Recurrent layers against torch's own modules."""

import pytest
import torch
from precision import assert_float32_close
from torch import nn

from seq2seq.errors import UserError
from seq2seq.layers.recurrent import RecurrentEncoder, RecurrentStack, create_layer, reorder, reversal

CELLS = ["gru", "lstm"]
LENGTHS = [5, 2, 7, 1]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def padded_batch(width: int, lengths: list[int] = LENGTHS) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return torch.randn(len(lengths), max(lengths), width, dtype=torch.float64), mask


def state_of(layer, rows: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(rows, layer.width, dtype=torch.float64) for _ in range(layer.state_tensors))


@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_layer_step_equals_torch_cell_and_whole_sequence(cell):
    layer = create_layer(cell, 3, 4).double()
    torch_cell = (nn.GRUCell if cell == "gru" else nn.LSTMCell)(3, 4).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    torch_cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.rnn.state_dict().items()})
    inputs, _ = padded_batch(3)
    state = state_of(layer, len(inputs))
    outputs, final = layer(inputs, state)
    for t in range(inputs.shape[1]):
        expected = torch_cell(inputs[:, t], state[0] if cell == "gru" else state)
        state = layer.step(layer.gates(inputs[:, t]), state)
        torch.testing.assert_close(state, (expected,) if cell == "gru" else expected)
        torch.testing.assert_close(outputs[:, t], state[0])
    torch.testing.assert_close(final, state)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layers", [1, 3])
def test_recurrent_stack_equals_torch_module(cell, layers):
    stack = RecurrentStack(cell, 3, 4, layers).double()
    reference = (nn.GRU if cell == "gru" else nn.LSTM)(3, 4, layers, batch_first=True).double()
    reference.load_state_dict(
        {
            name.replace("_l0", f"_l{i}"): value
            for i, layer in enumerate(stack.layers)
            for name, value in layer.rnn.state_dict().items()
        }
    )
    inputs, _ = padded_batch(3)
    states = [state_of(layer, len(inputs)) for layer in stack.layers]
    initial = tuple(torch.stack(tensors) for tensors in zip(*states, strict=True))
    expected, expected_final = reference(inputs, initial[0] if cell == "gru" else initial)
    outputs, final = stack(inputs, states)
    torch.testing.assert_close(outputs, expected)
    expected_final = (expected_final,) if cell == "gru" else expected_final
    for i in range(layers):
        torch.testing.assert_close(final[i], tuple(tensor[i] for tensor in expected_final))
    for t in range(inputs.shape[1]):
        states = stack.step(stack.layers[0].gates(inputs[:, t]), states)
        torch.testing.assert_close(states[-1][0], expected[:, t])


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_encoder_of_a_batch_equals_torch_on_each_sentence(cell, bidirectional):
    encoder = RecurrentEncoder(cell, 3, 4, layers=2, bidirectional=bidirectional).double()
    width = 2 if bidirectional else 4
    reference = (nn.GRU if cell == "gru" else nn.LSTM)(
        3, width, 2, batch_first=True, bidirectional=bidirectional
    ).double()
    directions = {"": encoder.forwards, "_reverse": encoder.backwards}
    reference.load_state_dict(
        {
            name.replace("_l0", f"_l{i}") + suffix: value
            for suffix, layers in directions.items()
            for i, layer in enumerate(layers)
            for name, value in layer.rnn.state_dict().items()
        }
    )
    inputs, mask = padded_batch(3)
    outputs, finals = encoder(inputs, mask)
    for row, length in enumerate(LENGTHS):
        expected, state = reference(inputs[row : row + 1, :length])
        torch.testing.assert_close(outputs[row, :length], expected[0])
        for i, tensors in enumerate(finals):
            for tensor, torch_state in zip(tensors, (state,) if cell == "gru" else state, strict=True):
                each = 2 if bidirectional else 1
                torch.testing.assert_close(tensor[row], torch_state[i * each : (i + 1) * each, 0].flatten())


@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_encoder_ignores_padding_and_gives_it_no_gradient(cell):
    encoder = RecurrentEncoder(cell, 3, 4, layers=2, bidirectional=True).double()
    inputs, mask = padded_batch(3)
    noise = torch.where(mask.unsqueeze(-1), inputs, torch.randn_like(inputs) * 100).requires_grad_()
    outputs, finals = encoder(inputs, mask)
    noisy_outputs, noisy_finals = encoder(noise, mask)
    torch.testing.assert_close(noisy_outputs[mask], outputs[mask])
    torch.testing.assert_close(noisy_finals, finals)
    assert torch.isfinite(noisy_outputs).all()
    (noisy_outputs[mask].sum() + sum(t.sum() for tensors in noisy_finals for t in tensors)).backward()
    assert (noise.grad[~mask] == 0).all() and (noise.grad[mask] != 0).all()


def test_reversal_reverses_real_tokens_only():
    tokens = torch.tensor([[1, 2, 3, 0], [4, 0, 0, 0], [5, 6, 7, 8]])
    positions = reversal(tokens != 0)
    turned = reorder(tokens.unsqueeze(-1), positions).squeeze(-1)
    assert turned.tolist() == [[3, 2, 1, 0], [4, 0, 0, 0], [8, 7, 6, 5]]
    assert torch.equal(reorder(turned.unsqueeze(-1), positions).squeeze(-1), tokens)


@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_layer_starts_with_orthogonal_matrices_and_zero_biases(cell):
    layer = create_layer(cell, 6, 5).double()
    for block in layer.rnn.weight_hh_l0.chunk(layer.gate_width // 5):
        assert_float32_close(block @ block.t(), torch.eye(5, dtype=torch.float64))
    biases = (layer.rnn.bias_ih_l0 + layer.rnn.bias_hh_l0).view(-1, 5)
    assert biases.tolist() == [[1.0 if cell == "lstm" and gate == 1 else 0.0] * 5 for gate in range(len(biases))]


def test_recurrent_stack_drops_out_between_layers_only():
    stack = RecurrentStack("gru", 3, 8, 2, dropout=0.5)
    inputs = torch.randn(4, 5, 3)
    states = [(torch.zeros(4, 8),)] * 2
    assert not torch.equal(stack(inputs, states)[0], stack(inputs, states)[0])
    stack.eval()
    assert torch.equal(stack(inputs, states)[0], stack(inputs, states)[0])
    single = RecurrentStack("gru", 3, 8, 1, dropout=0.5)
    assert torch.equal(single(inputs, states[:1])[0], single(inputs, states[:1])[0])


def test_recurrent_layers_with_impossible_values_are_refused():
    with pytest.raises(UserError, match="cell='elman'"):
        create_layer("elman", 3, 4)
    with pytest.raises(UserError, match="width=5"):
        RecurrentEncoder("gru", 3, 5, 1, bidirectional=True)
    with pytest.raises(UserError, match="layers=0"):
        RecurrentEncoder("gru", 3, 4, 0, bidirectional=True)

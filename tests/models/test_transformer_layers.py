"""Parity with torch's own layers under the same weights."""

import pytest
import torch
from torch import Tensor, nn

from seq2seq.attention.multihead import MultiHeadAttention
from seq2seq.errors import UserError
from seq2seq.models.transformer_layers import (
    FeedForward,
    PostNorm,
    PreNorm,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)

D, H, F = 12, 3, 20


def copy_attention(own: MultiHeadAttention, torchs: nn.MultiheadAttention) -> None:
    torchs.in_proj_weight.data.copy_(own.in_weight)
    torchs.in_proj_bias.data.copy_(own.in_bias)
    torchs.out_proj.load_state_dict(own.output.state_dict())


def copy_rest(own: nn.Module, torchs: nn.Module, residuals: list[str]) -> None:
    torchs.linear1.load_state_dict(own.feed_forward.hidden.state_dict())
    torchs.linear2.load_state_dict(own.feed_forward.output.state_dict())
    for number, residual in enumerate(residuals, start=1):
        getattr(torchs, f"norm{number}").load_state_dict(getattr(own, residual).norm.state_dict())


def randomize(module: nn.Module) -> None:
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)


def assert_same_outputs_and_gradients(own: Tensor, torchs: Tensor, real: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(own[real], torchs[real])
    upstream = torch.randn_like(own) * real.unsqueeze(-1)
    for computed, expected in zip(
        torch.autograd.grad(own, inputs, upstream), torch.autograd.grad(torchs, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(computed, expected)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_encoder_layer_and_gradients_equal_torch(norm):
    torch.manual_seed(0)
    own = TransformerEncoderLayer(D, H, F, norm).double()
    randomize(own)
    torchs = nn.TransformerEncoderLayer(D, H, F, 0.0, batch_first=True, norm_first=norm == "pre").double()
    copy_attention(own.self_attention, torchs.self_attn)
    copy_rest(own, torchs, ["self_attention_residual", "feed_forward_residual"])
    inputs = torch.randn(3, 5, D, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(5) < torch.tensor([[5], [2], [1]])
    assert_same_outputs_and_gradients(own(inputs, mask), torchs(inputs, src_key_padding_mask=~mask), mask, [inputs])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_decoder_layer_and_gradients_equal_torch(norm):
    torch.manual_seed(1)
    own = TransformerDecoderLayer(D, H, F, norm).double()
    randomize(own)
    torchs = nn.TransformerDecoderLayer(D, H, F, 0.0, batch_first=True, norm_first=norm == "pre").double()
    copy_attention(own.self_attention, torchs.self_attn)
    copy_attention(own.cross_attention, torchs.multihead_attn)
    copy_rest(own, torchs, ["self_attention_residual", "cross_attention_residual", "feed_forward_residual"])
    inputs = torch.randn(3, 4, D, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(3, 6, D, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(6) < torch.tensor([[3], [6], [1]])
    future = ~torch.ones(4, 4, dtype=torch.bool).tril()
    expected = torchs(inputs, memory, tgt_mask=future, memory_key_padding_mask=~mask)
    real = torch.ones(3, 4, dtype=torch.bool)
    assert_same_outputs_and_gradients(own(inputs, memory, mask), expected, real, [inputs, memory])


@pytest.mark.parametrize("residual", [PreNorm(4, 0.5), PostNorm(4, 0.5)])
def test_residual_dropout_acts_on_the_sublayer_result(residual):
    torch.manual_seed(2)
    inputs, result = torch.zeros(200, 4), torch.ones(200, 4)
    if isinstance(residual, PreNorm):
        assert set(residual.after(inputs, result).unique().tolist()) == {0.0, 2.0}
    else:
        norm, residual.norm = residual.norm, nn.Identity()
        assert set(residual.after(inputs, result).unique().tolist()) == {0.0, 2.0}
        residual.norm = norm
    residual.eval()
    expected = inputs + result if isinstance(residual, PreNorm) else residual.norm(inputs + result)
    assert torch.equal(residual.after(inputs, result), expected)


def test_feed_forward_equals_the_equation_without_dropout():
    torch.manual_seed(3)
    layer = FeedForward(3, 500, dropout=0.4).double()
    inputs = torch.randn(2, 3, dtype=torch.float64)
    hidden = (inputs @ layer.hidden.weight.T + layer.hidden.bias).clamp(min=0)
    expected = hidden @ layer.output.weight.T + layer.output.bias
    assert not torch.allclose(layer(inputs), expected)
    torch.testing.assert_close(layer.eval()(inputs), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 3, 8), "heads must divide the width"),
        ((12, 3, 0), "positive widths, got 12 and 0"),
        ((12, 3, 8, "pre", 1.0), "dropout"),
        ((12, 3, 8, "pre", 0.0, 0.0, 0.0, -1), "window"),
    ],
)
def test_transformer_layers_with_impossible_values_are_refused(arguments, message):
    for layer in (TransformerEncoderLayer, TransformerDecoderLayer):
        with pytest.raises(UserError, match=message):
            layer(*arguments)

import pytest
import torch
from precision import FLOAT32
from torch import nn

from seq2seq.attention import MultiHeadAttention, Windows, band_mask, causal_mask, lengths_to_mask
from seq2seq.errors import UserError
from seq2seq.layers.positions import RotaryPositions

B, Q, S, D, H = 3, 5, 7, 8, 2
MASK = lengths_to_mask(torch.tensor([7, 4, 1]), S)


def pair(seed=1, dropout=0.0):
    """Ours and torch's own module with the same weights, in float64."""
    torch.manual_seed(seed)
    own = MultiHeadAttention(D, H, dropout).double()
    for bias in (own.in_bias, own.output.bias):
        nn.init.normal_(bias)
    oracle = nn.MultiheadAttention(D, H, batch_first=True).double()
    oracle.load_state_dict(
        {
            "in_proj_weight": own.in_weight,
            "in_proj_bias": own.in_bias,
            "out_proj.weight": own.output.weight,
            "out_proj.bias": own.output.bias,
        }
    )
    return own, oracle


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def parameters(module):
    return [module.in_weight, module.in_bias, module.output.weight, module.output.bias]


def oracle_parameters(module):
    return [module.in_proj_weight, module.in_proj_bias, module.out_proj.weight, module.out_proj.bias]


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("kind", ["self", "masked", "causal", "causal_masked", "each_query", "cross", "cross_masked"])
def test_multihead_attention_and_gradients_equal_torch(kind, need_weights):
    own, oracle = pair()
    query = leaf(B, S, D) if not kind.startswith("cross") else leaf(B, Q, D)
    memory = query if not kind.startswith("cross") else leaf(B, S, D)
    mask = MASK if kind.endswith("masked") else None
    each = None
    if kind == "each_query":
        mask = (torch.rand(B, S, S) < 0.5) | torch.eye(S, dtype=torch.bool)
        each = ~mask.repeat_interleave(H, 0)
    elif kind.startswith("causal"):
        each = ~causal_mask(S)
    output, weights = own(
        query,
        memory if kind.startswith("cross") else None,
        mask,
        causal=kind.startswith("causal"),
        need_weights=need_weights,
    )
    expected, expected_weights = oracle(
        query,
        memory,
        memory,
        key_padding_mask=None if mask is None or mask.dim() == 3 else ~mask,
        attn_mask=each,
        average_attn_weights=False,
    )
    torch.testing.assert_close(output, expected)
    if need_weights:
        assert weights.shape == (B, H, query.shape[1], S)
        torch.testing.assert_close(weights, expected_weights)
    else:
        assert weights is None
    pull = torch.randn_like(output)
    inputs = {query, memory}
    got = torch.autograd.grad((output * pull).sum(), [*inputs, *parameters(own)])
    wanted = torch.autograd.grad((expected * pull).sum(), [*inputs, *oracle_parameters(oracle)])
    for gradient, oracle_gradient in zip(got, wanted, strict=True):
        torch.testing.assert_close(gradient, oracle_gradient)


def test_multihead_attention_of_every_head_equals_the_equation():
    own, _ = pair(2)
    query, memory = leaf(B, Q, D), leaf(B, S, D)
    output, weights = own(query, memory, MASK, need_weights=True)
    w_q, w_k, w_v = own.in_weight.chunk(3)
    b_q, b_k, b_v = own.in_bias.chunk(3)
    d = D // H
    for b in range(B):
        real = int(MASK[b].sum())
        for t in range(Q):
            heads = []
            for h in range(H):
                part = slice(h * d, (h + 1) * d)
                q = w_q[part] @ query[b, t] + b_q[part]
                scores = torch.stack([q @ (w_k[part] @ memory[b, s] + b_k[part]) / d**0.5 for s in range(real)])
                a = torch.softmax(scores, 0)
                torch.testing.assert_close(weights[b, h, t, :real], a)
                assert torch.all(weights[b, h, t, real:] == 0)
                heads.append(sum(a[s] * (w_v[part] @ memory[b, s] + b_v[part]) for s in range(real)))
            expected = own.output.weight @ torch.cat(heads) + own.output.bias
            torch.testing.assert_close(output[b, t], expected)


def test_multihead_attention_passes_gradcheck():
    torch.manual_seed(3)
    query, mask = leaf(2, 3, 4), lengths_to_mask(torch.tensor([3, 2]))
    for own in (MultiHeadAttention(4, 2).double(), MultiHeadAttention(4, 2, window=1).double()):
        inputs = (query, *parameters(own))
        assert torch.autograd.gradcheck(lambda x, *_, own=own: own(x, mask=mask, causal=True)[0], inputs)


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_multihead_attention_with_nothing_to_attend_gives_the_bias_and_no_gradient(
    dtype, need_weights, dropout, window
):
    torch.manual_seed(4)
    own = MultiHeadAttention(D, H, dropout, window).to(dtype)
    nn.init.normal_(own.output.bias)
    query = (100 * torch.randn(2, S, D)).to(dtype).requires_grad_()
    output, _ = own(query, mask=lengths_to_mask(torch.tensor([S, 0]), S), need_weights=need_weights)
    assert torch.equal(output[1], own.output.bias.expand(S, D))
    output.sum().backward()
    for gradient in (query.grad, *(parameter.grad for parameter in own.parameters())):
        assert torch.all(torch.isfinite(gradient))
    assert torch.all(query.grad[1] == 0) and torch.any(query.grad[0] != 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_multihead_attention_with_large_scores_ignores_padding(dtype, dropout):
    """Whatever is at masked positions, and however the scores differ, it changes no bit of the output."""
    own = MultiHeadAttention(D, H, dropout).to(dtype)
    query, memory = (200 * torch.randn(1, Q, D)).to(dtype), (20 * torch.randn(1, S, D)).to(dtype)
    mask = lengths_to_mask(torch.tensor([4]), S)
    outputs = []
    for fill in (0.0, 20.0, -20.0):
        torch.manual_seed(5)
        outputs.append(own(query, torch.where(mask.unsqueeze(-1), memory, fill).to(dtype), mask)[0])
    assert torch.all(torch.isfinite(outputs[0]))
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[0], outputs[2])


@pytest.mark.parametrize("kind", ["plain", "masked", "causal", "windowed", "weights"])
def test_multihead_dropout_acts_on_weights_and_keeps_the_mean(kind):
    torch.manual_seed(6)
    own = MultiHeadAttention(D, H, 0.25, 2 if kind == "windowed" else None)
    query = torch.randn(1, S, D)
    call = {
        "mask": MASK[1:2] if kind in ("masked", "windowed") else None,
        "causal": kind == "causal",
        "need_weights": kind == "weights",
    }
    with torch.no_grad():
        expected = own.eval()(query, **call)[0]
        own.train()
        outputs = torch.stack([own(query, **call)[0] for _ in range(600)])
    error = outputs.std(0) / 600**0.5
    assert torch.all((outputs.mean(0) - expected).abs() < 5.5 * error + FLOAT32)
    first = outputs[:, 0, 0]  # when causal, position 0 has one weight: all of a head or nothing of it
    assert len(first.round(decimals=4).unique(dim=0)) == 4 if kind == "causal" else len(first.unique(dim=0)) > 20


def test_self_attention_without_positions_is_permutation_equivariant():
    own, _ = pair(7)
    query, order = leaf(B, S, D), torch.randperm(S)
    torch.testing.assert_close(own(query[:, order])[0], own(query)[0][:, order])
    rotation = RotaryPositions(D // H).double()(S)
    turned = own(query[:, order], rotation=rotation)[0] - own(query, rotation=rotation)[0][:, order]
    assert turned.abs().max() > 0.01


def test_causal_self_attention_never_sees_later_positions():
    own, _ = pair(8)
    query = leaf(1, S, D)
    (gradient,) = torch.autograd.grad(own(query, causal=True)[0][0, 3].sum(), query)
    assert torch.all(gradient[0, 4:] == 0) and torch.all(gradient[0, :4] != 0)


def test_attend_to_a_projected_memory_with_beams_as_queries_equals_forward():
    own, _ = pair(9)
    query, memory = leaf(B, Q, D), leaf(B, S, D)
    keys, values = own.project_memory(memory)
    assert keys.shape == values.shape == (B, H, S, D // H)
    expected, expected_weights = own(query, memory, MASK, need_weights=True)
    output, weights = own.attend(query, keys, values, MASK, need_weights=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights)
    repeated, _ = own(query.reshape(B * Q, 1, D), memory.repeat_interleave(Q, 0), MASK.repeat_interleave(Q, 0))
    torch.testing.assert_close(output, repeated.view(B, Q, D))


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("size", "radius"), [(7, 0), (7, 2), (7, 50), (75, 1), (75, 5), (100, 40), (96, 32), (1, 1)])
def test_windowed_self_attention_equals_full_attention_with_a_band_mask(size, radius, causal, masked, rotary):
    torch.manual_seed(10)
    windowed = MultiHeadAttention(D, H, window=radius).double()
    full = MultiHeadAttention(D, H).double()
    full.load_state_dict(windowed.state_dict())
    query = leaf(B, size, D)
    mask = lengths_to_mask(torch.tensor([size, size // 2, 0]), size) if masked else None
    band = band_mask(size, radius, causal).expand(B, size, size)
    rotation = RotaryPositions(D // H).double()(size) if rotary else None
    output, _ = windowed(query, mask=mask, causal=causal, rotation=rotation)
    expected, expected_weights = full(
        query, mask=band if mask is None else band & mask.unsqueeze(1), rotation=rotation, need_weights=True
    )
    torch.testing.assert_close(output, expected)
    shown, weights = windowed(query, mask=mask, causal=causal, rotation=rotation, need_weights=True)
    torch.testing.assert_close(shown, expected)
    torch.testing.assert_close(weights, expected_weights)
    pull = torch.randn_like(output)
    got = torch.autograd.grad((output * pull).sum(), [query, *parameters(windowed)])
    wanted = torch.autograd.grad((expected * pull).sum(), [query, *parameters(full)])
    for gradient, expected_gradient in zip(got, wanted, strict=True):
        torch.testing.assert_close(gradient, expected_gradient)


class LargestTensor(torch.utils._python_dispatch.TorchDispatchMode):
    """Watches every operation, backward included: the elements of the largest tensor, and of all together."""

    def __init__(self):
        super().__init__()
        self.largest = self.total = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, torch.Tensor):
                self.largest = max(self.largest, part.numel())
                self.total += part.numel()
        return result


def test_windows_wider_than_the_sentence_are_cut():
    for causal in (False, True):
        wide, whole = (Windows.of(20, radius, causal) for radius in (2 * 10**9, 20))
        assert wide == whole and wide.span <= 3 * 20


def elements(size, window, causal=True, dropout=0.0):
    own = MultiHeadAttention(D, H, dropout, window)
    query = torch.randn(1, size, D, requires_grad=True)
    with LargestTensor() as watch:
        own(query, mask=torch.ones(1, size, dtype=torch.bool), causal=causal)[0].sum().backward()
    return watch


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("causal", [False, True])
def test_windowed_self_attention_memory_grows_linearly(causal, dropout):
    small, large = (elements(size, 16, causal, dropout) for size in (1024, 4096))
    assert large.largest < 4096 * 4096 / 16
    assert large.total < 4.1 * small.total
    wide = elements(4096, 128, causal, dropout)
    assert wide.total < 8.5 * large.total


def test_largest_tensor_watch_sees_the_square_of_full_attention():
    own = MultiHeadAttention(D, H)
    with LargestTensor() as watch:
        own(torch.randn(1, 1024, D), need_weights=True)
    assert watch.largest == H * 1024 * 1024


def test_windows_cover_each_query_and_its_neighbors_once():
    for size, radius, causal in ((1, 0, False), (31, 3, False), (33, 3, True), (90, 40, False), (64, 32, True)):
        windows = Windows.of(size, radius, causal)
        allowed = windows.mask(1, None, torch.device("cpu"))
        ids = torch.arange(1.0, size + 1).view(1, size, 1)  # 0 is what padding has
        queries, keys = windows.queries(ids).squeeze(-1), windows.keys(ids).squeeze(-1)
        seen = torch.zeros(size, size, dtype=torch.int64)
        for block in range(windows.count):
            for i, j in allowed[block].nonzero().tolist():
                query, key = int(queries[block, i]) - 1, int(keys[block, j]) - 1
                assert key >= 0
                if query >= 0:
                    seen[query, key] += 1
        assert torch.equal(seen, band_mask(size, radius, causal).long())
        torch.testing.assert_close(windows.merge(windows.queries(ids)), ids)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 3), "3 heads and width 8"),
        ((0, 1), "1 heads and width 0"),
        ((8, 2, 1.0), "less than 1, got 1.0"),
        ((8, 2, 0.0, -1), "0 or more, or none, got -1"),
    ],
)
def test_multihead_attention_with_impossible_settings_is_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        MultiHeadAttention(*arguments)

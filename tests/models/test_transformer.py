"""Transformer beyond the contract: options, shared parameters, cost of a step."""

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seq2seq.errors import UserError
from seq2seq.interfaces import BOS, EOS, PAD
from seq2seq.models import create_transformer

SOURCE = torch.tensor([[5, 6, 7, 8, 9, 4, EOS], [5, 5, EOS, PAD, PAD, PAD, PAD]])
TARGET = torch.tensor([[BOS, 4, 5, 6, 7, 8, 9, 10], [BOS, 4, 4, 4, 4, 4, 4, 4]])


def create(**options):
    torch.manual_seed(0)
    sizes = {"width": 12, "heads": 2, "feedforward_width": 10, "layers": 2} | options
    vocabulary = {"source_vocabulary": 11, "target_vocabulary": 11, "joint_vocabulary": True}
    return create_transformer(**(vocabulary | sizes)).double().eval()


def decode(model, source=SOURCE, target=TARGET):
    return model.decode(target, model.encode(source, source != PAD)).features


OPTIONS = [
    {"norm": "post"},
    {"positions": "learned"},
    {"positions": "rotary"},
    {"positions": "none"},
    {"position_width": 4, "tie_embeddings": False},
    {"window": 1},
    {"window": 0, "positions": "rotary"},
    {"window": 2, "norm": "post", "positions": "learned"},
    {"encoder_layers": 1, "decoder_layers": 3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@torch.no_grad()
def test_transformer_steps_with_beams_equal_decode(options):
    """Take the path of a search: from one beam to two, with words of other beams between, then only one sentence."""
    model = create(**options)
    expected = decode(model)
    state = model.start(model.encode(SOURCE, SOURCE != PAD))
    features, state, _ = model.step(TARGET[:, 0], state)
    torch.testing.assert_close(features, expected[:, 0])
    state = state.select(torch.tensor([[0, 0], [1, 1]]))
    for t in range(1, 8):
        sentences = slice(0 if t < 5 else 1, 2)
        tokens = torch.stack([torch.tensor([3 + t, 4]), TARGET[:, t]], dim=1)[sentences]
        features, state, _ = model.step(tokens.flatten(), state)
        torch.testing.assert_close(features.view(-1, 2, 12)[:, 1], expected[sentences, t])
        if t == 4:
            state = state.select(torch.tensor([[2, 3]]))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_transformer_gets_no_gradient_from_later_words_or_padding(options):
    model = create(**options)
    seen = []
    for embed in (model.encoder.embed, model.decoder.embed):
        embed.register_forward_hook(lambda module, inputs, output: seen.append(output) or output.retain_grad())
    features = decode(model)
    (features[:, 3] * torch.randn(12)).sum().backward()
    source, target = (embedded.grad.abs().sum(-1) for embedded in seen)
    assert torch.equal(source > 0, SOURCE != PAD)
    assert not target[:, 4:].any() and target[:, 3].all()


@torch.no_grad()
def test_transformer_window_bounds_what_a_position_sees():
    model = create(layers=1, window=2)
    changed = TARGET.clone()
    changed[:, 3] = 3
    differs = ~torch.isclose(decode(model), decode(model, target=changed)).all(-1)
    assert differs[0].tolist() == [False] * 3 + [True] * 3 + [False] * 2
    torch.testing.assert_close(decode(create(window=20)), decode(create()))


def test_transformer_ties_embeddings_as_vocabularies_allow():
    model = create()
    assert model.encoder.embed.embedding.weight is model.decoder.embed.embedding.weight is model.output.weight
    separate = create(joint_vocabulary=False, source_vocabulary=13)
    assert separate.encoder.embed.embedding.weight.shape == (13, 12)
    assert separate.decoder.embed.embedding.weight is separate.output.weight
    untied = create(tie_embeddings=False)
    assert len({id(p) for p in untied.parameters()}) == len({id(p) for p in create().parameters()}) + 2


def test_transformer_base_has_the_size_of_the_paper():
    """Base, 37,000 joint pieces: the paper's table 3 says 65 million parameters."""
    with torch.device("meta"):
        model = create_transformer(37000, 37000, True, 512, 6, heads=8, feedforward_width=2048, norm="post")
    assert 62e6 < sum(parameter.numel() for parameter in model.parameters()) < 66e6


@torch.no_grad()
def test_transformer_step_returns_weights_of_the_alignment_layer():
    def weights(layer):
        model = create(layers=3, alignment_layer=layer)
        return model.step(TARGET[:, 0], model.start(model.encode(SOURCE, SOURCE != PAD)))[2]

    assert weights(-1).shape == (2, 2, 7)
    torch.testing.assert_close(weights(0).sum(-1), torch.ones(2, 2, dtype=torch.float64))
    assert torch.equal(weights(-1), weights(2)) and torch.equal(weights(0), weights(-3))
    assert not torch.allclose(weights(0), weights(1))


class CountWork(TorchDispatchMode):
    """Multiplications inside matrix products."""

    def __init__(self):
        super().__init__()
        self.work = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name in ("mm", "addmm", "bmm", "baddbmm"):
            left = args[1] if name in ("addmm", "baddbmm") else args[0]
            self.work += result.numel() * left.shape[-1]
        return result


@torch.no_grad()
def test_transformer_step_cost_grows_by_attention_only():
    """Count that each further step costs two products over one more position, 2 D multiplications per layer and row."""
    model = create()
    state = model.start(model.encode(SOURCE, SOURCE != PAD))
    work = []
    for _ in range(6):
        with CountWork() as counted:
            _, state, _ = model.step(TARGET[:, 0], state)
        work.append(counted.work)
    assert {later - earlier for earlier, later in itertools.pairwise(work)} == {2 * 12 * 2 * 2}


@torch.no_grad()
def test_transformer_steps_past_the_cache_capacity_equal_decode():
    model = create(layers=1)
    target = torch.cat([torch.full((2, 1), BOS), torch.randint(4, 11, (2, 69))], dim=1)
    expected = decode(model, target=target)
    state = model.start(model.encode(SOURCE, SOURCE != PAD))
    for t in range(70):
        features, state, _ = model.step(target[:, t], state)
        torch.testing.assert_close(features, expected[:, t])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 5}, "heads must divide the width, got 5 heads and width 12"),
        ({"heads": 0}, "heads"),
        ({"dropout": 2.0}, "dropout.*2.0"),
        ({"activation_dropout": -0.1}, "dropout.*-0.1"),
        ({"layers": 0}, "at least one layer, got 0 and 0"),
        ({"norm": "prenorm"}, "norm='prenorm' is unknown; choose pre or post"),
        ({"positions": "sinusoid"}, "'sinusoid' is unknown"),
        ({"alignment_layer": 2}, "alignment_layer=2 does not exist among 2"),
        ({"window": -1}, "window"),
        ({"position_width": 4}, "tie_embeddings"),
        ({"source_vocabulary": 12}, "one vocabulary, got source_vocabulary=12 and target_vocabulary=11"),
    ],
)
def test_transformer_with_impossible_values_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        create(**options)

"""Convolutional model against the paper's equations, one number at a time in float64."""

import math

import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.interfaces import BOS, EOS, PAD
from seq2seq.models import create_conv

SQRT_HALF = math.sqrt(0.5)


def create(**options):
    torch.manual_seed(0)
    sizes = {"width": 5, "embedding_width": 4, "layers": 2} | options
    vocabulary = {"source_vocabulary": 11, "target_vocabulary": 11, "joint_vocabulary": True}
    return create_conv(**(vocabulary | sizes)).double().eval()


def linear(layer, vector):
    rows, bias = layer.weight.tolist(), layer.bias.tolist()
    return [b + sum(w * x for w, x in zip(row, vector, strict=True)) for row, b in zip(rows, bias, strict=True)]


def add(left, right):
    return [(a + b) * SQRT_HALF for a, b in zip(left, right, strict=True)]


def gated(layer, vectors, t, left):
    weight, sums = layer.weight.tolist(), layer.bias.tolist()
    for j in range(len(weight[0][0])):
        if 0 <= t - left + j < len(vectors):
            sums = [
                s + sum(w[i][j] * x for i, x in enumerate(vectors[t - left + j]))
                for s, w in zip(sums, weight, strict=True)
            ]
    half = len(sums) // 2
    return [a / (1 + math.exp(-b)) for a, b in zip(sums[:half], sums[half:], strict=True)]


def embed(model, tokens):
    """0.1 (sqrt(E) word + position)."""
    weight, vectors = model.output.weight.tolist(), []
    for p, token in enumerate(tokens):
        place = [math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)]
        vectors.append([0.1 * (2 * w + x) for w, x in zip(weight[token], place, strict=True)])
    return vectors


def features_by_loops(model, source, target):
    """Gehring et al. 2017, sections 3.1 to 3.4, for one sentence without padding."""
    e = embed(model, source)
    hidden = [linear(model.encoder.widen, x) for x in e]
    for layer in model.encoder.layers:
        hidden = [add(gated(layer, hidden, s, 1), hidden[s]) for s in range(len(source))]
    z = [linear(model.encoder.narrow, h) for h in hidden]
    values = [add(key, x) for key, x in zip(z, e, strict=True)]
    g = embed(model, target)
    hidden = [linear(model.decoder.widen, x) for x in g]
    for layer in model.decoder.layers:
        outputs = []
        for t in range(len(target)):
            h = gated(layer.convolution, hidden, t, 2)
            d = add(linear(layer.query, h), g[t])
            scores = [math.exp(sum(a * b for a, b in zip(d, key, strict=True))) for key in z]
            a = [score / sum(scores) for score in scores]
            c = [sum(w * v[i] for w, v in zip(a, values, strict=True)) * math.sqrt(len(source)) for i in range(4)]
            outputs.append(add(add(h, linear(layer.context, c)), hidden[t]))
        hidden = outputs
    return torch.tensor([linear(model.decoder.narrow, h) for h in hidden], dtype=torch.float64)


@torch.no_grad()
def test_conv_features_equal_loops():
    model = create()
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.3)  # biases too
    source = torch.tensor([[5, 6, 7, 8, EOS], [9, EOS, PAD, PAD, PAD], [EOS, PAD, PAD, PAD, PAD]])
    target = torch.tensor([[BOS, 4, 5, 6, 7, 8]] * 3)
    features = model.decode(target, model.encode(source, source != PAD)).features
    for b in range(3):
        sentence = [token for token in source[b].tolist() if token != PAD]
        torch.testing.assert_close(features[b], features_by_loops(model, sentence, target[b].tolist()))


@pytest.mark.parametrize(
    "options", [{"kernel": 1}, {"kernel": 5}, {"positions": "learned"}, {"positions": "none"}, {"encoder_layers": 3}]
)
@torch.no_grad()
def test_conv_steps_equal_decode(options):
    model = create(**options)
    source = torch.tensor([[5, 6, EOS], [EOS, PAD, PAD]])
    target = torch.tensor([[BOS, 4, 5, 6, 7, 8], [BOS, 9, 9, 4, 4, 4]])
    memory = model.encode(source, source != PAD)
    expected = model.decode(target, memory).features
    state = model.start(memory)
    for t in range(6):
        features, state, weights = model.step(target[:, t], state)
        torch.testing.assert_close(features, expected[:, t])
        assert weights.shape == (2, 2, 3)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, dtype=torch.float64))
        assert not weights[1, :, 1:].any()


@torch.no_grad()
def test_conv_decoder_reaches_as_far_as_its_kernels():
    """Two layers of kernel 3 see the word itself and four before it."""
    model = create()
    source = torch.tensor([[5, 6, EOS]])
    target = torch.tensor([[BOS, 4, 5, 6, 7, 8, 9, 10]])
    memory = model.encode(source, source != PAD)
    changed = target.clone()
    changed[0, 1] = 9
    features = [model.decode(words, memory).features for words in (target, changed)]
    differs = ~torch.isclose(*features).all(-1)
    assert differs[0].tolist() == [False] + [True] * 5 + [False] * 2


def test_conv_initial_variance_allows_for_dropout_of_inputs():
    model = create(width=256, embedding_width=256, dropout=0.5)
    for side in (model.encoder, model.decoder):
        for linear, kept in ((side.widen, 0.5), (side.narrow, 1.0)):
            assert linear.weight.var().item() == pytest.approx(kept / 256, rel=0.05)
    assert model.decoder.layers[0].query.weight.var().item() == pytest.approx(1 / 256, rel=0.05)


@torch.no_grad()
def test_conv_learned_positions_start_with_the_variance_of_words():
    model = create(embedding_width=256, positions="learned")
    for embed in (model.encoder.embed, model.decoder.embed):
        assert embed.embedding(torch.arange(1, 11)).std().item() == pytest.approx(1, rel=0.1)
        assert embed.positions(torch.zeros(1, 500, 256)).std().item() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": 4}, "odd kernel, got 4"),
        ({"width": 0}, "width"),
        ({"layers": 0}, "at least one layer"),
        ({"dropout": 1.0}, "dropout.*1.0"),
        ({"positions": "rotary"}, "rotary"),
        ({"positions": "sinus"}, "unknown"),
    ],
)
def test_conv_with_impossible_values_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        create(**options)

"""Contract of `interfaces.Model`, for every model, score and alignment that conf/ can compose."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from small_models import SMALL
from torch import Tensor

from seq2seq.interfaces import BOS, EOS, PAD, Model
from seq2seq.kernels import dropout
from seq2seq.layers.embedding import Embedding

CONF = Path(__file__).parents[2] / "conf" / "model"
SOURCES = [[5, 6, 7, 8, 9, EOS], [EOS], [10, 4, 10, EOS], [12, 11, EOS]]
TARGETS = [[4, 5, 6, 7], [8, 9], [10, 4, 5, 6, 7, 8], []]


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def combinations() -> list[tuple[str, ...]]:
    """(model, override ...) for every model YAML, times every score and alignment where it has them."""
    result: list[tuple[str, ...]] = []
    for name in sorted({path.stem for path in CONF.glob("*.yaml")} - {"checkpoint"}):
        if any("attention/score" in entry for entry in OmegaConf.load(CONF / f"{name}.yaml").get("defaults", [])):
            for score, alignment in itertools.product(choices("attention/score"), choices("attention/alignment")):
                result.append((name, f"model/attention/score={score}", f"model/attention/alignment={alignment}"))
        else:
            result.append((name,))
    return result


def parameter(combination: tuple[str, ...]):
    """Mark a combination slow unless its score or its alignment is the usual one."""
    usual = len(combination) == 1 or {"model/attention/score=additive", "model/attention/alignment=soft"} & {
        *combination
    }
    name = "-".join(part.split("=")[-1] for part in combination)
    return pytest.param(combination, id=name, marks=[] if usual else [pytest.mark.slow])


@pytest.fixture(scope="module", params=map(parameter, combinations()))
def model(request, build_model) -> Model:
    name, *overrides = request.param
    return build_model(name, [*SMALL[name], *overrides]).double().eval()


def pad(rows: list[list[int]], extra: int = 0) -> Tensor:
    size = max(len(row) for row in rows) + extra
    return torch.tensor([row + [PAD] * (size - len(row)) for row in rows])


def decode(model: Model, sources: list[list[int]], targets: list[list[int]], extra: int = 0) -> list[Tensor]:
    """Teacher-forced features of each sentence, (1 + its length, D), with `extra` padding on both sides."""
    source, target_in = pad(sources, extra), pad([[BOS, *row] for row in targets], extra)
    memory = model.encode(source, source != PAD)
    assert torch.equal(memory.mask, source != PAD)
    features = model.decode(target_in, memory, target_in != PAD).features
    assert features.shape[:2] == target_in.shape and features.isfinite().all()
    return [row[: 1 + len(target)] for row, target in zip(features, targets, strict=True)]


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-10)


@torch.no_grad()
def test_model_steps_equal_decode(model: Model):
    whole = decode(model, SOURCES, TARGETS)
    source, target_in = pad(SOURCES), pad([[BOS, *row] for row in TARGETS])
    mask = source != PAD
    state = model.start(model.encode(source, mask))
    for t, tokens in enumerate(target_in.unbind(1)):
        features, state, weights = model.step(tokens, state)
        for row, expected in zip(features, whole, strict=True):
            if t < len(expected):
                assert_same(row, expected[t])
        assert (weights is not None) == model.attends
        if weights is not None:
            assert weights.dim() == 3 and weights.shape[::2] == source.shape
            assert weights.isfinite().all() and not weights.masked_select(~mask.unsqueeze(1)).any()
    assert model.logits(features).shape == (len(SOURCES), 11)
    assert_same(model.logits(features), model.output(features))


@torch.no_grad()
def test_model_ignores_padding_batch_size_and_order(model: Model):
    batch = decode(model, SOURCES, TARGETS)
    padded = decode(model, SOURCES, TARGETS, extra=3)
    reversed_batch = decode(model, SOURCES[::-1], TARGETS[::-1])[::-1]
    for i, expected in enumerate(batch):
        (alone,) = decode(model, SOURCES[i : i + 1], TARGETS[i : i + 1])
        assert_same(alone, expected)
        assert_same(padded[i], expected)
        assert_same(reversed_batch[i], expected)


@torch.no_grad()
def test_model_positions_never_see_later_ones(model: Model):
    target = [4, 5, 6, 7, 8, 9]
    changed = [target[:t] + [4 + (token - 1) % 7 for token in target[t:]] for t in range(len(target))]
    features, *others = decode(model, SOURCES[:1] * 7, [target, *changed])
    for t, other in enumerate(others):
        assert_same(other[: t + 1], features[: t + 1])
        assert not torch.allclose(other[t + 1], features[t + 1])


def test_model_gradient_reaches_every_parameter(model: Model, request):
    combination = request.node.callspec.params["model"]
    if "model/attention/score=uniform" in combination and "model/attention/alignment=unnormalized" in combination:
        return  # weights are zero by definition, and so are the context's gradients
    source, target_in = pad(SOURCES[:1] + SOURCES[2:3]), pad([[BOS, *row] for row in (TARGETS[0], TARGETS[2])])
    torch.manual_seed(0)
    model.zero_grad()
    model.train()
    output = model.decode(target_in, model.encode(source, source != PAD), target_in != PAD)
    model.eval()
    loss = model.logits(output.features).log_softmax(-1)[..., 4].sum()
    if output.sampling is not None:
        assert output.sampling.log_probability.shape == output.sampling.entropy.shape == target_in.shape
        assert output.expected.shape == output.features.shape
        loss = loss + (output.sampling.log_probability * torch.arange(1.0, 1 + target_in.shape[1])).sum()
        loss = loss + output.sampling.entropy.sum()
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), f"{name} has no gradient"


@torch.no_grad()
def test_model_state_select_equals_recomputation(model: Model):
    """From one beam to several, reordered, with sentences leaving and fewer beams left."""
    source = pad(SOURCES)
    state = model.start(model.encode(source, source != PAD))
    prefixes = [(sentence, [BOS]) for sentence in range(len(SOURCES))]
    moves = [
        [[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]],  # K 1 -> 3
        [[2, 0, 0], [3, 4, 5], [8, 7, 6], [9, 9, 9]],
        [[1, 0, 2], [6, 6, 8], [9, 10, 11]],  # the second sentence leaves
        [[0, 1, 2], [3, 4, 5], [6, 7, 8]],  # nothing moves
        [[2], [4], [6]],  # K 3 -> 1
        [[1, 1]],
    ]
    for step, rows in enumerate([*moves, None]):
        features, state, weights = model.step(torch.tensor([prefix[-1] for _, prefix in prefixes]), state)
        assert weights is None or weights.shape[0] == len(prefixes)
        whole = decode(model, [SOURCES[sentence] for sentence, _ in prefixes], [prefix[1:] for _, prefix in prefixes])
        assert_same(features, torch.stack([row[-1] for row in whole]))
        if rows is not None:
            state = state.select(torch.tensor(rows))
            old = [prefixes[row] for line in rows for row in line]
            prefixes = [(s, [*prefix, 4 + (3 * step + i) % 7]) for i, (s, prefix) in enumerate(old)]


@torch.no_grad()
def test_model_weights_of_beams_equal_those_of_sentences(model: Model):
    """Compare the weights of three beams with those of three equal sentences."""
    if not model.attends:
        return
    source = pad([SOURCES[0]] * 3)
    alone = model.start(model.encode(source, source != PAD))
    together = model.start(model.encode(source[:1], source[:1] != PAD)).select(torch.zeros(1, 3, dtype=torch.int64))
    for tokens in ([BOS, BOS, BOS], [4, 5, 6], [7, 7, 8]):
        _, alone, expected = model.step(torch.tensor(tokens), alone)
        _, together, weights = model.step(torch.tensor(tokens), together)
        assert_same(weights, expected)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_model_word_dropout_acts_on_both_sides(name: str, build_model):
    model = build_model(
        name, [*SMALL[name], "model.dropout=0", "model.word_dropout=0.99", "model.tie_embeddings=false"]
    )
    torch.manual_seed(0)
    source, target_in = pad([[*SOURCES[0] * 3]]), pad([[BOS, *TARGETS[0] * 3]])
    model.decode(target_in, model.encode(source, source != PAD), target_in != PAD).features.sum().backward()
    tables = [layer for layer in model.modules() if isinstance(layer, Embedding)]
    assert len(tables) == 2
    for table in tables:
        assert table.weight.grad is not None and (table.weight.grad == 0).all(1).sum() >= len(table.weight) - 2


@pytest.mark.parametrize(
    ("name", "overrides", "encoder", "decoder"),
    [
        # embeddings and between layers; embeddings, between layers and features
        ("rnn", [], 1 + 2, 1 + 2 + 1),
        ("rnn", ["model.context=initial_state"], 1 + 2, 1 + 2 + 1),
        ("bahdanau", [], 1 + 2, 1 + 2 + 1),
        ("luong", [], 1 + 2, 1 + 2 + 1),
        ("luong", ["model.input_feeding=false"], 1 + 2, 1 + 2 + 1),
        # source embeddings and encoder states; features
        ("conditional_gru", ["model.context_dropout=0.5", "model.output_dropout=0.5"], 1 + 1, 1),
        # embeddings and convolutions; the features too
        ("conv", [], 1 + 3, 1 + 3 + 1),
        # embeddings, then in each layer attention weights, the feed-forward activation and the sublayers' results
        (
            "transformer",
            ["model.feedforward_width=8", "model.attention_dropout=0.5", "model.activation_dropout=0.5"],
            1 + 3 * (1 + 1 + 2),
            1 + 3 * (2 + 1 + 3),
        ),
    ],
)
@torch.no_grad()
def test_model_dropout_acts_everywhere_in_decode_and_step(name, overrides, encoder, decoder, build_model, monkeypatch):
    """Counted in vectors of 8 a position, which with two heads is the size of a position's attention weights too."""
    drawn: list[int] = []
    draw = dropout.draw_kept
    monkeypatch.setattr(dropout, "draw_kept", lambda values, rate: drawn.append(values.numel()) or draw(values, rate))

    def count() -> int:
        total = sum(drawn)
        drawn.clear()
        return total

    layers = [] if name == "conditional_gru" else ["model.layers=3"]
    model = build_model(name, [*SMALL[name], *layers, "model.dropout=0.5", *overrides]).train()
    source, target_in = pad([[5, 6, 7, EOS], [8, 9, 4, EOS]]), pad([[BOS, 4, 5, 6], [BOS, 7, 8, 9]])
    memory = model.encode(source, source != PAD)
    assert count() == encoder * source.numel() * 8
    model.decode(target_in, memory)
    assert count() == decoder * target_in.numel() * 8
    model.decode(target_in[:, :1], memory)
    whole = count()
    model.step(target_in[:, 0], model.start(memory))
    assert count() == whole

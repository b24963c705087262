"""Recurrent models against their papers' equations, written out step by step in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from seq2seq.attention import AdditiveScore, Attention, GeneralScore, SoftAlignment
from seq2seq.errors import UserError
from seq2seq.interfaces import EOS, PAD
from seq2seq.models import create_bahdanau, create_conditional_gru, create_luong, create_rnn

WIDTH = 6
SIZES = {
    "source_vocabulary": 12,
    "target_vocabulary": 11,
    "joint_vocabulary": False,
    "width": WIDTH,
    "embedding_width": WIDTH,
    "dropout": 0.0,
}
CONDITIONAL = {**SIZES, "context_dropout": 0.0, "output_dropout": 0.0}
SOURCE = torch.tensor([[5, 6, 7, EOS], [8, 9, EOS, PAD]])
SENTENCES = [torch.tensor([5, 6, 7, EOS]), torch.tensor([8, 9, EOS])]
TARGET = torch.tensor([[2, 4, 5], [2, 6, 7]])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def additive(key_width: int = WIDTH) -> Attention:
    return Attention(AdditiveScore(WIDTH, key_width, 5), SoftAlignment())


def general() -> Attention:
    return Attention(GeneralScore(WIDTH, WIDTH), SoftAlignment())


def randomized(model: nn.Module) -> nn.Module:
    """In float64 and with no parameter at a special value."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


def read_alone(reader: nn.Module, tokens: Tensor) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor]]:
    """One sentence (S,) without padding through torch's own module: states (S, D), and the final state of each layer
    and direction in torch's order, for an LSTM a pair.
    """
    encoder = reader.encoder
    first = encoder.forwards[0].rnn
    layers = len(encoder.forwards)
    reference = type(first)(
        first.input_size, first.hidden_size, layers, batch_first=True, bidirectional=len(encoder.backwards) > 0
    ).double()
    reference.load_state_dict(
        {
            name.replace("_l0", f"_l{i}") + suffix: value
            for suffix, stack in (("", encoder.forwards), ("_reverse", encoder.backwards))
            for i, layer in enumerate(stack)
            for name, value in layer.rnn.state_dict().items()
        }
    )
    states, final = reference(reader.embedding(tokens).unsqueeze(0))
    return states[0], final


def torch_cell(layer: nn.Module, extra: Tensor | None = None) -> nn.Module:
    """torch's cell with a layer's parameters; the columns of `extra` follow in its input matrix."""
    weights = {name.removesuffix("_l0"): value for name, value in layer.rnn.state_dict().items()}
    if extra is not None:
        weights["weight_ih"] = torch.cat([weights["weight_ih"], extra], dim=1)
    kind = nn.GRUCell if isinstance(layer.rnn, nn.GRU) else nn.LSTMCell
    cell = kind(weights["weight_ih"].shape[1], layer.width).double()
    cell.load_state_dict(weights)
    return cell


def features_of(model: nn.Module) -> Tensor:
    mask = SOURCE != PAD
    return model.decode(TARGET, model.encode(SOURCE, mask)).features


@torch.no_grad()
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("readout", ["tanh", "maxout"])
@pytest.mark.parametrize("encoder_width", [WIDTH, 10])
def test_bahdanau_attends_from_the_previous_state_then_recurs(cell, readout, encoder_width):
    parts = {"attention": additive(encoder_width), "cell": cell, "readout": readout, "encoder_width": encoder_width}
    model = randomized(create_bahdanau(**parts, **SIZES))
    decoder = model.decoder
    score = decoder.attention.score
    recur = torch_cell(decoder.first, decoder.feed.weight)
    features = features_of(model)
    for row in range(2):
        annotations, final = read_alone(model.encoder, SENTENCES[row])
        backward = final[-1] if cell == "gru" else final[0][-1]
        state = torch.tanh(decoder.initial.projection(backward)).chunk(1 if cell == "gru" else 2, dim=1)
        for t, token in enumerate(TARGET[row]):
            energies = torch.stack(
                [
                    score.vector @ torch.tanh(score.query.weight @ state[0][0] + score.key.weight @ annotation)
                    for annotation in annotations
                ]
            )
            weights = energies.exp() / energies.exp().sum()
            context = sum(weight * annotation for weight, annotation in zip(weights, annotations, strict=True))
            embedded = decoder.embedding(token)
            inputs = torch.cat([embedded, context]).unsqueeze(0)
            state = (recur(inputs, state[0]),) if cell == "gru" else recur(inputs, tuple(state))
            projection = decoder.readout.projection
            candidates = projection.weight @ torch.cat([state[0][0], context, embedded]) + projection.bias
            if readout == "tanh":
                expected = torch.tanh(candidates)
            else:
                expected = torch.stack([max(candidates[i], candidates[i + WIDTH]) for i in range(WIDTH)])
            torch.testing.assert_close(features[row, t], expected)


@torch.no_grad()
@pytest.mark.parametrize("encoder_width", [WIDTH, 10])
def test_conditional_gru_reads_the_word_then_attends_then_reads_the_context(encoder_width):
    model = randomized(
        create_conditional_gru(attention=additive(encoder_width), encoder_width=encoder_width, **CONDITIONAL)
    )
    decoder, reader = model.decoder, model.encoder
    score = decoder.attention.score
    first, second = torch_cell(decoder.first), torch_cell(decoder.second)
    features = features_of(model)
    for row in range(2):
        outputs, _ = read_alone(reader.reader, SENTENCES[row])
        centered = outputs - outputs.mean(1, keepdim=True)
        spread = (centered.square().mean(1, keepdim=True) + 1e-5).sqrt()
        annotations = centered / spread * reader.norm.weight + reader.norm.bias
        state = torch.tanh(decoder.initial.projection(annotations.mean(0, keepdim=True)))
        for t, token in enumerate(TARGET[row]):
            embedded = decoder.embedding(token)
            between = first(embedded.unsqueeze(0), state)
            energies = torch.tanh(score.query(between) + score.key(annotations)) @ score.vector
            context = torch.softmax(energies, 0) @ annotations
            state = second(context.unsqueeze(0), between)
            expected = torch.tanh(decoder.readout.projection(torch.cat([state[0], context, embedded])))
            torch.testing.assert_close(features[row, t], expected)


@torch.no_grad()
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("input_feeding", [True, False])
def test_luong_recurs_then_attends(cell, input_feeding):
    model = randomized(create_luong(attention=general(), cell=cell, layers=2, input_feeding=input_feeding, **SIZES))
    decoder = model.decoder
    attentional = decoder.attentional
    feed = decoder.feed.weight if input_feeding else torch.zeros_like(decoder.stack[0].rnn.weight_ih_l0)
    lower, upper = torch_cell(decoder.stack[0], feed), torch_cell(decoder.stack[1])
    features = features_of(model)
    for row in range(2):
        memory, final = read_alone(model.encoder, SENTENCES[row])
        finals = (final,) if cell == "gru" else final
        states = [tuple(torch.cat([f[2 * i], f[2 * i + 1]], dim=1) for f in finals) for i in range(2)]
        vector = torch.zeros(WIDTH, dtype=torch.float64)
        for t, token in enumerate(TARGET[row]):
            inputs = torch.cat([decoder.embedding(token), vector]).unsqueeze(0)
            for i, layer in enumerate((lower, upper)):
                states[i] = (layer(inputs, states[i][0]),) if cell == "gru" else layer(inputs, states[i])
                inputs = states[i][0]
            hidden = inputs[0]
            scores = memory @ (attentional.attention.score.key.weight.t() @ hidden)
            context = torch.softmax(scores, dim=0) @ memory
            vector = torch.tanh(attentional.context.weight @ context + attentional.hidden.weight @ hidden)
            torch.testing.assert_close(features[row, t], vector)


@torch.no_grad()
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_rnn_with_context_at_every_step_equals_the_equations(cell):
    """Cho et al. 2014: the summary sets the first state and enters gates and readout."""
    model = randomized(create_rnn(cell=cell, readout="tanh", **SIZES))
    decoder = model.decoder
    recur = torch_cell(decoder.stack[0])
    features = features_of(model)
    for row in range(2):
        _, final = read_alone(model.encoder.reader, SENTENCES[row])
        hidden = final if cell == "gru" else final[0]
        context = torch.cat([hidden[0, 0], hidden[1, 0]])
        state = torch.tanh(decoder.initial.projection(context.unsqueeze(0))).chunk(1 if cell == "gru" else 2, dim=1)
        for t, token in enumerate(TARGET[row]):
            embedded = decoder.embedding(token)
            inputs = torch.cat([embedded, context]).unsqueeze(0)
            state = (recur(inputs, state[0]),) if cell == "gru" else recur(inputs, tuple(state))
            expected = torch.tanh(decoder.readout.projection(torch.cat([state[0][0], context, embedded])))
            torch.testing.assert_close(features[row, t], expected)


@torch.no_grad()
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_rnn_with_context_as_initial_state_equals_the_equations(cell, bidirectional):
    """Sutskever et al. 2014: two layers, each starting where the encoder's layer stopped; real tokens reversed."""
    model = create_rnn(
        context="initial_state", reverse_source=True, layers=2, cell=cell, bidirectional=bidirectional, **SIZES
    )
    randomized(model)
    decoder = model.decoder
    each = 2 if bidirectional else 1
    features = features_of(model)
    for row in range(2):
        _, final = read_alone(model.encoder.reader, SENTENCES[row].flip(0))
        finals = (final,) if cell == "gru" else final
        states = [tuple(f[i * each : (i + 1) * each].reshape(1, WIDTH) for f in finals) for i in range(2)]
        for t, token in enumerate(TARGET[row]):
            inputs = decoder.embedding(token).unsqueeze(0)
            for i, layer in enumerate(decoder.stack.layers):
                recur = torch_cell(layer)
                states[i] = (recur(inputs, states[i][0]),) if cell == "gru" else recur(inputs, states[i])
                inputs = states[i][0]
            torch.testing.assert_close(features[row, t], inputs[0])


@torch.no_grad()
@pytest.mark.parametrize("context", ["every_step", "initial_state"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_rnn_reads_the_source_from_a_vector_of_fixed_size_only(context, cell):
    model = randomized(create_rnn(context=context, cell=cell, **SIZES))
    long = torch.arange(40).view(1, 40) % 6 + 4
    short = SENTENCES[1].unsqueeze(0)
    memories = [model.encode(source, source != PAD) for source in (long, short)]
    for memory in memories:
        assert all(tensor.shape == (1, WIDTH) for layer in memory.final for tensor in layer)
    swapped = type(memories[1])(memories[0].final, memories[1].mask)
    expected, other = (model.decode(TARGET[:1], memory).features for memory in memories)
    assert torch.equal(model.decode(TARGET[:1], swapped).features, expected)
    assert not torch.allclose(other, expected)


def test_rnn_decoder_calls_each_layer_once_per_target():
    model = create_rnn(layers=2, **SIZES)
    calls = []
    for layer in model.decoder.stack.layers:
        layer.rnn.register_forward_hook(lambda module, inputs, output: calls.append(inputs[0].shape[1]))
    features_of(model)
    assert calls == [3, 3]


@pytest.mark.parametrize(
    "build",
    [
        lambda: create_bahdanau(attention=additive(), layers=1, **SIZES),
        lambda: create_bahdanau(attention=additive(), layers=2, **SIZES),
        lambda: create_conditional_gru(attention=additive(), encoder_width=WIDTH, **CONDITIONAL),
    ],
    ids=["bahdanau", "two layers", "conditional gru"],
)
def test_decode_with_the_fused_recurrence_equals_steps(build):
    """Features and every gradient, with padding; `step` is the plain path."""
    model = randomized(build())
    weights = torch.randn(2, 3, WIDTH, dtype=torch.float64)

    fused = features_of(model)
    state = model.start(model.encode(SOURCE, SOURCE != PAD))
    steps = []
    for tokens in TARGET.unbind(1):
        features, state, _ = model.step(tokens, state)
        steps.append(features)
    plain = torch.stack(steps, dim=1)
    torch.testing.assert_close(fused, plain)
    parameters = [p for name, p in model.named_parameters() if not name.startswith("output.")]
    for fused_gradient, plain_gradient in zip(
        torch.autograd.grad((fused * weights).sum(), parameters),
        torch.autograd.grad((plain * weights).sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(fused_gradient, plain_gradient)


def test_conditional_gru_without_the_fused_recurrence_is_the_same(monkeypatch):
    model = randomized(create_conditional_gru(attention=additive(), encoder_width=WIDTH, **CONDITIONAL))
    expected = features_of(model)
    monkeypatch.setattr(model.decoder, "_fused_weights", lambda: None)
    torch.testing.assert_close(features_of(model), expected)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("build", [create_rnn, create_bahdanau, create_luong])
def test_recurrent_model_in_mixed_precision_stays_close(build, cell):
    attention = {} if build is create_rnn else {"attention": additive()}
    model = build(cell=cell, **attention, **SIZES)
    expected = features_of(model)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            features = features_of(model)
    except RuntimeError as error:
        if "could not create a primitive" not in str(error):
            raise
        pytest.skip("oneDNN has no LSTM in bfloat16 for this processor")
    torch.testing.assert_close(features.float(), expected, rtol=0.05, atol=0.05)
    features.float().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_recurrent_model_ties_embeddings_as_vocabularies_allow():
    shared = create_luong(9, 9, True, general(), width=WIDTH, embedding_width=WIDTH)
    assert shared.encoder.embedding.weight is shared.decoder.embedding.weight is shared.output.weight
    apart = create_luong(**(SIZES | {"attention": general()}))
    assert apart.encoder.embedding.weight is not apart.decoder.embedding.weight is apart.output.weight
    untied = create_luong(9, 9, True, general(), width=WIDTH, embedding_width=4, tie_embeddings=False)
    assert untied.decoder.embedding.weight is not untied.output.weight
    assert untied.encoder.embedding.weight is not untied.decoder.embedding.weight


@pytest.mark.parametrize("build", [create_rnn, create_bahdanau, create_luong])
def test_recurrent_model_embedding_width_defaults_to_width(build):
    more = {} if build is create_rnn else {"attention": general()}
    assert build(12, 11, False, width=WIDTH, **more).decoder.embedding.weight.shape == (11, WIDTH)
    narrow = build(12, 11, False, width=WIDTH, embedding_width=4, tie_embeddings=False, **more)
    assert narrow.decoder.embedding.weight.shape == (11, 4)


def test_recurrent_models_with_wrong_values_name_them():
    with pytest.raises(UserError, match="embedding_width"):
        create_rnn(9, 9, True, width=8, embedding_width=6)
    with pytest.raises(UserError, match="context='sometimes'"):
        create_rnn(context="sometimes", **SIZES)
    for readout in ("relu", "maxout"):
        with pytest.raises(UserError, match=f"readout='{readout}'"):
            create_rnn(context="initial_state", readout=readout, **SIZES)
    with pytest.raises(UserError, match="readout='relu'"):
        create_bahdanau(attention=additive(), readout="relu", **SIZES)
    with pytest.raises(UserError, match="cell='elman'"):
        create_bahdanau(attention=additive(), cell="elman", **SIZES)
    with pytest.raises(UserError, match="encoder_width=7 must be even"):
        create_bahdanau(attention=additive(7), encoder_width=7, **SIZES)
    with pytest.raises(UserError, match="encoder_width=7 must be even"):
        create_conditional_gru(attention=additive(7), encoder_width=7, **SIZES)
    with pytest.raises(UserError, match="layers=0"):
        create_luong(attention=general(), layers=0, **SIZES)

"""Hard attention trained by its exact marginal likelihood."""

import itertools

import pytest
import torch
from hard_models import MODELS, SOURCE, TARGET_IN, TARGET_OUT, tiny

from seq2seq.attention import HardMarginalAlignment
from seq2seq.interfaces import PAD
from seq2seq.models import create_bahdanau, create_luong
from seq2seq.training.criterion import Criterion


def test_marginal_loss_sums_over_all_paths_without_input_feeding():
    """Value and gradient: every sequence of two positions, its probability times that of the words given it."""
    model = tiny(create_luong, HardMarginalAlignment(), input_feeding=False)
    parameters = list(model.parameters())
    decoded = model.decode(TARGET_IN, model.encode(SOURCE, SOURCE != PAD))
    loss = Criterion(0.0)(decoded, model.output, TARGET_OUT, torch.ones(1, 2, dtype=torch.bool))

    memory = model.encode(SOURCE, SOURCE != PAD)
    decoder, attentional = model.decoder, model.decoder.attentional
    hidden, _ = decoder.stack(decoder.embedding(TARGET_IN), decoder.start(memory).layers)
    keys = attentional.attention.score.project(memory.values)
    weights = torch.softmax(attentional.attention.score(hidden, keys), -1)[0]  # (T, S)
    total = 0.0
    for path in itertools.product(range(3), repeat=2):
        probability = 1.0
        for t, s in enumerate(path):
            features = attentional.combine(hidden[0, t], memory.values[0, s])
            word = torch.softmax(model.output(features), -1)[TARGET_OUT[0, t]]
            probability = probability * weights[t, s] * word
        total = total + probability
    torch.testing.assert_close(loss.loss, -total.log())
    torch.testing.assert_close(loss.nll, -total.log().detach())
    for own, expected in zip(
        torch.autograd.grad(loss.loss, parameters), torch.autograd.grad(-total.log(), parameters), strict=True
    ):
        torch.testing.assert_close(own, expected)


@pytest.mark.parametrize("readout", ["tanh", "maxout"])
@pytest.mark.parametrize(("build", "more"), MODELS)
def test_marginal_attention_predicts_from_the_best_position_in_evaluation(build, more, readout):
    """From the very features that this position has in the mixture of training; recurrence by the expected context."""
    if readout == "maxout":
        if build is not create_bahdanau:
            return
        more = {**more, "readout": readout}
    source = torch.tensor([[5, 6, 7, 3], [4, 3, PAD, PAD]])
    target = torch.tensor([[2, 4, 5], [2, 5, 4]])
    model = tiny(build, HardMarginalAlignment(), **more)
    with torch.no_grad():
        mixture = model.decode(target, model.encode(source, source != PAD)).mixture
        model.eval()
        decoded = model.decode(target, model.encode(source, source != PAD))
    assert decoded.mixture is None
    logs = mixture.log_weights.masked_fill(~mixture.mask, -torch.inf)
    torch.testing.assert_close(logs.exp().sum(-1), torch.ones(2, 3, dtype=torch.float64))
    best = logs.argmax(-1)[..., None, None].expand(-1, -1, 1, 4)
    torch.testing.assert_close(decoded.features, mixture.features.gather(2, best).squeeze(2))


def test_marginal_loss_ignores_padding():
    model = tiny(create_luong, HardMarginalAlignment(), input_feeding=False)
    source = torch.tensor([[5, 6, 7, 3], [4, 3, PAD, PAD]])
    target_in, target_out = torch.tensor([[2, 4, 5], [2, 5, PAD]]), torch.tensor([[4, 5, 3], [5, 3, PAD]])

    def loss(rows, source_size, target_size):
        rows = slice(*rows)
        source_rows, mask = source[rows, :source_size], target_out[rows, :target_size] != PAD
        decoded = model.decode(target_in[rows, :target_size], model.encode(source_rows, source_rows != PAD))
        return Criterion(0.1)(decoded, model.output, target_out[rows, :target_size], mask)

    whole, first, second = loss((0, 2), 4, 3), loss((0, 1), 4, 3), loss((1, 2), 2, 2)
    torch.testing.assert_close(whole.loss, first.loss + second.loss)
    torch.testing.assert_close(whole.nll, first.nll + second.nll)
    assert whole.tokens == 5

import math

import pytest
import torch
from precision import float32_approx
from torch import nn

from seq2seq.errors import UserError
from seq2seq.interfaces import PAD
from seq2seq.layers.embedding import Embedding, PositionedEmbedding, create_positions
from seq2seq.layers.output import OutputLayer


def test_embedding_returns_rows_times_scale():
    embedding = Embedding(9, 4, scale=2.0)
    tokens = torch.tensor([[3, 8, PAD]])
    expected = torch.stack([embedding.weight[3] * 2, embedding.weight[8] * 2, torch.zeros(4)])
    assert torch.equal(embedding(tokens)[0], expected)


def test_embedding_of_padding_gets_no_gradient():
    embedding = Embedding(5, 3)
    embedding(torch.tensor([PAD, 4, 4])).sum().backward()
    assert embedding.weight.grad[:, 0].tolist() == [0, 0, 0, 0, 2]


def test_embedding_and_tied_output_start_with_unit_variance():
    torch.manual_seed(0)
    embedding = Embedding(2000, 64, scale=8.0)
    features = embedding(torch.arange(1, 2000))
    assert abs(features.var().item() - 1) < 0.02
    assert abs(OutputLayer(64, 2000, embedding.weight)(features / features.std()).var().item() - 1) < 0.1


def test_word_dropout_zeroes_whole_words_in_training_only():
    torch.manual_seed(0)
    embedding = Embedding(50, 8, scale=2.0, word_dropout=0.25).double()
    tokens = torch.randint(1, 50, (200, 30))
    whole = embedding.eval()(tokens)
    assert torch.equal(whole, Embedding(50, 8, scale=2.0, weight=embedding.weight)(tokens))
    dropped = embedding.train()(tokens)
    gone = (dropped == 0).all(-1)
    assert abs(gone.double().mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / tokens.numel())
    torch.testing.assert_close(dropped[~gone], whole[~gone] / 0.75)
    dropped.sum().backward()
    counts = torch.bincount(tokens[~gone], minlength=50)
    torch.testing.assert_close(embedding.weight.grad[:, 0], counts.double() * 2.0 / 0.75)


def test_tied_embedding_and_output_share_one_parameter():
    embedding = Embedding(7, 3)
    output = OutputLayer(3, 7, embedding.weight)
    assert output.weight is embedding.weight is Embedding(7, 3, weight=output.weight).weight
    with pytest.raises(UserError, match=r"\(7, 3\).*\(8, 3\)"):
        Embedding(8, 3, weight=embedding.weight)
    with pytest.raises(UserError, match=r"\(7, 3\).*\(7, 4\)"):
        OutputLayer(4, 7, embedding.weight)


def test_output_layer_equals_loops():
    output = OutputLayer(3, 5).double()
    features = torch.randn(2, 4, 3, dtype=torch.float64)
    nn.init.normal_(output.bias)
    for b in range(2):
        for t in range(4):
            for v in range(5):
                score = sum(output.weight[v, d].item() * features[b, t, d].item() for d in range(3))
                assert output(features)[b, t, v].item() == pytest.approx(score + output.bias[v].item())


def test_positioned_embedding_with_sinusoids_is_the_sum():
    embed = PositionedEmbedding(Embedding(6, 4, 2.0), create_positions("sinusoidal", 4, None, 10), 0.5).eval()
    vector = embed(torch.tensor([[5, 5]]), offset=3)[0, 1].tolist()
    word = [2 * w for w in embed.embedding.weight[5].tolist()]
    place = [math.sin(4), math.cos(4), math.sin(4 / 100), math.cos(4 / 100)]
    assert vector == float32_approx([w + p for w, p in zip(word, place, strict=True)])


def test_positioned_embedding_with_position_width_concatenates():
    positions = create_positions("learned", 6, 2, 10)
    embed = PositionedEmbedding(Embedding(6, positions.embedding_width), positions, 0.0)
    features = embed(torch.tensor([[5, 3]]))
    assert features.shape == (1, 2, 6)
    assert torch.equal(features[0, :, :4], embed.embedding.weight[[5, 3]])
    assert torch.equal(features[0, :, 4:], positions.positions.weight[:2])


def test_positioned_embedding_without_positions_is_the_embedding():
    tokens = torch.tensor([[4, 5]])
    for kind in ("none", "rotary"):
        embed = PositionedEmbedding(Embedding(6, 4), create_positions(kind, 4, None, 10), 0.0)
        assert torch.equal(embed(tokens, offset=7), embed.embedding(tokens))


@pytest.mark.parametrize(
    "build",
    [
        lambda: Embedding(1, 4),
        lambda: Embedding(5, 0),
        lambda: Embedding(5, 4, word_dropout=1.0),
        lambda: OutputLayer(0, 5),
    ],
)
def test_embedding_and_output_with_impossible_sizes_are_refused(build):
    with pytest.raises(UserError):
        build()


def test_create_positions_of_unknown_kind_names_the_choices():
    with pytest.raises(UserError, match="'sinus' is unknown; choose one of sinusoidal, learned, rotary, none"):
        create_positions("sinus", 4, None, 10)


@pytest.mark.parametrize("kind", ["rotary", "none"])
def test_create_positions_with_width_but_without_vectors_is_refused(kind):
    with pytest.raises(UserError, match=f"position_width=2 needs positions=sinusoidal or learned, not {kind}"):
        create_positions(kind, 4, 2, 10)

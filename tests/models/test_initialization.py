"""Spread of initial weights, which no other test shows: a model also learns, if worse, from others."""

import math

import pytest
import torch

from seq2seq.attention import AdditiveScore
from seq2seq.layers.output import OutputLayer
from seq2seq.layers.positions import LearnedPositions
from seq2seq.layers.recurrent import create_layer
from seq2seq.models.encoder_decoder import create_vocabulary_layers
from seq2seq.models.recurrent_parts import further_input
from seq2seq.models.transformer_layers import FeedForward


def xavier(inputs: int, outputs: int) -> float:
    return math.sqrt(2 / (inputs + outputs))


@pytest.mark.parametrize(
    ("make", "deviation"),
    [
        (lambda: LearnedPositions(256, 100).weight, 1 / 16),
        (lambda: OutputLayer(256, 100).weight, 1 / 16),
        (lambda: FeedForward(64, 256).hidden.weight, xavier(64, 256)),
        (lambda: FeedForward(64, 256).output.weight, xavier(256, 64)),
        (lambda: AdditiveScore(2, 2, 10_000).vector, 0.01 / math.sqrt(3)),  # uniform between -0.01 and 0.01
        (lambda: further_input(64, create_layer("gru", 2, 128)).weight, xavier(64, 128)),
    ],
    ids=["positions", "output", "hidden", "feed-forward output", "additive score", "context"],
)
def test_initial_weights_have_their_standard_deviation(make, deviation):
    torch.manual_seed(0)
    weight = make().detach()
    assert weight.std().item() == pytest.approx(deviation, rel=0.05)
    assert abs(weight.mean().item()) < 0.05 * deviation


def test_output_layer_of_a_model_starts_with_zero_bias():
    for tied in (True, False):
        assert create_vocabulary_layers(9, 11, False, tied, 4, 4, 0.0)[2].bias.tolist() == [0.0] * 11

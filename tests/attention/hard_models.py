"""Small models with and without hard attention, for the tests of hard and marginal attention."""

import torch

from seq2seq.attention import AdditiveScore, Attention
from seq2seq.models import create_bahdanau, create_conditional_gru, create_luong

SOURCE, TARGET_IN, TARGET_OUT = torch.tensor([[5, 6, 3]]), torch.tensor([[2, 4]]), torch.tensor([[4, 3]])
SIZES = {"source_vocabulary": 8, "target_vocabulary": 6, "joint_vocabulary": False, "dropout": 0.0}


def tiny(build, alignment, **more):
    torch.manual_seed(10)
    model = build(attention=Attention(AdditiveScore(4, 4, 3), alignment), width=4, embedding_width=4, **SIZES, **more)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return model.double()


MODELS = [
    (create_bahdanau, {}),
    (create_bahdanau, {"layers": 2}),
    (create_luong, {}),
    (create_luong, {"input_feeding": False}),
    (create_conditional_gru, {"encoder_width": 4, "context_dropout": 0.0, "output_dropout": 0.0}),
]

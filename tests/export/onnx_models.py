"""Models to export to ONNX."""

import tiny
import torch

from seq2seq.interfaces import BOS, EOS, PAD

LUONG = {
    "_target_": "seq2seq.models.create_luong",
    "width": 16,
    "embedding_width": 16,
    "attention": {
        "_target_": "seq2seq.attention.Attention",
        "score": {"_target_": "seq2seq.attention.GeneralScore", "query_width": 16, "key_width": 16},
        "alignment": {
            "_target_": "seq2seq.attention.LocalPredictiveAlignment",
            "query_width": 16,
            "width": 16,
            "window": 2,
        },
    },
}


CONDITIONAL = {
    **tiny.BAHDANAU,
    "_target_": "seq2seq.models.create_conditional_gru",
    "encoder_width": 16,
    "tie_embeddings": True,
}


def talkative(model, joint=True, scale=2.5):
    """Random weights whose outputs end now and then and never want PAD or BOS."""
    bundle = tiny.bundle(model, 3, tiny.tokenizers(joint), scale)
    with torch.no_grad():
        bundle.model.output.bias.normal_(std=0.5)
        bundle.model.output.bias[[PAD, BOS]] = -40
        bundle.model.output.bias[EOS] = 2.5
    return bundle

"""Overrides that make each model of conf/model as small as its tests need."""

SMALL = {
    "rnn": ["model.width=8", "model.embedding_width=8"],
    "bahdanau": ["model.width=8", "model.embedding_width=8"],
    "conditional_gru": ["model.width=8", "model.encoder_width=8", "model.embedding_width=8"],
    "luong": ["model.width=8", "model.embedding_width=8"],
    "conv": ["model.width=8", "model.embedding_width=8", "model.layers=2"],
    "transformer": ["model.width=8", "model.feedforward_width=12", "model.heads=2", "model.layers=2"],
}

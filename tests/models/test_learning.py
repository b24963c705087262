"""Models learn to copy or to reverse short strings of digits: each recurrent model, each score, each alignment."""

import pytest
from learning import exact_match, train

SMALL = ["model.width=48", "model.embedding_width=48", "model.dropout=0"]
LENGTHS = (1, 4)

CASES = [  # model, score, alignment, task, updates
    ("rnn", None, None, "copy", 300),
    ("bahdanau", "additive", "soft", "copy", 180),
    ("bahdanau", "scaled_dot", "soft", "reverse", 180),
    ("bahdanau", "uniform", "soft", "copy", 300),
    ("bahdanau", "additive", "hard_straight_through", "reverse", 200),
    ("luong", "general", "soft", "copy", 180),
    ("luong", "gaussian", "soft", "reverse", 180),
    ("luong", "dot", "unnormalized", "copy", 180),
    ("luong", "general", "local_monotonic", "copy", 180),
    ("luong", "general", "local_predictive", "reverse", 180),
    ("luong", "general", "hard", "copy", 250),
]


@pytest.mark.parametrize(("name", "score", "alignment", "task", "updates"), CASES)
def test_learns(build_model, name, score, alignment, task, updates):
    overrides = [*SMALL]
    if score is not None:
        overrides += [f"model/attention/score={score}", f"model/attention/alignment={alignment}"]
    if alignment in ("local_monotonic", "local_predictive"):
        overrides.append("model.attention.alignment.window=1")
    model = build_model(name, overrides, source=14, target=14)
    train(model, task, updates, LENGTHS, size=128, learning_rate=0.01)
    assert exact_match(model, task, LENGTHS) >= 0.98

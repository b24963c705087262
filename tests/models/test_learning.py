"""Every part in conf/ learns short strings; `scripts/learning.py` trains all combinations, on longer ones."""

import pytest
import torch
from learning import THRESHOLD, Combination, combinations, digits, exact_match, updates

from seq2seq.commands.choices import groups
from seq2seq.interfaces import EOS, PAD
from seq2seq.search import GreedySearch, decode_batch

ALL = list(combinations())
SCORES = {"bahdanau": "score=additive", "luong": "score=general"}
"""Models whose scores and alignments combine freely, with the default score: here each score is tried with soft
attention, each alignment with the default score.
"""
CHOSEN = [one for one in ALL if "alignment=soft" in one.name or SCORES.get(one.model, "") in one.name]
COPY = [
    "bahdanau score=additive alignment=soft",
    "luong score=general alignment=local_monotonic",
    "transformer window=1 positions=rotary norm=pre",
]
QUICK = {one.model: one for one in reversed(CHOSEN) if not one.cannot and "alignment=hard" not in one.name}
"""One combination of each model, which is not marked slow; sampled attention takes longer."""


def parameter(combination: Combination):
    slow = [] if combination in QUICK.values() else [pytest.mark.slow]
    return pytest.param(combination, id=combination.name, marks=slow)


def test_combinations_include_every_model():
    assert {combination.model for combination in ALL} == {*groups()["model"]} - {"checkpoint"}
    assert len({combination.name for combination in ALL}) == len(ALL)


def small(build_model, combination: Combination) -> torch.nn.Module:
    sizes = ["model.width=32"]
    if combination.model != "transformer":
        sizes.append("model.embedding_width=32")
    return build_model(combination.model, [*combination.parts, *combination.sizes, *sizes], source=14, target=14)


def learns(model: torch.nn.Module, task: str, longest: int, total: int, goal: float) -> bool:
    batch = digits(task, 300, (1, longest), torch.Generator().manual_seed(2))
    training = updates(model, task, (1, longest), total, rate=0.01, size=32)
    return any(exact_match(model, batch) >= goal for update in training if update % 25 == 0)


@pytest.mark.parametrize("combination", [parameter(c) for c in CHOSEN if not c.cannot])
def test_combination_learns_to_reverse(build_model, combination):
    assert learns(small(build_model, combination), "reverse", longest=2, total=200, goal=0.9)


@pytest.mark.slow
@pytest.mark.parametrize("combination", [c for c in ALL if c.name in COPY], ids=lambda c: c.name)
def test_combination_learns_to_copy(build_model, combination):
    assert learns(small(build_model, combination), "copy", longest=3, total=400, goal=THRESHOLD)


@pytest.mark.slow
@pytest.mark.parametrize("combination", [c for c in ALL if c.cannot], ids=lambda c: c.name)
def test_model_without_order_answers_a_string_and_its_reverse_alike(build_model, combination):
    """It answers a string and its reverse alike, so that at most one of the two answers is right."""
    model = small(build_model, combination).double()
    for _ in updates(model, "copy", (1, 3), 20, rate=0.01, size=32):
        pass
    model.eval()
    source = torch.tensor([[5, 6, 7, EOS], [7, 6, 5, EOS], [6, 9, EOS, PAD], [9, 6, EOS, PAD]])
    answers = [best.tokens for (best, *_) in decode_batch(model, GreedySearch(), source, source != PAD)]
    assert answers[0] == answers[1] and answers[2] == answers[3]

"""Synthetic run folders: what training and evaluation leave behind, written in a second without either."""

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from seq2seq.evaluation.metrics import evaluate_texts
from seq2seq.evaluation.words import count_words

ENGLISH_TEXT = "the old young man woman dog house book garden sees reads finds buys because that who today often small"
ENGLISH = ENGLISH_TEXT.split()
GERMAN_TEXT = "der alte junge Mann Frau Hund Haus Buch Garten sieht liest findet kauft weil dass wer heute oft klein"
GERMAN = GERMAN_TEXT.split()

Translate = Callable[[list[str], random.Random], list[str]]


def fixed_context(words: list[str], rng: random.Random) -> list[str]:
    """Right at the beginning, then more and more of what was not said, and it repeats itself."""
    kept = words[:8]
    for word in words[8:]:
        kept.append(word if rng.random() < 0.35 else kept[-1] if rng.random() < 0.3 else rng.choice(GERMAN))
    return kept


def attentive(error: float) -> Translate:
    """The same rate of wrong words at any length."""

    def translate(words: list[str], rng: random.Random) -> list[str]:
        return [rng.choice(GERMAN) if rng.random() < error else word for word in words if rng.random() > error / 3]

    return translate


MODELS: dict[str, Translate] = {
    "rnn": fixed_context,
    "bahdanau": attentive(0.09),
    "transformer": attentive(0.04),
    "conv": attentive(0.07),
    "luong": attentive(0.1),
}


def make_test_set(segments: int, seed: int = 1, longest: int = 70) -> tuple[list[str], list[str]]:
    """Sources and word-for-word references of 3 to `longest` words."""
    rng = random.Random(seed)
    sources, references = [], []
    for _ in range(segments):
        numbers = rng.choices(range(len(ENGLISH)), k=rng.randint(3, longest))
        sources.append(" ".join(ENGLISH[n] for n in numbers) + ".")
        references.append(" ".join(GERMAN[n] for n in numbers) + ".")
    return sources, references


def attention_of(sources: Sequence[str], hypotheses: Sequence[str]) -> list[dict[str, Any]]:
    """A blurred diagonal for the first few sentences, with SentencePiece's marks and EOS on both sides."""
    examples = []
    for row, (source, hypothesis) in enumerate(zip(sources[:4], hypotheses[:4], strict=True)):
        source_tokens = ["\u2581" + word for word in source.split()] + ["</s>"]
        target_tokens = ["\u2581" + word for word in hypothesis.split()] + ["</s>"]
        weights = []
        for t in range(len(target_tokens)):
            middle = t / max(1, len(target_tokens) - 1) * (len(source_tokens) - 1)
            raw = [math.exp(-((s - middle) ** 2)) for s in range(len(source_tokens))]
            weights.append([value / sum(raw) for value in raw])
        examples.append({"row": row, "source": source_tokens, "target": target_tokens, "weights": weights})
    return examples


def write_run(
    folder: Path,
    model: str = "transformer",
    seed: int = 1,
    segments: int = 40,
    *,
    data: str = "grammar",
    tokenize: str = "13a",
    lowercase: bool = False,
    test_seed: int = 1,
    longest: int = 70,
    config: dict[str, Any] | None = None,
    splits: Sequence[str] = ("test",),
) -> Path:
    """Write a finished run of a make-believe model into `folder`."""
    folder.mkdir(parents=True)
    scores = {}
    for split in splits:
        sources, references = make_test_set(segments, test_seed + len(split), longest)
        rng = random.Random(f"{model} {seed} {split}")
        hypotheses = [" ".join(MODELS[model](line.removesuffix(".").split(), rng)) + "." for line in references]
        for kind, lines in (("src", sources), ("ref", references), ("hyp", hypotheses)):
            (folder / f"{split}.{kind}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        if model != "rnn":
            lines = [json.dumps(example) for example in attention_of(sources, hypotheses)]
            (folder / f"{split}.attention.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        scores[split] = {
            **evaluate_texts(hypotheses, references, sources, tokenize=tokenize, lowercase=lowercase, samples=40),
            "perplexity": 4.2 if model == "rnn" else 1.6,
            "nll": 0.5,
            "decoding": {"seconds": 3.0, "sentences_per_second": 210.0, "search": {"beam_size": 5}},
        }
    metrics = {
        "name": folder.name,
        "model": model,
        "data": data,
        "seed": seed,
        "languages": ["en", "de"],
        "parameters": 2_400_000 + 90_000 * len(model),
        "training": {
            "updates": 3000,
            "epochs": 4,
            "seconds": 1234.0,
            "target_tokens": 6_000_000,
            "target_tokens_per_second": 5100.0,
            "best_update": 2800,
            "best_valid_bleu": scores[splits[0]]["bleu"]["score"],
            "threads": 2,
        },
        "splits": scores,
        "versions": {"seq2seq": "0.1.0", "torch": "2.6.0"},
        "commit": "abc1234",
        "created": "2025-01-01T00:00:00+00:00",
    }
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    own = config or {
        "model": {"_target_": f"seq2seq.models.create_{model}", "width": 256},
        "trainer": {"max_steps": 3000},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump({**own, "seed": seed, "run_dir": str(folder)}), encoding="utf-8")
    final = scores[splits[0]]["bleu"]["score"]
    history = []
    for update in range(50, 3001, 50):
        event = {"update": update, "seconds": update * 0.41, "train_loss": 5 * math.exp(-update / 900) + 1}
        if update % 250 == 0:
            share = 1 - math.exp(-update / (900 if model == "transformer" else 600))
            event |= {"valid_bleu": final * share, "valid_perplexity": 60 * math.exp(-update / 500) + 2}
        history.append(json.dumps(event))
    (folder / "history.jsonl").write_text("\n".join(history) + "\n", encoding="utf-8")
    counts = count_words([" ".join(GERMAN[:n]) for n in range(1, len(GERMAN)) for _ in range(n)])
    (folder / "word_counts.json").write_text(json.dumps(counts), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Path]:
    return write_run

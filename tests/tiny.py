"""Small models with tokenizers, for tests. Run as a script it trains the bundle kept in tests/inference/kept."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from seq2seq.data.batching import collate
from seq2seq.data.tokenizer import TokenizerPair, TokenizerSettings, train_tokenizer
from seq2seq.inference.bundle import Bundle
from seq2seq.inference.bundle_config import describe
from seq2seq.inference.safe_build import build
from seq2seq.inference.translator import Translator
from seq2seq.interfaces import PAD

WORDS = """the a cat dog house tree sees eats likes big small red green old new never always in under with""".split()  # noqa: SIM905
TRANSFORMER = {
    "_target_": "seq2seq.models.create_transformer",
    "width": 16,
    "layers": 1,
    "heads": 2,
    "feedforward_width": 32,
    "dropout": 0.1,
}
BAHDANAU = {
    "_target_": "seq2seq.models.create_bahdanau",
    "width": 16,
    "embedding_width": 16,
    "dropout": 0.1,
    "attention": {
        "_target_": "seq2seq.attention.Attention",
        "score": {"_target_": "seq2seq.attention.AdditiveScore", "query_width": 16, "key_width": 16, "width": 16},
        "alignment": {"_target_": "seq2seq.attention.SoftAlignment"},
    },
}
RNN = {"_target_": "seq2seq.models.create_rnn", "width": 16, "embedding_width": 16, "dropout": 0.1}
KEPT_MODEL = {
    "_target_": "seq2seq.models.create_bahdanau",
    "width": 32,
    "embedding_width": 32,
    "dropout": 0.05,
    "attention": {
        "_target_": "seq2seq.attention.Attention",
        "score": {"_target_": "seq2seq.attention.AdditiveScore", "query_width": 32, "key_width": 32, "width": 32},
        "alignment": {"_target_": "seq2seq.attention.SoftAlignment"},
    },
}
SEARCH = {"_target_": "seq2seq.search.BeamSearch", "beam_size": 3, "max_length_a": 1.5, "max_length_b": 5}


def sentences(count: int, seed: int, longest: int = 12) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, longest))) + draw.choice(".!?") for _ in range(count)]


def tokenizers(joint: bool = True, byte_fallback: bool = False) -> TokenizerPair:
    def train(seed: int):
        texts = sentences(200, seed)
        vocabulary = 60 + 256 * byte_fallback
        settings = TokenizerSettings(vocabulary=vocabulary, character_coverage=1.0, byte_fallback=byte_fallback)
        return train_tokenizer(lambda: texts, len(texts), settings)

    one = train(1)
    return TokenizerPair(one, one if joint else train(2))


def bundle(
    model: dict[str, Any] = TRANSFORMER, seed: int = 0, pair: TokenizerPair | None = None, scale: float = 2.5
) -> Bundle:
    """Random weights, made larger so that outputs vary."""
    pair = pair or tokenizers()
    torch.manual_seed(seed)
    built = build(
        model,
        "model",
        source_vocabulary=len(pair.source),
        target_vocabulary=len(pair.target),
        joint_vocabulary=pair.joint,
    )
    with torch.no_grad():
        for parameter in built.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return Bundle(built.eval(), pair, describe(model, SEARCH, pair, "en", "xx"))


def secret(text: str) -> str:
    """The language that the kept bundle translates to: each word spelled backwards."""
    return re.sub(r"[a-z]+", lambda word: word[0][::-1], text)


def trained(steps: int = 900) -> Bundle:
    """A Bahdanau model that has learned `secret` tolerably; well enough that outputs end and depend on their source."""
    train = sentences(3000, 11)
    settings = TokenizerSettings(vocabulary=120, character_coverage=1.0, byte_fallback=False)
    one = train_tokenizer(lambda: [*train, *map(secret, train)], 2 * len(train), settings)
    made = bundle(KEPT_MODEL, 0, TokenizerPair(one, one), scale=1.0)
    model, optimizer = made.model.train(), torch.optim.Adam(made.model.parameters(), 3e-3)
    pairs = list(zip(one.encode(train), one.encode([secret(text) for text in train]), strict=True))
    draw = random.Random(1)
    for _ in range(steps):
        batch = collate(draw.sample(pairs, 48), list(range(48)))
        features = model.decode(
            batch.target_in, model.encode(batch.source, batch.source_mask), batch.target_mask
        ).features
        loss = cross_entropy(model.logits(features).flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")
    return Bundle(model.eval(), made.tokenizers, made.config)


if __name__ == "__main__":
    folder = Path(__file__).parent / "inference" / "kept"
    new = trained()
    new.save(folder / "bundle")
    found = Translator([new]).translate(sentences(30, 77))
    lines = [
        json.dumps({"source": source, "text": one.text, "score": round(one.score, 6)})
        for source, one in zip(sentences(30, 77), found, strict=True)
    ]
    (folder / "expected.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

"""Scores of a run beyond those of plain texts: alignment error rates, the parts of joined segments."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from seq2seq.data.grammar.corpus import GrammarCorpus
from seq2seq.data.tokenizer import TokenizerSettings
from seq2seq.data.translation_data import TranslationData
from seq2seq.errors import UserError
from seq2seq.evaluation.alignment_error import alignment_error_rate
from seq2seq.inference.bundle import Bundle
from seq2seq.inference.bundle_config import describe
from seq2seq.inference.text_windows import Batching
from seq2seq.inference.translator import Translator
from seq2seq.pipeline.scoring import (
    alignment_error,
    reference_parts,
    score_split,
    segment_groups,
    with_beam_size,
    write_attention,
    write_word_counts,
)
from seq2seq.run import Run
from seq2seq.search import BeamSearch, GreedySearch, Sampling

ATTENTIONS = {
    "conv": ("conv", []),
    "transformer": ("transformer", ["model.heads=2"]),
    "transformer with a window": ("transformer", ["model.window=2", "model.heads=2"]),
    "bahdanau": ("bahdanau", []),
    "luong": ("luong", []),
    "luong local-m": ("luong", ["model/attention/alignment=local_monotonic"]),
    "luong local-p": ("luong", ["model/attention/alignment=local_predictive"]),
    "luong hard": ("luong", ["model/attention/alignment=hard"]),
    "bahdanau hard": ("bahdanau", ["model/attention/alignment=hard_straight_through"]),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TranslationData:
    cache = tmp_path_factory.mktemp("cache")
    corpus = GrammarCorpus(seed=1, sizes={"train": 200, "valid": 14, "test": 14}, maximum_words=20, cache_dir=cache)
    settings = TokenizerSettings(kind="bpe", vocabulary=500)
    data = TranslationData(corpus, settings, concatenation={"test": [1, 3]}, cache_dir=cache)
    data.prepare()
    return data


@pytest.mark.slow
@pytest.mark.parametrize("name, overrides", ATTENTIONS.values(), ids=ATTENTIONS)
def test_every_attention_has_an_alignment_error_rate(name, overrides, data, build_model, tmp_path: Path) -> None:
    size = data.vocabulary()["source_vocabulary"]
    narrow = ["model.width=8"] + (["model.embedding_width=8"] if name != "transformer" else [])
    model = build_model(name, [*narrow, *overrides], source=size, target=size).eval()
    config = describe({"_target_": f"seq2seq.models.create_{name}"}, None, data.tokenizers, "en", "de")
    search = GreedySearch(max_length_a=0.0, max_length_b=3)
    translator = Translator([Bundle(model, data.tokenizers, config)], search)
    entry = score_split(translator, data, "test", {}, Run(tmp_path))
    assert 0 < entry["alignment_error_rate"] <= 1
    lines = [json.loads(line) for line in (tmp_path / "test.attention.jsonl").read_text().splitlines()]
    weights = [weight for line in lines for row in line["weights"] for weight in row]
    assert lines and all(len(row) == len(line["source"]) for line in lines for row in line["weights"])
    assert all(-1e-6 <= weight <= 1 + 1e-6 for weight in weights)
    if "hard" in str(overrides):
        assert set(weights) <= {0.0, 1.0}


def test_the_alignment_error_rate_is_that_of_the_attention_over_words(data: TranslationData) -> None:
    """A model that looks at the first piece of the first gold source word of each target word."""
    gold = data.table("test").column("alignment")
    sources, references = data.pairs("test")
    first = [{target: source for source, target in sorted(links, reverse=True)} for links in gold]

    def words(text: str) -> list[int]:
        """The word of each piece."""
        pieces = data.tokenizers.target.pieces(data.tokenizers.target.encode([text])[0])
        count, found = -1, []
        for piece in pieces:
            count += piece.startswith("\u2581")
            found.append(count)
        return found

    def translate(texts, search, alignment, prefixes):
        assert (texts, prefixes) == (sources, references) and alignment
        for source, reference, links in zip(sources, references, first, strict=True):
            columns, rows = words(source), words(reference)
            weights = torch.zeros(len(rows) + 2, len(columns) + 1)
            for row, word in enumerate(rows):
                if word in links:
                    weights[row, columns.index(links[word])] = 1.0
            tokens = data.tokenizers.source.pieces(data.tokenizers.source.encode([source])[0])
            yield SimpleNamespace(source_tokens=[*tokens, "</s>"], alignment=weights)

    expected = alignment_error_rate([[(s, t) for t, s in links.items()] for links in first], gold)
    translator = SimpleNamespace(translate=translate, batching=Batching())
    assert alignment_error(translator, data, "test") == pytest.approx(expected)
    assert 0 <= expected < 0.3


def test_long_sources_are_aligned_whole(data: TranslationData, build_model) -> None:
    size = data.vocabulary()["source_vocabulary"]
    model = build_model("luong", ["model.width=8", "model.embedding_width=8"], source=size, target=size).eval()
    config = describe({"_target_": "seq2seq.models.create_luong"}, None, data.tokenizers, "en", "de")
    bundle = Bundle(model, data.tokenizers, config)
    whole, split = (
        alignment_error(Translator([bundle], None, Batching(max_source_length=n)), data, "test") for n in (512, 4)
    )
    assert whole == split


def test_references_are_cut_where_they_were_joined(data: TranslationData) -> None:
    _, references = data.pairs("test")
    assert reference_parts(data, "test_x3") == [references[row : row + 3] for row in range(0, 12, 3)]
    assert reference_parts(data, "test") is None and reference_parts(data, "test_joined") is None


def test_segments_joined_in_several_ways_are_grouped(data: TranslationData, build_model, tmp_path: Path) -> None:
    groups = [row // 3 for row in range(12)] + [4, 5] + [0, 1, 2, 3]  # the last two are in no segment of three
    assert segment_groups(data, "test_joined") == groups
    assert segment_groups(data, "test") is None and segment_groups(data, "test_x3") is None
    size = data.vocabulary()["source_vocabulary"]
    model = build_model("luong", ["model.width=8", "model.embedding_width=8"], source=size, target=size).eval()
    config = describe({"_target_": "seq2seq.models.create_luong"}, None, data.tokenizers, "en", "de")
    translator = Translator([Bundle(model, data.tokenizers, config)], GreedySearch(max_length_a=0.0, max_length_b=3))
    entry = score_split(translator, data, "test_joined", {}, Run(tmp_path))
    assert entry["bootstrap"]["groups"] == 6 and entry["bleu"]["low"] is None
    assert json.loads((tmp_path / "test_joined.groups.json").read_text()) == groups


def test_what_was_cut_and_split_is_counted(
    data: TranslationData, build_model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    size = data.vocabulary()["source_vocabulary"]
    model = build_model("luong", ["model.width=8", "model.embedding_width=8"], source=size, target=size).eval()
    config = describe({"_target_": "seq2seq.models.create_luong"}, None, data.tokenizers, "en", "de")
    search = GreedySearch(max_length_a=0.0, max_length_b=1)
    translator = Translator([Bundle(model, data.tokenizers, config)], search, Batching(max_source_length=30))
    found = list(translator.translate(data.pairs("test")[0]))
    cut, split = sum(not one.finished for one in found), sum(one.parts > 1 for one in found)
    assert cut and 0 < split < len(found)
    with caplog.at_level("INFO", "seq2seq"):
        entry = score_split(translator, data, "test", {}, None, beam_sizes=[1])
    assert (entry["decoding"]["cut"], entry["decoding"]["split"]) == (cut, split)
    assert entry["by_beam_size"][0]["cut"] == cut
    said = f"test: {cut} translations cut at the maximum length, {split} sources split as too long"
    assert caplog.messages.count(said) == 1


def test_the_attention_is_that_of_the_translations(data: TranslationData, build_model, tmp_path: Path) -> None:
    """Also where they are drawn."""
    size = data.vocabulary()["source_vocabulary"]
    model = build_model("luong", ["model.width=8", "model.embedding_width=8"], source=size, target=size).eval()
    config = describe({"_target_": "seq2seq.models.create_luong"}, None, data.tokenizers, "en", "de")
    search = Sampling(max_length_a=0.0, max_length_b=5)
    translator = Translator([Bundle(model, data.tokenizers, config)], search)
    sources = data.pairs("test")[0]
    found = list(translator.translate(sources))
    write_attention(translator, sources, tmp_path / "attention")
    lines = [json.loads(line) for line in (tmp_path / "attention").read_text().splitlines()]
    assert [line["row"] for line in lines] != [*range(len(lines))]
    assert all(line["target"] == found[line["row"]].tokens for line in lines)


def test_another_beam_changes_nothing_else() -> None:
    assert with_beam_size(BeamSearch(beam_size=4, length_penalty=0.3), 7) == BeamSearch(beam_size=7, length_penalty=0.3)
    greedy = GreedySearch(no_repeat_ngram=3, max_length_b=99)
    assert with_beam_size(greedy, 2) == BeamSearch(beam_size=2, no_repeat_ngram=3, max_length_b=99)
    with pytest.raises(UserError, match="sampling"):
        with_beam_size(Sampling(), 2)
    with pytest.raises(UserError, match="beam_size"):
        with_beam_size(BeamSearch(), 0)


@pytest.mark.parametrize(
    ("language", "texts", "counts"),
    [
        ("zho_Hans", ["我 们我", "们。"], {"我": 2, "们": 2, "。": 1}),
        (None, ["今天我们在公园"], dict.fromkeys("今天我们在公园", 1)),
        ("de", ["ein Hund.", "ein"], {"ein": 2, "Hund": 1, ".": 1}),
    ],
)
def test_word_counts_are_of_characters_in_languages_without_spaces(tmp_path, language, texts, counts):
    table = SimpleNamespace(batches=lambda column: iter([{column: texts}]))
    data = SimpleNamespace(streaming=False, target_language=language, table=lambda split: table)
    write_word_counts(data, tmp_path / "word_counts.json")
    assert json.loads((tmp_path / "word_counts.json").read_text(encoding="utf-8")) == counts

import itertools
import math
import re
import sys
from dataclasses import replace

import pytest
import tiny
import torch
from precision import assert_float32_close, float32_approx

from seq2seq.cli import run
from seq2seq.errors import UserError
from seq2seq.export import ctranslate2 as exporter
from seq2seq.export import export_ctranslate2
from seq2seq.export.verification import TOLERANCE, sample_ids, verify
from seq2seq.inference.bundle import load_bundle
from seq2seq.inference.ctranslate2_engine import decoding_options
from seq2seq.inference.export_folder import Export
from seq2seq.inference.line_translation import translate_file
from seq2seq.inference.translator import Translator
from seq2seq.interfaces import BOS, EOS, PAD, UNK, Hypothesis
from seq2seq.search import BeamSearch, GreedySearch, Sampling, Scored

TEXTS = tiny.sentences(24, seed=31)
SAMPLE = tiny.sentences(12, seed=32)
KINDS = {
    "pre-norm, joint": ({}, True),
    "post-norm, learned, two vocabularies": ({"norm": "post", "positions": "learned", "maximum_positions": 90}, False),
    "uneven, no positions, untied": (
        {"encoder_layers": 2, "decoder_layers": 3, "alignment_layer": 1, "positions": "none", "tie_embeddings": False},
        True,
    ),
}


def talkative(changes, joint=True):
    """A Transformer of random weights whose outputs end now and then and never want PAD or BOS."""
    bundle = tiny.bundle({**tiny.TRANSFORMER, **changes}, 3, tiny.tokenizers(joint))
    with torch.no_grad():
        bundle.model.output.bias.normal_(std=0.5)
        bundle.model.output.bias[[PAD, BOS]] = -40
        bundle.model.output.bias[EOS] = 2.5
    return bundle


@pytest.fixture(scope="module", params=list(KINDS))
def exported(request, tmp_path_factory):
    """(our translator, CTranslate2's, the export's verification) of each kind of model."""
    bundle = talkative(*KINDS[request.param])
    folder = tmp_path_factory.mktemp("export") / "model"
    found = export_ctranslate2(bundle, folder, sample=SAMPLE)
    return Translator([bundle]), Translator.load(folder, engine="ctranslate2"), found


def test_greedy_translations_scores_and_alignments_equal_torch(exported):
    ours, theirs, found = exported
    assert (found.segments, found.greedy) == (12, 1.0)
    assert found.log_probability < TOLERANCE
    assert "100.0%" in str(found)
    for search in (GreedySearch(), GreedySearch(length_penalty=0.0, max_length_a=0.5, max_length_b=2)):
        pairs = list(zip(*(one.translate(TEXTS, search=search, alignment=True) for one in (ours, theirs)), strict=True))
        assert {a.finished for a, _ in pairs} == {True, False}
        for a, b in pairs:
            assert (b.tokens, b.text, b.finished, b.parts) == (a.tokens, a.text, a.finished, a.parts)
            assert b.score == float32_approx(a.score)
            assert b.nbest[0].log_probability == float32_approx(a.nbest[0].log_probability)
            assert_float32_close(b.alignment, a.alignment)


def test_beams_are_ranked_by_the_scores_of_torch(exported):
    ours, theirs, _ = exported
    search = BeamSearch(beam_size=4, n_best=3, length_penalty=0.7)
    found = list(theirs.translate(TEXTS, search=search, alignment=True))
    candidates = [(text, one) for text, t in zip(TEXTS, found, strict=True) for one in t.nbest if one.finished]
    assert len(candidates) > len(TEXTS)
    scored = ours.score([text for text, _ in candidates], [one.tokens for _, one in candidates], search=search)
    again = theirs.score([text for text, _ in candidates], [one.tokens for _, one in candidates], search=search)
    for (_, one), own, other in zip(candidates, scored, again, strict=True):
        assert one.score == float32_approx(own.score)
        assert other.token_log_probabilities == float32_approx(own.token_log_probabilities)
    for one in found:
        assert [c.score for c in one.nbest if c.finished] == sorted(c.score for c in one.nbest if c.finished)[::-1]
    wanted = list(ours.translate(TEXTS, search=search, alignment=True))
    both = ((a, b) for one, other in zip(wanted, found, strict=True) for a in one.nbest for b in other.nbest)
    same = [(a, b) for a, b in both if a.tokens == b.tokens]
    assert len(same) > len(TEXTS)
    for a, b in same:
        assert_float32_close(b.alignment, a.alignment)


@pytest.mark.parametrize(
    "search",
    [
        BeamSearch(beam_size=4, n_best=4, max_length_a=0.5, max_length_b=0),
        BeamSearch(beam_size=3, n_best=3, length_penalty=0.0, max_length_a=0.3, max_length_b=2, min_length_b=4),
        GreedySearch(max_length_a=0.5, max_length_b=1, min_length_b=5),
    ],
)
def test_translations_by_ctranslate2_do_not_depend_on_the_batch(exported, search):
    _, theirs, _ = exported
    together = theirs.translate_window(TEXTS, search=search)
    assert not all(one.finished for one in together)
    for text, found in zip(TEXTS, together, strict=True):
        (alone,) = theirs.translate_window([text], search=search)
        assert [c.tokens for c in found.nbest] == [c.tokens for c in alone.nbest]
        assert [c.finished for c in found.nbest] == [c.finished for c in alone.nbest]
        assert [c.score for c in found.nbest] == float32_approx([c.score for c in alone.nbest])
        assert len({tuple(c.tokens) for c in found.nbest}) == len(found.nbest)


def test_search_options_take_effect_in_ctranslate2(exported):
    _, theirs, _ = exported
    options = {"no_repeat_ngram": 2, "suppress_unknown": True, "min_length_b": 4, "max_length_a": 0.0}
    for search in (GreedySearch(max_length_b=7, **options), BeamSearch(max_length_b=7, beam_size=3, **options)):
        for one in theirs.translate(TEXTS, search=search):
            ids = [theirs._vocabulary[token] for token in one.tokens]
            grams = list(itertools.pairwise(ids))
            assert 4 <= len(ids) <= 7
            assert len(set(grams)) == len(grams)
            assert UNK not in ids


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (Sampling(), "greedy or search=beam"),
        (BeamSearch(beam_size=4, diverse_groups=2, diversity_strength=0.5), "diverse_groups"),
        (GreedySearch(normalization="gnmt"), "gnmt"),
        (BeamSearch(coverage_penalty=0.1), "coverage_penalty"),
        (BeamSearch(min_length_a=0.1), "min_length_a"),
        (GreedySearch(shortlist=5), "shortlist"),
    ],
)
def test_search_that_ctranslate2_lacks_is_refused(search, message):
    with pytest.raises(UserError, match=message):
        decoding_options(search)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": "rotary"}, "rotary"),
        ({"position_width": 4, "tie_embeddings": False}, "position_width"),
        ({"window": 3}, "window"),
    ],
)
def test_export_of_an_inexpressible_transformer_is_refused(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        export_ctranslate2(talkative(changes), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_export_of_another_model_or_quantization_is_refused(tmp_path):
    with pytest.raises(UserError, match="model=transformer only"):
        export_ctranslate2(tiny.bundle(tiny.BAHDANAU), tmp_path / "model")
    with pytest.raises(UserError, match="quantization='int3'"):
        export_ctranslate2(talkative({}), tmp_path / "model", "int3")


@pytest.mark.slow
def test_quantized_export_is_smaller_and_reports_its_agreement(tmp_path, monkeypatch):
    bundle = talkative({"width": 64, "feedforward_width": 128})
    before = {name: value.clone() for name, value in bundle.model.state_dict().items()}
    monkeypatch.setattr(exporter, "POSITIONS", 200)
    for kind in (None, "int8"):
        found = export_ctranslate2(bundle, tmp_path / str(kind), kind)
    assert 0 <= found.greedy <= 1
    assert found.segments == 32
    assert found.log_probability > 1e-3
    assert all(torch.equal(value, before[name]) for name, value in bundle.model.state_dict().items())
    assert "int8" in exporter.QUANTIZATIONS
    sizes = [weights_size(tmp_path / name) for name in ("None", "int8")]
    assert sizes[1] < sizes[0] / 2
    assert len(list(Translator.load(tmp_path / "int8").translate(TEXTS))) == len(TEXTS)
    assert [Export.load(tmp_path / name).digest() for name in ("None", "int8")] == [bundle.digest(), None]
    assert "The int8 weights were not scored" in (tmp_path / "int8" / "README.md").read_text()


def weights_size(folder):
    """Bytes of the weights without the table of positions, which stays in float32."""
    return (folder / "model.bin").stat().st_size - 4 * 64 * exporter.POSITIONS


def test_export_that_does_not_agree_is_not_kept(tmp_path, monkeypatch):
    right = exporter.position_vectors
    monkeypatch.setattr(exporter, "position_vectors", lambda embed: right(embed)[1:])
    with pytest.raises(UserError, match="does not agree"):
        export_ctranslate2(talkative({}), tmp_path / "model", sample=SAMPLE)
    assert not list(tmp_path.iterdir())


def test_blank_sample_is_refused(tmp_path):
    with pytest.raises(UserError, match="sample"):
        export_ctranslate2(talkative({}), tmp_path / "model", sample=["", "  "])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_export_is_verified_with_the_search_of_the_bundle(tmp_path):
    bundle = talkative({})
    for number, (search, told) in enumerate(
        [
            ({"_target_": "seq2seq.search.GreedySearch"}, "same tokens in 100.0%; log-"),
            ({"_target_": "seq2seq.search.GreedySearch", "min_length_b": 30}, "100.0%, its own search in 100.0%; log-"),
            ({"_target_": "seq2seq.search.BeamSearch", "beam_size": 4}, ", its own search in "),
            ({"_target_": "seq2seq.search.BeamSearch", "normalization": "gnmt"}, "here: search.normalization=gnmt is"),
            ({"_target_": "seq2seq.search.Sampling"}, "search= here: engine=ctranslate2 searches with search=greedy"),
        ]
    ):
        own = replace(bundle, config={**bundle.config, "search": search})
        assert told in str(export_ctranslate2(own, tmp_path / str(number), sample=SAMPLE))
    refused = Translator.load(tmp_path / "3", engine="ctranslate2")
    with pytest.raises(UserError, match="normalization=gnmt"):
        list(refused.translate(TEXTS))


@pytest.mark.parametrize("sample", [None, [" ".join(["a cat"] * count) for count in range(1, 40)]])
def test_sample_leaves_room_for_the_longest_translation(sample):
    chosen = sample_ids(talkative({}), sample, 40)
    longest = 2 * (max(map(len, chosen)) + 1) + 10
    assert 30 < longest <= 40
    assert max(map(len, sample_ids(talkative({}), sample))) > max(map(len, chosen))


def test_difference_that_is_not_finite_counts_as_infinite():
    class Engine:
        def __init__(self, *values):
            self.values = list(values)

        def check(self, search):
            pass

        def decode(self, sources, *_):
            return [[Hypothesis([5], 0.0, 0.0, True)] for _ in sources]

        def score(self, sources, *_):
            return [Scored([5], self.values, 0.0, 0.0) for _ in sources]

    for value in (math.nan, -math.inf):
        found = verify(Engine(-1.0, -1.0), Engine(-1.0, value), [[5]], GreedySearch())
        assert found.log_probability == math.inf and not found.agrees


def test_translations_by_ctranslate2_stay_within_the_positions(tmp_path):
    export_ctranslate2(talkative({"positions": "learned", "maximum_positions": 40}), tmp_path / "model", sample=SAMPLE)
    translator, text = Translator.load(tmp_path / "model"), " ".join(TEXTS)
    (one,) = translator.translate(text, search=GreedySearch(max_length_a=9, min_length_b=60))
    assert one.parts > 1
    assert len(one.tokens) == 39 * one.parts
    with pytest.raises(UserError, match=r"the source of pair 1 has \d+ tokens, but the model has positions for 39"):
        list(translator.score([text], ["the cat"]))


def test_unavailable_search_is_refused_before_anything_is_written(exported, tmp_path):
    theirs = exported[1]
    (tmp_path / "in.txt").write_text("the cat\n")
    (tmp_path / "out.txt").write_text("kept\n")
    with pytest.raises(UserError, match="greedy or search=beam"):
        translate_file(theirs, tmp_path / "in.txt", tmp_path / "out.txt", search="sampling")
    assert (tmp_path / "out.txt").read_text() == "kept\n"


def test_prefixes_with_ctranslate2_are_refused(exported):
    with pytest.raises(UserError, match="prefixes"):
        list(exported[1].translate(["the cat"], prefixes=["a"]))


def test_load_of_another_folder_or_a_broken_export_is_refused(tmp_path):
    bundle = talkative({})
    bundle.save(tmp_path / "bundle")
    export_ctranslate2(bundle, tmp_path / "export", sample=SAMPLE)
    with pytest.raises(UserError, match="seq2seq export"):
        Translator.load(tmp_path / "bundle", engine="ctranslate2")
    with pytest.raises(UserError, match="is an export"):
        Translator.load(tmp_path / "export", engine="torch")
    with pytest.raises(UserError, match="is an export"):
        load_bundle(tmp_path / "export")
    with pytest.raises(UserError, match="engine='tensorrt'"):
        Translator.load(tmp_path / "export", engine="tensorrt")
    with pytest.raises(UserError, match="alone"):
        Translator.load([tmp_path / "bundle", tmp_path / "export"])
    (tmp_path / "export" / "model.bin").write_bytes(b"\x06\x00\x00\x00nonsense")
    with pytest.raises(UserError, match="cannot load"):
        Translator.load(tmp_path / "export")
    config = tmp_path / "export" / "config.yaml"
    whole = config.read_text()
    broken = (
        (whole.replace("format: 1", "format: 9"), "format 9"),
        ("format: 1\n", "section ctranslate2"),
        (re.sub(r"positions: \d+", "positions: 1", whole), "positions"),
        (re.sub(r"positions: \d+", "positions: x", whole), "positions"),
        (whole.replace("\nmodel:", "\nmodels:"), "export: the config names no model"),
        (re.sub(r"(?s)\nsearch:.*?\n(?=\w)", "\nsearch: [1]\n", whole), "export: search._target_ is not a search"),
    )
    for text, message in broken:
        config.write_text(text)
        with pytest.raises(UserError, match=message):
            Translator.load(tmp_path / "export")
    config.write_text(whole)
    tiny.tokenizers(byte_fallback=True).save(tmp_path / "export")
    with pytest.raises(UserError, match=r"export: the tokenizers .* are not those of the config"):
        Translator.load(tmp_path / "export")
    config.unlink()
    with pytest.raises(UserError, match="no tokenizer"):
        Translator.load(tmp_path / "export")


def test_export_without_ctranslate2_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(UserError, match=r"pip install 'seq2seq\[ctranslate2\]'"):
        export_ctranslate2(talkative({}), tmp_path / "model")


@pytest.mark.slow
def test_export_command_writes_a_verified_ctranslate2_export(tmp_path, capsys):
    bundle = talkative({})
    bundle.save(tmp_path / "run" / "bundle")
    (tmp_path / "run" / "metrics.json").write_text('{"training": {}, "splits": {}}')
    (tmp_path / "run" / "test.src.txt").write_text("\n".join(SAMPLE) + "\n")
    (tmp_path / "in.txt").write_text("\n".join(TEXTS) + "\n")
    export = ["export", f"checkpoint={tmp_path}/run", f"output={tmp_path}/out", "format=ctranslate2"]
    assert run(export) == 0
    told = capsys.readouterr()
    assert told.out == f"{tmp_path}/out\n"
    assert "verified on 12 segments: greedy search gives the same tokens in 100.0%" in told.err
    assert run(export) == 2
    assert "exists already" in capsys.readouterr().err
    files = [f"input={tmp_path}/in.txt", f"output={tmp_path}/out.txt", "search=greedy"]
    assert run(["translate", f"checkpoint={tmp_path}/out", "engine=ctranslate2", *files]) == 0
    wanted = Translator([bundle]).translate(TEXTS, search=GreedySearch())
    assert (tmp_path / "out.txt").read_text().split("\n")[:-1] == [one.text for one in wanted]

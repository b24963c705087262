"""Shortlists of bundles: kept, checked, used by the translator, refused where there is none."""

from dataclasses import replace

import pytest
import tiny
import torch
from precision import float32_approx
from safetensors.torch import load_file, save_file

from seq2seq.errors import UserError
from seq2seq.inference.bundle import Bundle, load_bundle
from seq2seq.inference.text_windows import Batching
from seq2seq.inference.translator import Translator
from seq2seq.search import BeamSearch, GreedySearch, Shortlist

TEXTS = tiny.sentences(12, seed=9)


def listed(candidates=4, default=0):
    """A bundle with a table of random translations."""
    bundle = tiny.bundle(tiny.BAHDANAU)
    source, target = len(bundle.tokenizers.source), len(bundle.tokenizers.target)
    draw = torch.Generator().manual_seed(2)
    table = torch.randint(4, target, (source, candidates), generator=draw, dtype=torch.int32)
    config = {**bundle.config, "search": {**tiny.SEARCH, "shortlist": default}}
    return replace(bundle, config=config, shortlist=Shortlist(table, torch.arange(4, 10, dtype=torch.int32)))


def facts(translations):
    return [(one.text, one.tokens, float32_approx(one.score)) for one in translations]


def test_bundle_keeps_its_shortlist(tmp_path):
    bundle = listed(default=3)
    bundle.save(tmp_path / "bundle")
    loaded = load_bundle(tmp_path / "bundle")
    assert torch.equal(loaded.shortlist.candidates, bundle.shortlist.candidates)
    assert torch.equal(loaded.shortlist.frequent, bundle.shortlist.frequent)
    assert loaded.search.shortlist == 3
    found = facts(Translator([loaded]).translate(TEXTS))
    assert found == facts(Translator([bundle]).translate(TEXTS))
    assert found != facts(Translator([bundle], {"shortlist": 0}).translate(TEXTS))


@pytest.mark.parametrize(
    "damage",
    [
        lambda table: {"candidates": table["candidates"]},
        lambda table: {**table, "candidates": table["candidates"][1:]},
        lambda table: {**table, "frequent": table["frequent"] + 1000},
        lambda table: {**table, "frequent": -table["frequent"]},
        lambda table: {**table, "candidates": table["candidates"].float()},
        lambda table: {**table, "more": table["frequent"] + 1},
    ],
)
def test_damaged_shortlist_is_refused(tmp_path, damage):
    listed().save(tmp_path / "bundle")
    path = tmp_path / "bundle" / "shortlist.safetensors"
    save_file(damage(load_file(path)), path)
    with pytest.raises(UserError, match=r"shortlist\.safetensors is damaged"):
        load_bundle(tmp_path / "bundle")


@pytest.mark.parametrize("search", [GreedySearch(shortlist=4), BeamSearch(beam_size=3, n_best=2, shortlist=2)])
def test_shortlisted_translations_do_not_depend_on_batches_or_windows(search):
    bundle = listed()
    expected = facts(Translator([bundle]).translate(TEXTS, search=search))
    for batching in (Batching(max_tokens=1), Batching(max_tokens=30, window=7)):
        assert facts(Translator([bundle], batching=batching).translate(TEXTS, search=search)) == expected


def test_scores_of_given_translations_ignore_the_shortlist():
    bundle = listed(default=2)
    scores = [
        [one.score for one in Translator([bundle], search).score(TEXTS, TEXTS)] for search in (None, {"shortlist": 0})
    ]
    assert scores[0] == scores[1]


def test_ensemble_uses_the_shortlist_of_any_of_its_bundles():
    bundle = listed()
    without = replace(bundle, shortlist=None)
    search = GreedySearch(shortlist=4)
    found = facts(Translator([without, bundle]).translate(TEXTS, search=search))
    assert found == facts(Translator([bundle]).translate(TEXTS, search=search))


def test_shortlist_that_the_bundle_lacks_is_refused():
    bundle = listed(candidates=4)
    with pytest.raises(UserError, match=r"shortlist=5: .* table has 4 translations .*\nGive at most 4"):
        Translator([bundle], {"shortlist": 5})
    without = replace(bundle, shortlist=None)
    with pytest.raises(UserError, match=r"shortlist=4 needs a table .*\n.*search\.shortlist=0"):
        Translator([without], {"shortlist": 4})
    with pytest.raises(UserError, match="shortlist=4 needs a table"):
        list(Translator([without]).translate(TEXTS, search=GreedySearch(shortlist=4)))


def test_bundle_without_its_shortlist_searches_the_whole_vocabulary():
    bundle = listed(default=3)
    without = bundle.without_shortlist()
    assert without.shortlist is None and without.search.shortlist == 0
    assert facts(Translator([without]).translate(TEXTS)) == facts(
        Translator([bundle], {"shortlist": 0}).translate(TEXTS)
    )
    plain = Bundle(bundle.model, bundle.tokenizers, {**bundle.config, "search": None})
    assert plain.without_shortlist() is plain

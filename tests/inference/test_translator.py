import dataclasses
import itertools
import json
from pathlib import Path

import pytest
import tiny
import torch
from precision import float32_approx

from seq2seq.errors import UserError
from seq2seq.inference.engines import batches
from seq2seq.inference.text_windows import Batching, growing_windows
from seq2seq.inference.translator import Translator
from seq2seq.interfaces import Hypothesis
from seq2seq.search import BeamSearch, GreedySearch, Sampling

TEXTS = tiny.sentences(40, seed=9)


KEPT = Path(__file__).parent / "kept"


def facts(translations):
    return [(t.text, float32_approx(t.score), t.tokens) for t in translations]


def test_translator_is_a_name_of_the_package():
    import seq2seq

    assert seq2seq.Translator is Translator


@pytest.mark.parametrize(
    "search",
    [
        GreedySearch(),
        pytest.param(None, marks=pytest.mark.slow),
        pytest.param(Sampling(n_best=2, max_length_a=1.0), marks=pytest.mark.slow),
    ],
)
def test_translations_do_not_depend_on_batches_or_windows(bundle, translator, search):
    expected = facts(translator.translate(TEXTS, search=search))
    for batching in (Batching(max_tokens=1), Batching(max_tokens=30, window=7), Batching(window=1)):
        assert facts(Translator([bundle], batching=batching).translate(TEXTS, search=search)) == expected


def test_kept_bundle_translates_as_when_it_was_written(translator):
    """The kept bundle was written by tiny.py and is never written again unless its format changes."""
    expected = [json.loads(line) for line in (KEPT / "expected.jsonl").read_text(encoding="utf-8").splitlines()]
    found = translator.translate([one["source"] for one in expected])
    for one, translation in zip(expected, found, strict=True):
        assert translation.text == one["text"]
        assert translation.score == float32_approx(one["score"])


def test_translations_come_in_the_order_of_their_texts(translator):
    together = list(translator.translate(TEXTS))
    assert len({t.text for t in together}) > 10
    for place in (0, 7, 31):
        assert facts(translator.translate(TEXTS[place])) == facts([together[place]])


def test_translate_of_endless_texts_is_lazy(translator):
    asked = 0

    def texts():
        nonlocal asked
        for text in itertools.cycle(TEXTS):
            asked += 1
            yield text

    found = list(itertools.islice(translator.translate(texts()), 100))
    assert facts(found[:40]) == facts(translator.translate(TEXTS))
    assert asked <= 64 + 128


def test_blank_texts_are_translated_without_the_model(translator, monkeypatch):
    texts = ["", " ", "\t", "\u00a0 \u3000", "\n"]
    monkeypatch.setattr(translator.engine, "models", None)
    assert [(t.text, t.parts, t.finished) for t in translator.translate(texts)] == [("", 0, True)] * 5


def test_any_text_gives_one_line():
    translator = Translator([tiny.bundle(tiny.TRANSFORMER, pair=tiny.tokenizers(byte_fallback=True))])
    texts = ["\x00\x01\x1b[0m", "😀👩‍👩‍👧", "שלום עולם", "a\rb\nc", "\udc80", "▁ ▅ <s> </s> <pad>", "the " * 700]
    found = list(translator.translate(texts, search=GreedySearch(max_length_a=0.1)))
    assert len(found) == len(texts)
    assert all("\n" not in one.text for one in found)


def test_long_text_is_split_and_joined(bundle, translator):
    text = " ".join(TEXTS[:12])
    small = Translator([bundle], batching=Batching(max_source_length=20))
    (one,) = small.translate(text, n_best=2, alignment=True)
    assert one.parts > 1
    assert not one.truncated
    assert one.source_tokens.count("</s>") == one.parts
    assert [t for t in one.source_tokens if t != "</s>"] == translator.tokenizers.source.pieces(
        translator.tokenizers.source.encode([text])[0]
    )
    parts = [[]]
    for token in one.source_tokens:
        if token == "</s>":
            parts.append([])
        else:
            parts[-1].append(translator._vocabulary[token])
    alone = [next(translator.translate(translator.tokenizers.source.decode(ids))) for ids in parts[:-1]]
    assert one.text == " ".join(t.text for t in alone if t.text)
    assert one.nbest[0].log_probability == float32_approx(sum(t.nbest[0].log_probability for t in alone))
    lengths = sum(len(t.tokens) + t.finished for t in alone)
    assert one.score == pytest.approx(one.nbest[0].log_probability / lengths)
    assert one.alignment.shape == (len(one.tokens), len(one.source_tokens))


def test_long_text_with_truncate_is_truncated(bundle):
    short = Translator([bundle], batching=Batching(max_source_length=20, long_lines="truncate"))
    (one,) = short.translate(" ".join(TEXTS[:12]))
    assert one.truncated
    assert one.parts == 1
    assert len(one.source_tokens) == 21


@pytest.mark.parametrize("wrong", ["gready", 5, GreedySearch, {"beams": 2}])
def test_wrong_search_is_refused_at_once(bundle, translator, wrong):
    calls = [
        lambda: Translator([bundle], search=wrong),
        lambda: next(translator.translate("a dog", search=wrong)),
        lambda: translator.translate_window(["a dog"], search=wrong),
        lambda: next(translator.score(["a dog"], ["the cat"], search=wrong)),
    ]
    for call in calls:
        with pytest.raises(UserError, match=r"not a search|not an option"):
            call()
    with pytest.raises(UserError, match="coverage_penalty needs attention"):
        Translator([tiny.bundle(tiny.RNN)], {"coverage_penalty": 0.1})


def test_search_by_name_or_options_equals_the_search_itself(bundle, translator):
    greedy = facts(translator.translate(TEXTS, search=GreedySearch()))
    assert facts(translator.translate(TEXTS, search="greedy")) == greedy
    assert facts(Translator([bundle], search="greedy").translate(TEXTS)) == greedy
    changed = dataclasses.replace(translator.search, beam_size=1, n_best=1)
    expected = facts(translator.translate(TEXTS, search=changed))
    assert facts(translator.translate(TEXTS, search={"beam_size": 1, "n_best": 1})) == expected
    one, other = (next(translator.score(["a dog"], ["the"], search=how)) for how in ({"length_penalty": 0.0}, None))
    assert one.score == pytest.approx(one.log_probability) != other.score


def test_translations_with_attention_are_comparable(translator):
    one, other = (translator.translate_window(TEXTS[:1], alignment=True) for _ in range(2))
    assert one == other
    assert Hypothesis([4], -1.0, -1.0, True, torch.ones(2, 1, 3)) == Hypothesis([4], -1.0, -1.0, True)


def test_translate_yields_the_texts_before_a_failure(translator):
    def texts():
        yield from TEXTS[:2]
        raise OSError("the source broke")

    found = []
    with pytest.raises(OSError, match="the source broke"):
        found.extend(translator.translate(texts()))
    assert facts(found) == facts(translator.translate(TEXTS[:2]))


def test_translations_begin_with_their_prefixes(translator):
    prefixes = ["the cat" if place % 3 else "" for place in range(len(TEXTS))]
    found = list(translator.translate(TEXTS, prefixes=prefixes))
    assert all(one.text.startswith(prefix) for one, prefix in zip(found, prefixes, strict=True))
    free = list(translator.translate(TEXTS))
    assert [a.text for a in found[::3]] == [b.text for b in free[::3]]
    with pytest.raises(UserError, match="text 2 is blank"):
        list(translator.translate(["a dog", "\u3000"], prefixes=["", "the cat"]))
    assert next(translator.translate("a dog", prefixes="the cat")).text.startswith("the cat")
    for wrong, message in (("the", "fewer"), (["the"], "fewer"), (["the"] * 3, "more")):
        with pytest.raises(UserError, match=f"prefixes: {message} than texts"):
            list(translator.translate(["a dog", "a cat"], prefixes=wrong))
    with pytest.raises(UserError, match="prefixes: fewer than texts"):
        translator.translate_window(["a dog", "a cat"], prefixes=["the"])


@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(beam_size=3), Sampling(seed=2)])
def test_learned_positions_limit_parts_and_outputs(search):
    model = {**tiny.TRANSFORMER, "positions": "learned", "maximum_positions": 12}
    translator = Translator([tiny.bundle(model)], search)
    texts = ["the", *tiny.sentences(5, 3), " ".join(tiny.sentences(9, 4))]
    found = list(translator.translate(texts))
    assert all(len(candidate.tokens) <= 11 * one.parts for one in found for candidate in one.nbest)
    assert found[-1].parts > 1 and found[0].parts == 1
    assert any(not one.finished for one in found)
    batching = Batching(long_lines="truncate")
    (cut,) = Translator([tiny.bundle(model)], search, batching).translate(texts[-1:])
    assert cut.truncated and len(cut.source_tokens) <= 12


def test_sampling_depends_on_the_number_of_the_sentence(translator):
    search = Sampling(max_length_a=1.0, temperature=3.0, seed=4)
    first, second = translator.translate(["the cat sees a dog."] * 2, search=search)
    assert first.text != second.text
    (again,) = translator.translate_window(["the cat sees a dog."], search=search, numbers=[1])
    assert again.text == second.text


def test_ensemble_with_different_tokenizers_is_refused():
    pair = tiny.tokenizers()
    one, two = tiny.bundle(tiny.BAHDANAU, 1, pair), tiny.bundle(tiny.TRANSFORMER, 2, pair)
    mixed, single = Translator([one, two]), Translator([one])
    assert [t.text for t in mixed.translate(TEXTS)] != [t.text for t in single.translate(TEXTS)]
    assert facts(Translator([one, one]).translate(TEXTS)) == facts(single.translate(TEXTS))
    with pytest.raises(UserError, match="tokenizers"):
        Translator([one, tiny.bundle(tiny.RNN, 1, tiny.tokenizers(byte_fallback=True))])


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_batch_without_enough_memory_is_halved(translator, monkeypatch, error):
    expected = facts(translator.translate(TEXTS))
    from seq2seq.inference import engines as module

    decode, sizes = module.decode_batch, []

    def scarce(models, search, source, mask, **options):
        sizes.append(len(source))
        if len(source) > 3:
            raise error
        return decode(models, search, source, mask, **options)

    monkeypatch.setattr(module, "decode_batch", scarce)
    assert facts(translator.translate(TEXTS)) == expected
    assert max(sizes) > 3

    targets = [text[::-1] for text in TEXTS]
    scores, score = list(translator.score(TEXTS, targets)), module.score_pairs

    def scarce_too(models, ranking, source, mask, targets):
        if len(source) > 3:
            raise error
        return score(models, ranking, source, mask, targets)

    monkeypatch.setattr(module, "score_pairs", scarce_too)
    for found, wanted in zip(translator.score(TEXTS, targets), scores, strict=True):
        assert found.tokens == wanted.tokens
        assert found.token_log_probabilities == float32_approx(wanted.token_log_probabilities)


def test_wrong_settings_of_a_translator_are_refused(translator):
    for wrong in ({"max_tokens": 0}, {"window": -1}, {"max_source_length": 0}, {"long_lines": "drop"}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            Batching(**wrong)
    with pytest.raises(UserError, match="n_best"):
        list(translator.translate(TEXTS, search=GreedySearch(), n_best=2))
    with pytest.raises(UserError, match="n_best"):
        list(translator.translate(TEXTS, n_best=9))
    with pytest.raises(UserError, match="device"):
        Translator.load("somewhere", device="warp")
    with pytest.raises(UserError):
        Translator([])


def test_batches_have_at_most_max_tokens():
    lengths = [3, 9, 1, 1, 4, 30, 2]
    found = list(batches(lengths, 10))
    assert sorted(place for batch in found for place in batch) == list(range(7))
    assert all(max(lengths[i] for i in batch) * len(batch) <= 10 or len(batch) == 1 for batch in found)


def test_growing_windows_double_up_to_their_size():
    assert [len(window) for window in growing_windows(range(500), 200)] == [64, 128, 200, 108]
    assert [len(window) for window in growing_windows(range(5), 2)] == [2, 2, 1]


@pytest.mark.parametrize("wrong", [None, 7, float("nan"), b"a dog", ["a dog"]])
def test_text_that_is_no_string_is_named_by_its_row(translator, wrong):
    texts = ["a dog", "a cat", wrong]
    for call in (
        lambda: list(translator.translate(texts)),
        lambda: translator.translate_window(texts),
        lambda: list(translator.translate(["a"] * 100 + texts, search="greedy"))[:0],
        lambda: list(translator.score(texts, ["the"] * 3)),
    ):
        with pytest.raises(TypeError, match=r"(text|source) (3|103) is .*, not a string"):
            call()
    found = translator.translate(texts)
    assert [next(found).text, next(found).text] == [one.text for one in translator.translate(texts[:2])]
    with pytest.raises(TypeError, match="prefix 2 is None, not a string"):
        list(translator.translate(["a dog", "a cat"], prefixes=["the", None]))
    with pytest.raises(TypeError, match="prefix 1 is None, not a string"):
        list(translator.translate(["a dog"], prefixes=[None]))
    if not isinstance(wrong, list):
        with pytest.raises(TypeError, match=r"target 2 is .*, neither a string nor a sequence of target tokens"):
            list(translator.score(["a dog", "a cat"], ["the", wrong]))

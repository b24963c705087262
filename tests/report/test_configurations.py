"""Settings in which compared runs differ."""

from seq2seq.report.comparison import compare
from seq2seq.report.configurations import differences
from seq2seq.report.headline import fairness
from seq2seq.report.study import collect


def test_settings_that_differ_are_named_once(tmp_path, make_run):
    for model, tokens, rate in (("rnn", 4096, 0.2), ("conv", 2048, 0.2), ("luong", 2048, 0.3)):
        config = {
            "model": {"_target_": model, "width": tokens, "dropout": rate},
            "data": {"max_tokens": tokens, "sizes": {"test": tokens}, "corpus": {"sizes": {"test": tokens}}},
            "search": {"beam_size": tokens},
            "trainer": {"threads": tokens},
            "schedule": {"warmup": 5},
        }
        make_run(tmp_path / model, model, segments=5, config=config)
    lines = fairness(compare(collect(tmp_path), baseline="rnn"))
    [line] = [line for line in lines if line.startswith("Other settings that differ: ")]
    named = line.removeprefix("Other settings that differ: ").removesuffix(".").split("; ")
    assert {each.partition(" (")[0] for each in named} == {"data.max_tokens", "data.sizes.test", "model.dropout"}
    assert "data.max_tokens (2048, 4096)" in named or "data.max_tokens (4096, 2048)" in named


def test_differences_of_settings_by_hand():
    first = {"seed": 1, "a": {"b": 1, "c": [1, 2]}, "model": {"_target_": "x.A", "p": 1}}
    assert differences(first, {**first, "seed": 2}) == []
    assert differences(first, {**first, "a": {"b": 1, "c": [2]}}) == [("a.c", "[1, 2]", "[2]")]
    assert differences(first, {**first, "a": {"c": [1, 2]}}) == [("a.b", "1", "none")]
    assert differences(first, {**first, "model": {"_target_": "x.B", "q": 7}}) == [("model", "A", "B")]
    assert differences(first, {**first, "checkpoint": "start"}) == [("checkpoint", "none", "start")]


def test_what_only_shows_or_places_a_run_is_no_difference():
    first = {"trainer": {"average_last": 0, "samples": 4}, "data": {"cache_dir": "a"}}
    second = {"trainer": {"average_last": 3, "samples": 8}, "data": {"cache_dir": "b"}}
    assert differences(first, second) == [("trainer.average_last", "0", "3")]

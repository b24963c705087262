import json
import math
import subprocess
import sys

import pytest
from random_texts import texts
from sacrebleu.metrics import BLEU, CHRF, TER

from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import (
    METRICS,
    PRIMARY,
    References,
    by_part,
    evaluate_texts,
    perplexity_text,
    sentence_scores,
    summary,
)
from seq2seq.evaluation.signatures import signature_settings
from seq2seq.evaluation.words import repetition_rate


def test_scores_are_those_of_the_sacrebleu_command(tmp_path):
    hypotheses, references, sources = texts()
    result = evaluate_texts(hypotheses, references, sources, samples=50)
    (tmp_path / "hyp").write_text("\n".join(hypotheses) + "\n", encoding="utf-8")
    (tmp_path / "ref").write_text("\n".join(references) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", "hyp", "-m", "bleu", "chrf", "ter", "-w", "10"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    for name, line in zip(("bleu", "chrf", "ter"), json.loads(printed), strict=True):
        assert result[name]["score"] == pytest.approx(line["score"], abs=1e-9)
        assert result[name]["signature"] == line["signature"]


@pytest.mark.parametrize(("tokenize", "lowercase"), [("13a", False), ("none", True), ("char", False)])
def test_settings_reach_sacrebleu_and_the_signature(tokenize, lowercase):
    hypotheses, references, sources = texts(20)
    shouted = [text.upper() for text in hypotheses]
    result = evaluate_texts(shouted, references, sources, tokenize=tokenize, lowercase=lowercase, samples=10)
    expected = BLEU(tokenize=tokenize, lowercase=lowercase, force=True).corpus_score(shouted, [references])
    assert result["bleu"]["score"] == expected.score
    assert f"tok:{tokenize}" in result["bleu"]["signature"]
    assert ("case:lc" in result["bleu"]["signature"]) is lowercase
    assert result["chrf"]["score"] == CHRF(lowercase=lowercase).corpus_score(shouted, [references]).score


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("", 0.0),
        ("a b c d", 0.0),
        ("die die die", 2 / 3),
        ("a b a b a b .", 4 / 7),
        ("a b c d e a b c d e", 0.0),
        ("a b c d a b c d", 0.5),
        ("a b x a b", 0.0),
        ("a b b a b b", 4 / 6),
    ],
)
def test_repetition_rate_by_hand(text, rate):
    assert repetition_rate([text]) == pytest.approx(rate)


def test_repetition_rate_is_over_all_words_not_a_mean_of_segments():
    assert repetition_rate(["a a", "b c d e f g h i"]) == pytest.approx(1 / 10)


def test_chinese_is_scored_by_characters():
    references = ["今天我们在公园里看到一只很大的黑狗、它在草地上跑。"] * 12
    near = [line.replace("黑", "白") for line in references]
    looped = ["今天天天天我们在公园里看到一只很大的黑狗、它在草地上跑。"] * 12
    expected = TER(normalized=True, asian_support=True)
    result = evaluate_texts(near, references, references, tokenize="zh", samples=10)
    assert result["ter"]["score"] == expected.corpus_score(near, [references]).score < 10
    assert result["ter"]["signature"] == expected.get_signature().format()
    assert result["repetition_rate"] == 0
    assert evaluate_texts(looped, references, references, samples=10)["repetition_rate"] == pytest.approx(3 / 28)


def test_thai_has_no_edit_rate():
    references = ["วันนี้เราเห็นสุนัขสีดำตัวใหญ่ในสวนสาธารณะ"] * 2
    assert evaluate_texts(references, references, references, samples=10)["ter"] is None


def test_length_ratio_counts_bleu_tokens():
    result = evaluate_texts(["a, b"], ["a, b, c"], ["x"], samples=5)
    assert result["length_ratio"] == pytest.approx(3 / 5)


def test_sentence_scores_are_sacrebleus():
    hypotheses, references, _ = texts(10)
    scores = sentence_scores({"mine": hypotheses}, References(references))["mine"]
    for row in range(10):
        expected = BLEU(effective_order=True).sentence_score(hypotheses[row], [references[row]]).score
        assert scores["bleu"][row] == pytest.approx(expected)
        assert scores["chrf"][row] == pytest.approx(CHRF().sentence_score(hypotheses[row], [references[row]]).score)


def test_by_part_scores_a_forgotten_part_as_zero():
    parts = [["die Frau liest ein Buch .", "der Mann sieht die Hunde .", "das Kind malt ein Haus ."]] * 4
    forgetful = ["die Frau liest ein Buch . der Mann sieht die Hunde ."] * 4
    scored = by_part(forgetful, parts, samples=10)
    assert [entry["part"] for entry in scored] == [1, 2, 3]
    assert [entry["segments"] for entry in scored] == [4, 4, 4]
    assert [round(entry["bleu"]["score"]) for entry in scored] == [100, 100, 0]
    assert (
        evaluate_texts(forgetful, [" ".join(p) for p in parts], ["s"] * 4, samples=10, reference_parts=parts)["by_part"]
        == scored
    )


def test_scores_are_finite_and_survive_json():
    result = evaluate_texts(*texts(20), samples=10)
    again = json.loads(json.dumps(result, allow_nan=False))
    assert again == result
    assert all(math.isfinite(result[name]["score"]) for name in ("bleu", "chrf", "ter"))


def test_blank_output_scores_zero():
    result = evaluate_texts(["", ""], ["a b c d", "e f g h"], ["x", "y"], samples=10)
    assert (result["bleu"]["score"], result["chrf"]["score"], result["length_ratio"]) == (0, 0, 0)
    assert result["ter"]["score"] == 100


@pytest.mark.parametrize(
    ("tokenize", "lowercase", "name"),
    [
        ("13a", False, "BLEU"),
        ("none", True, "BLEU (tokenized, lowercased)"),
        ("none", False, "BLEU (tokenized)"),
        ("char", True, "BLEU (tok:char, lowercased)"),
    ],
)
def test_bleu_is_named_by_its_protocol(tokenize, lowercase, name):
    signature = evaluate_texts(["a"], ["a"], ["b"], tokenize=tokenize, lowercase=lowercase, samples=2)["bleu"][
        "signature"
    ]
    assert PRIMARY.label(signature) == name


def test_a_tokenizer_is_named_without_its_dictionary():
    for signed, name in (("ja-mecab-0.996-IPA", "ja-mecab"), ("ko-mecab-0.996/ko-0.9.2-KO", "ko-mecab")):
        assert signature_settings(f"nrefs:1|case:lc|tok:{signed}") == {"nrefs": "1", "case": "lc", "tok": name}
    assert signature_settings("tok:tercom|norm:no")["tok"] == "tercom"


def test_evaluate_texts_refuses_bad_input_with_the_way_out():
    with pytest.raises(UserError, match="2 hypotheses against 1 references"):
        evaluate_texts(["a", "b"], ["a"], ["a"])
    with pytest.raises(UserError, match="empty test set"):
        evaluate_texts([], [], [])
    with pytest.raises(UserError, match=r"no tokenizer '14a'.*13a"):
        evaluate_texts(["a"], ["a"], ["a"], tokenize="14a")


def test_text_that_looks_tokenized_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    for lines, tokenize, count in ((101, "13a", 1), (101, "none", 0), (100, "13a", 0)):
        caplog.clear()
        hypotheses = ["ein Hund ."] * lines + ["ein Hund."] * 9
        evaluate_texts(hypotheses, hypotheses, hypotheses, tokenize=tokenize, samples=2)
        assert len(caplog.messages) == count, (lines, tokenize)
        assert all("tokenize=none" in message for message in caplog.messages)


def test_units_are_written_and_decide_over_buckets_retention_and_repetition():
    references = ["我们在公园里看到狗" * 3] * 12 + ["我们在公园里看到狗" * 10] * 12
    result = evaluate_texts(references, references, references, tokenize="zh", samples=20)
    assert result["units"] == {"source": "characters", "target": "characters"}
    assert [(b["low"], b["segments"]) for b in result["by_length"]] == [(20, 12), (80, 12)]
    assert result["retention"]["score"] == pytest.approx(1)
    english = evaluate_texts(["a b"], ["a b"], ["今天"], samples=2, languages=("cmn", "en"))
    assert english["units"] == {"source": "characters", "target": "words"}


def test_length_ratio_of_each_bucket_is_that_of_its_segments():
    sources = ["w"] * 2 + ["w " * 12] * 2
    result = evaluate_texts(["a b c", "a", "a b", "a"], ["a b c", "a", "a b c", "a b c"], sources, samples=2)
    assert [bucket["length_ratio"] for bucket in result["by_length"]] == [1.0, 0.5]
    assert result["length_ratio"] == pytest.approx(7 / 10)


def test_chinese_scored_by_13a_is_warned_of_with_a_better_tokenizer(caplog: pytest.LogCaptureFixture) -> None:
    texts = ["我们在公园里看到狗。"] * 3
    evaluate_texts(texts, texts, texts, samples=2)
    assert [("tokenize=zh" in message) for message in caplog.messages] == [True]
    caplog.clear()
    evaluate_texts(texts, texts, texts, tokenize="zh", samples=2)
    assert caplog.messages == []


@pytest.mark.parametrize("metric", [metric for metric in METRICS.values() if metric.scorer], ids=lambda m: m.key)
def test_every_metric_of_the_table_is_scored_by_length_tested_and_summed_up(metric):
    hypotheses, references, sources = texts(20)
    result = evaluate_texts(hypotheses, references, sources, samples=10)
    assert set(result[metric.key]) == {"score", "low", "high", "signature"}
    assert all(set(bucket[metric.key]) == {"score", "low", "high"} for bucket in result["by_length"])
    assert f"{metric.name} {result[metric.key]['score']:.{metric.digits + 1}f}" in summary(result)
    assert (metric.key in sentence_scores({"x": hypotheses}, References(references))["x"]) is metric.quick
    worst = evaluate_texts(["x"] * 20, references, sources, samples=2)[metric.key]["score"]
    assert (worst < result[metric.key]["score"]) is metric.rising


@pytest.mark.parametrize(("lowercase", "tokenize"), [(False, "13a"), (True, "none"), (False, "zh")])
def test_chrfpp_and_charbleu_are_sacrebleus(lowercase, tokenize):
    hypotheses, references, sources = texts(30)
    shouted = [text.upper() for text in hypotheses]
    result = evaluate_texts(shouted, references, sources, tokenize=tokenize, lowercase=lowercase, samples=10)
    for key, metric in (
        ("chrfpp", CHRF(word_order=2, lowercase=lowercase)),
        ("charbleu", BLEU(tokenize="char", lowercase=lowercase, force=True)),
    ):
        assert result[key]["score"] == pytest.approx(metric.corpus_score(shouted, [references]).score, abs=1e-9)
        assert result[key]["signature"] == metric.get_signature().format()


def test_charbleu_is_left_out_where_bleu_is_of_characters():
    hypotheses, references, sources = texts(12)
    result = evaluate_texts(hypotheses, references, sources, tokenize="char", samples=10)
    assert result["charbleu"] is None and "charbleu" not in result["by_length"][0]
    assert "charBLEU" not in summary(result)


def test_perplexity_of_a_diverged_run_is_short():
    assert [perplexity_text(value) for value in (4.205, 99999.0, 1.3e304)] == ["4.21", "99999.00", "1.3e+304"]

"""Test sets of one family: which is shown first, and its parts."""

import json

import pytest
from sacrebleu.metrics import BLEU

from seq2seq.evaluation.metrics import evaluate_texts
from seq2seq.report.comparison import compare
from seq2seq.report.figures import figures
from seq2seq.report.render import part_note, part_rows
from seq2seq.report.splits import share_of_alone
from seq2seq.report.study import collect


def test_the_set_of_all_lengths_is_shown_first_and_the_parts_of_its_family(tmp_path, make_run):
    splits = ("test", "test_x2", "test_x3", "test_joined", "test_2017", "test_2017_x2")
    for model, drop in (("rnn", 0.5), ("conv", 0.9)):
        folder = make_run(tmp_path / f"{model}-grammar-seed1", model, segments=6, splits=splits)
        metrics = json.loads((folder / "metrics.json").read_text())
        for split, count in (("test_x2", 2), ("test_x3", 3), ("test_2017_x2", 2)):
            metrics["splits"][split]["by_part"] = [
                {"part": p + 1, "segments": 6, "bleu": {"score": 40.0 * drop**p}} for p in range(count)
            ]
        (folder / "metrics.json").write_text(json.dumps(metrics))
    report = compare(collect(tmp_path))
    assert report["split"] == "test_joined"
    assert [table["split"] for table in report["parts"]] == ["test_x2", "test_x3"]
    forgotten = [part["bleu"]["score"] for part in report["parts"][1]["systems"]["rnn"]]
    assert forgotten == [40.0, 20.0, 10.0]
    assert [table["split"] for table in compare(collect(tmp_path), split="test_2017_x2")["parts"]] == ["test_2017_x2"]


def test_a_part_is_compared_with_the_same_segments_alone(tmp_path, make_run):
    folder = make_run(tmp_path / "conv", "conv", segments=7)
    texts = {kind: (folder / f"test.{kind}.txt").read_text().splitlines() for kind in ("src", "ref", "hyp")}
    joined = {kind: [" ".join(lines[row : row + 2]) for row in (0, 2, 4)] for kind, lines in texts.items()}
    for kind, lines in joined.items():
        (folder / f"test_x2.{kind}.txt").write_text("\n".join(lines) + "\n")
    metrics = json.loads((folder / "metrics.json").read_text())
    parts = [texts["ref"][row : row + 2] for row in (0, 2, 4)]
    scores = evaluate_texts(joined["hyp"], joined["ref"], joined["src"], samples=5, reference_parts=parts)
    metrics["splits"]["test_x2"] = scores
    (folder / "metrics.json").write_text(json.dumps(metrics))
    [table] = compare(collect(tmp_path))["parts"]
    for number, part in enumerate(table["systems"]["conv"]):
        rows = slice(number, 6, 2)
        alone = BLEU(force=True).corpus_score(texts["hyp"][rows], [texts["ref"][rows]]).score
        assert part["alone"]["score"] == pytest.approx(alone)
        assert share_of_alone(part) == pytest.approx(part["bleu"]["score"] / alone)
        assert share_of_alone(part) == pytest.approx(1, abs=0.1)
        assert part_rows(table)[1][number + 1].endswith(f"% of {alone:.1f}")
    assert "100% means that nothing is forgotten" in part_note([table])
    [chart] = [chart for name, chart in figures(compare(collect(tmp_path))).items() if name == "bleu-by-part"]
    assert chart.y_label == "BLEU kept (%)"
    (folder / "test.hyp.txt").unlink()
    [table] = compare(collect(tmp_path), split="test_x2")["parts"]
    assert share_of_alone(table["systems"]["conv"][0]) is None
    assert "not the parts of one system" in part_note([table])

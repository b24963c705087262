import html
import json
import re
import xml.etree.ElementTree as ElementTree
from copy import deepcopy
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seq2seq.data.readers import read_lines
from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import evaluate_texts
from seq2seq.report.difficulty import loss_rows
from seq2seq.report.render import build_report, difference_rows, example_rows, script_json, write_report
from seq2seq.report.study import collect
from seq2seq.report.tables import print_summary, score_text, summary_rows, summary_table

EVIL = '</script><script>alert("x")</script><!-- <img src=x onerror=alert(1)> & \u2028'


class Elements(HTMLParser):
    """Collects start tags and the contents of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.scripts: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.inside = True
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "script"

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


def score_again(folder: Path, **settings: Any) -> None:
    """Put the scores of the texts in the run's folder into its metrics.json."""
    hypotheses, references, sources = (list(read_lines(folder / f"test.{kind}.txt")) for kind in ("hyp", "ref", "src"))
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["splits"]["test"] |= evaluate_texts(hypotheses, references, sources, samples=40, **settings)
    (folder / "metrics.json").write_text(json.dumps(metrics))


@pytest.fixture(scope="module")
def built(tmp_path_factory, make_run):
    root = tmp_path_factory.mktemp("built")
    for model in ("rnn", "transformer"):
        folder = make_run(root / "runs" / f"{model}-grammar-seed1", model, 1, 30)
        for kind in ("src", "ref", "hyp"):
            path = folder / f"test.{kind}.txt"
            lines = path.read_text(encoding="utf-8").splitlines()
            lines[0] = EVIL if kind == "hyp" else "plain & <b>bold</b>"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        score_again(folder)
    (root / "runs" / "late").mkdir()
    (root / "runs" / "late" / "config.yaml").write_text("seed: 3")
    files, report = build_report(collect(root / "runs"), root / "out")
    return files, report, files.html.read_text(encoding="utf-8")


def test_report_writes_html_markdown_json_and_figures(built):
    files, report, _ = built
    assert json.loads(files.json.read_text(encoding="utf-8")) == report
    assert files.figures[0].name == "bleu-by-length.svg"
    for path in files.figures:
        root = ElementTree.parse(path).getroot()
        assert root.tag.endswith("svg") and len(root) > 5


def test_page_needs_nothing_from_outside(built):
    page = built[2]
    for _, attributes in Elements(page).tags:
        for name in ("src", "href", "srcset", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith("#"), value
    assert "@import" not in page and "url(" not in page and "fetch(" not in page


def test_text_of_the_corpus_cannot_become_markup(built):
    page = Elements(built[2])
    assert len(page.scripts) == 2
    payload = json.loads(page.scripts[0])
    assert payload["sentences"]["systems"]["rnn"]["hypotheses"][0] == EVIL.removesuffix(" \u2028") + " \u2028"
    assert payload["sentences"]["sources"][0] == "plain & <b>bold</b>"
    assert not any(tag == "img" for tag, _ in page.tags)
    assert not any(tag == "b" for tag, _ in page.tags)
    assert "innerHTML" not in page.scripts[1]


def test_script_json_round_trips():
    text = str(script_json({"a": EVIL}))
    assert not re.search("[<>&\u2028]", text)
    assert json.loads(text) == {"a": EVIL}


def test_page_and_markdown_state_the_facts(built):
    files, report, page = built
    markdown = files.markdown.read_text(encoding="utf-8")
    for system in report["systems"]:
        score = system["bleu"]
        assert f"{score['score']:.1f}" in page and f"[{score['low']:.1f}, {score['high']:.1f}]" in page
        assert f"{score['score']:.1f} [{score['low']:.1f}, {score['high']:.1f}]" in markdown
        for bucket in system["by_length"]:
            assert score_text(bucket["bleu"]) in markdown
    for text in (page, markdown):
        assert report["signatures"]["bleu"] in text
        assert "late is unfinished" in text
        assert "more than rnn" in text
        assert "abc1234" in text
    assert "n=" in page and "create_transformer" in page
    assert "![BLEU by source length](figures/bleu-by-length.svg)" in markdown


def test_page_labels_every_chart_heading_and_link(built):
    page = Elements(built[2])
    assert ("html", {"lang": "en"}) in page.tags
    charts = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert charts and all(chart["role"] == "img" and chart["aria-label"] for chart in charts)
    assert sum(tag == "h1" for tag, _ in page.tags) == 1
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    links = {attributes["href"][1:] for tag, attributes in page.tags if tag == "a"}
    assert links <= set(identifiers)
    for element in ("browser", "heatmaps", "payload"):
        assert element in identifiers
    assert "prefers-color-scheme: dark" in built[2] and "@media print" in built[2]


def test_a_single_run_without_texts_or_history_makes_a_report(tmp_path, make_run):
    folder = make_run(tmp_path / "conv", "conv", segments=6, longest=9)
    for name in ("test.hyp.txt", "history.jsonl", "word_counts.json"):
        (folder / name).unlink()
    files, report = build_report(collect(folder), tmp_path / "out")
    page = files.html.read_text(encoding="utf-8")
    assert f"conv reaches {report['systems'][0]['bleu']['score']:.1f} BLEU." in page
    assert 'id="browser"' not in page and 'id="training"' not in page
    assert "has no test.hyp.txt" in page


def test_report_shows_parts_beams_seeds_alignments_and_comet(tmp_path, make_run):
    for seed in (1, 2):
        splits = ("test", "test_x2", "test_x3")
        folder = make_run(tmp_path / "runs" / f"luong-grammar-seed{seed}", "luong", seed, segments=6, splits=splits)
        metrics = json.loads((folder / "metrics.json").read_text())
        score = {"score": 20.0 + seed, "low": 19.0, "high": 24.0}
        for split, count in (("test_x2", 2), ("test_x3", 3)):
            parts = [{"part": p, "segments": 6, "bleu": {**score, "score": 54.0 / p}} for p in range(1, count + 1)]
            metrics["splits"][split]["by_part"] = parts
        beam = {"beam_size": 7, "bleu": score, "length_ratio": 0.98, "sentences_per_second": 88.0}
        comet = {"score": 0.7 + seed / 10, "low": 0.7, "high": 0.95, "signature": "comet:wmt22|version:2.2.7"}
        metrics["splits"]["test"] |= {"by_beam_size": [beam], "alignment_error_rate": 0.25, "comet": comet}
        if seed == 1:
            metrics["splits"]["test_x2"]["comet"] = {**comet, "score": 0.321}
        (folder / "metrics.json").write_text(json.dumps(metrics))
    files, _ = build_report(collect(tmp_path / "runs"), tmp_path / "out")
    page, markdown = (path.read_text(encoding="utf-8") for path in (files.html, files.markdown))
    for part in ("x2", "x3"):
        assert f'id="figure-bleu-by-part-{part}"' in page and f"bleu-by-part-{part}.svg" in markdown
    assert 'id="figure-bleu-by-beam-size"' in page and "bleu-by-beam-size.svg" in markdown
    assert "comet:wmt22|version:2.2.7" in page and "comet:wmt22|version:2.2.7" in markdown
    for text in (page, markdown):
        assert "What is forgotten" in text and "compare systems at one part" in text
        assert "Seeds" in text and "the means of the runs' 95% bootstrap bounds" in html.unescape(text)
        assert "0.321 [0.700, 0.950] (n=1)" in text
        assert "Effect of the beam" in text and "21.5 ± 0.7 [19.0, 24.0]" in text and "0.98" in text
        assert "AER" in text and "25.0%" in text and "0.850 ± 0.071" in text


def test_a_mean_over_fewer_runs_says_so(tmp_path, make_run):
    for seed in (1, 2):
        folder = make_run(tmp_path / f"rnn-seed{seed}", "rnn", seed, segments=5)
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["splits"]["test"]["comet"] = {"score": 0.5, "low": 0.4, "high": 0.6, "signature": "comet:a"}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    _, report = build_report(collect(tmp_path), tmp_path / "out")
    heading, row = summary_rows(report)
    assert row[heading.index("COMET")] == "0.500 (n=1)" and row[heading.index("Seeds")] == "2"
    assert "n=" not in row[heading.index("BLEU")]


def test_differences_have_their_interval(built):
    report = deepcopy(built[1])
    systems = {system["name"]: system for system in report["systems"]}
    systems["transformer"]["tests"] = {
        "bleu": {"difference": {"score": 1.3, "low": 0.4, "high": 2.2}, "p_value": 0.04},
        "chrf": {"difference": {"score": -0.4, "deviation": None}, "p_value": None},
    }
    assert difference_rows(report) == [
        ["Against rnn", "BLEU", "p", "chrF", "p"],
        ["transformer", "+1.3 [0.4, 2.2]", "0.040", "\u22120.4", "\u2013"],
    ]
    for text in (built[2], built[0].markdown.read_text(encoding="utf-8")):
        assert "Against rnn" in text


def test_retention_has_its_interval_and_number_of_segments(built, tmp_path):
    top = (report := deepcopy(built[1]))["systems"][0]
    top["retention"] = {"score": 0.701, "low": 0.61, "high": 0.789}
    long = sum(bucket["segments"] for bucket in top["by_length"] if bucket["low"] >= 40)
    heading, row, _ = summary_rows(report)
    assert row[heading.index("Retention")] == "70% [61%, 79%]"
    files = write_report(report, tmp_path)
    for path in (files.html, files.markdown):
        assert f"40 or more source words ({long} segments)" in path.read_text(encoding="utf-8")


CHINESE = "一个男人在公园里和他的狗一起玩耍、旁边有两个孩子看着。"


def test_chinese_is_counted_in_characters_on_the_page_and_in_markdown(tmp_path, make_run):
    for model in ("conv", "rnn"):
        folder = make_run(tmp_path / model, model, segments=12)
        lengths = [1 + 8 * row for row in range(12)]
        (folder / "test.src.txt").write_text("".join(f"{(CHINESE * 4)[:n]}\n" for n in lengths))
        (folder / "test.ref.txt").write_text("".join(f"{(CHINESE * 4)[:n]}\n" for n in lengths))
        wrong = "狗" if model == "conv" else "的"
        (folder / "test.hyp.txt").write_text("".join(f"{(CHINESE * 4)[:n]}\n".replace(wrong, "x") for n in lengths))
        score_again(folder, tokenize="zh")
    files, report = build_report(collect(tmp_path), tmp_path / "out")
    assert report["units"] == {"source": "characters", "target": "characters"}
    assert loss_rows(report)[0][1] == "chrF lost per 20 characters"
    assert [bucket["low"] for bucket in report["systems"][0]["by_length"]] == [1, 20, 40, 60, 80]
    assert report["words"]["unit"] == "characters" and report["words"]["counted_in"] == "reference"
    lost = {gram["ngram"] for pair in report["ngrams"] for gram in (*pair["gains"], *pair["losses"])}
    assert any("的" in ngram and " " not in ngram for ngram in lost)
    page, markdown = (path.read_text(encoding="utf-8") for path in (files.html, files.markdown))
    assert "Source characters from" in page and "80 or more source characters" in page
    assert "Source characters" in markdown and "source words" not in markdown
    assert "Characters more (+)" in page and 'id="figure-word-f1-by-frequency"' in page
    assert not any("finds few words" in note for note in report["notes"])


def test_report_notes_a_tokenizer_that_finds_few_words(tmp_path, make_run):
    folder = make_run(tmp_path / "conv", "conv", segments=6)
    for kind in ("ref", "hyp"):
        (folder / f"test.{kind}.txt").write_text(f"{CHINESE}\n" * 6)
    score_again(folder)
    notes = build_report(collect(tmp_path), tmp_path / "out")[1]["notes"]
    assert any("tokenize=13a finds few words" in note and "tokenize=zh" in note for note in notes)


def test_report_in_a_folder_that_cannot_be_written_names_the_folder(tmp_path, make_run):
    make_run(tmp_path / "conv", "conv", segments=4)
    (tmp_path / "out").write_text("a file, not a folder")
    with pytest.raises(UserError, match=r"the report cannot be written into .*out: ") as raised:
        build_report(collect(tmp_path), tmp_path / "out")
    assert ".tmp" not in str(raised.value)


def test_length_ratio_is_shown_by_source_length(built):
    files, report, page = built
    markdown = files.markdown.read_text(encoding="utf-8")
    assert "## Length ratio by source length" in markdown and 'id="figure-length-ratio-by-length"' in page
    for bucket in report["systems"][0]["by_length"]:
        assert f"{bucket['length_ratio']:.2f}" in markdown


def test_what_length_costs_each_system_is_shown_with_the_way_to_read_it(built):
    files, report, page = built
    losses = {name: own["loss"] for name, own in report["length_losses"]["systems"].items()}
    heading, *rows = loss_rows(report)
    assert heading == ["System", "chrF lost per 10 words", "against rnn"]
    assert {row[0]: row[1] for row in rows}["rnn"] == score_text(losses["rnn"], 2).replace("-", "\u2212")
    assert {row[0]: row[2] for row in rows}["rnn"] == "baseline"
    for text in (page, files.markdown.read_text(encoding="utf-8")):
        assert "Loss with source length" in text and "clustered by 30 independent segments" in text
        assert all(cell in text for row in rows for cell in row)
        assert "share of the best system" in html.unescape(text)


def test_a_length_loss_below_0_is_a_gain(built):
    report = deepcopy(built[1])
    gain = {"score": -0.5, "low": -1.25, "high": 0.25}
    report["length_losses"]["systems"]["transformer"] = {"loss": gain, "difference": gain}
    row = next(row for row in loss_rows(report) if row[0] == "transformer")
    assert row[1:] == ["\u22120.50 [\u22121.25, 0.25]"] * 2


def test_bleu_is_named_by_its_protocol_wherever_it_stands(tmp_path, make_run):
    for model in ("rnn", "conv"):
        own = make_run(tmp_path / "runs" / model, model, segments=8, longest=9, tokenize="none", lowercase=True)
        assert own.is_dir()
    files, report = build_report(collect(tmp_path / "runs"), tmp_path / "out")
    named = "BLEU (tokenized, lowercased)"
    assert report["labels"]["bleu"] == named
    page, markdown = (path.read_text(encoding="utf-8") for path in (files.html, files.markdown))
    assert f"{named}, " in page.split("<h1>")[1].split("</h1>")[0]
    assert f">{named}</button>" in page and f"| {named} |" in markdown.replace("  ", " ").replace("  ", " ")
    for figure in ("bleu-by-length", "validation-bleu-by-update"):
        assert named in (tmp_path / "out" / "figures" / f"{figure}.svg").read_text(encoding="utf-8")
    assert "BLEU by source length" not in markdown.replace(named, "")


def test_large_test_sets_are_thinned_for_the_browser(tmp_path, make_run, monkeypatch):
    import seq2seq.report.sentences as sentences

    monkeypatch.setattr(sentences, "MAX_CHARACTERS", 3000)
    make_run(tmp_path / "conv", "conv", segments=30)
    files, report = build_report(collect(tmp_path / "conv"), tmp_path / "out")
    table = report["sentences"]
    assert f"One segment in {table['step']} is shown" in (page := files.html.read_text(encoding="utf-8"))
    assert "them all" not in page
    assert f"systems differ most, of one in {table['step']}." in files.markdown.read_text(encoding="utf-8")
    assert table["step"] > 1
    assert table["rows"] == list(range(0, 30, table["step"]))
    assert len(table["sources"]) == len(table["systems"]["conv"]["bleu"]) == len(table["rows"])


def test_summary_is_a_table_on_a_terminal_and_markdown_in_a_pipe(built):
    report = built[1]
    piped = StringIO()
    print_summary(report, Console(file=piped))
    assert piped.getvalue().startswith("| System")
    assert all(system["name"] in piped.getvalue() for system in report["systems"])
    terminal = StringIO()
    print_summary(report, Console(file=terminal, force_terminal=True, width=250))
    assert "━" in terminal.getvalue() and f"[{report['systems'][0]['bleu']['low']:.1f}" in terminal.getvalue()
    assert summary_table(report).row_count == 2


def test_example_rows_are_literal(built):
    report = built[1]
    texts = [text for _, text in example_rows(report)[1:]]
    assert not any("<" in text for text in texts)
    report = {**report, "sentences": {**report["sentences"], "rows": [0]}}
    assert example_rows(report)[1][1] == "plain &amp; &lt;b&gt;bold&lt;/b&gt;"


def test_sentences_take_the_direction_of_their_script(built):
    for rule in (".line .text", ".ngrams tbody th", ".heatmap .words"):
        assert re.search(re.escape(rule) + r" {[^}]*unicode-bidi: plaintext", built[2])

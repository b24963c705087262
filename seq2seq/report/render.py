"""Write a comparison as report.html, report.md, report.json and one SVG file a figure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seq2seq.evaluation.lengths import bucket_label, hardly_spaced
from seq2seq.evaluation.metrics import signature_settings
from seq2seq.files import atomic_write
from seq2seq.report import tables
from seq2seq.report.comparison import compare
from seq2seq.report.draw import draw, short_number, short_time, standalone
from seq2seq.report.figures import figures, part_figure
from seq2seq.report.headline import fairness, headline
from seq2seq.report.splits import long_segments, share_of_alone
from seq2seq.report.study import Study

WIDE, MEDIUM, NARROW = (860, 410), (560, 360), (400, 340)
"""Sizes of the drawings: across the page and in files, two in a row, and on a phone."""


@dataclass(frozen=True)
class ReportFiles:
    """Where `build_report` wrote."""

    html: Path
    markdown: Path
    json: Path
    figures: list[Path]


def build_report(
    study: Study, folder: str | Path, baseline: str | None = None, split: str | None = None
) -> tuple[ReportFiles, dict[str, Any]]:
    """Compare the study's runs and write the report into `folder`; also returns the values (`comparison.compare`).

    What counts words between spaces is left out, with a note, where the references hardly have spaces.
    """
    report = compare(study, baseline, split)
    if report["sentences"] and hardly_spaced(report["sentences"]["references"]):
        report = _without_words(report)
    return write_report(report, folder), report


def _without_words(report: Mapping[str, Any]) -> dict[str, Any]:
    notes = [
        f"the references of {report['split']} hardly have spaces: word F1, n-grams and the parts of joined segments, "
        "which count words between spaces, were left out"
    ]
    tokenize = signature_settings(report["signatures"]["bleu"]).get("tok")
    if tokenize in ("13a", "intl"):
        notes.append(
            f"tokenize={tokenize} finds few words in text without spaces, so that BLEU means little: "
            "score with a tokenizer for the language, such as tokenize=zh, ja-mecab or char"
        )
    return {**report, "words": None, "ngrams": [], "parts": [], "notes": [*report["notes"], *notes]}


def write_report(report: Mapping[str, Any], folder: str | Path) -> ReportFiles:
    """Write report.html (one file that needs no network), report.md, report.json and figures/*.svg."""
    folder = Path(folder)
    charts = figures(report)
    wide = {name: draw(chart, *WIDE) for name, chart in charts.items()}
    medium = {name: draw(chart, *MEDIUM) for name, chart in charts.items()}
    narrow = {name: draw(chart, *NARROW) for name, chart in charts.items()}
    values = {
        "report": report,
        "headline": headline(report),
        "fairness": fairness(report),
        "long": long_segments(report["systems"][0]),
        "columns": tables.columns(report),
        "charts": charts,
    }
    environment = _environment()
    page = environment.get_template("report.html.j2").render(
        **values,
        wide={name: Markup(svg) for name, svg in wide.items()},
        medium={name: Markup(svg) for name, svg in medium.items()},
        narrow={name: Markup(svg) for name, svg in narrow.items()},
        payload=script_json(_payload(report)),
        **{name: Markup(_template(file)) for name, file in ASSETS.items()},
    )
    text = environment.get_template("report.md.j2").render(**values)
    paths = ReportFiles(
        folder / "report.html",
        folder / "report.md",
        folder / "report.json",
        [folder / "figures" / f"{name}.svg" for name in charts],
    )
    drawings = [standalone(svg) for svg in wide.values()]
    everything = json.dumps(report, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    contents = [page, text, everything, *drawings]
    for path, content in zip([paths.html, paths.markdown, paths.json, *paths.figures], contents, strict=True):
        with atomic_write(path) as stream:
            stream.write(content)
    return paths


ASSETS = {
    "theme_css": "theme.css",
    "report_css": "report.css",
    "heatmap_css": "heatmap.css",
    "heatmap_js": "heatmap.js",
    "report_js": "report.js",
}


def script_json(value: Any) -> Markup:
    """JSON that may stand inside <script>: no character of it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _payload(report: Mapping[str, Any]) -> dict[str, Any]:
    systems = [{"name": system["name"], "colour": system["colour"]} for system in report["systems"]]
    return {
        "systems": systems,
        "baseline": report["baseline"],
        "sentences": report["sentences"],
        "attention": report["attention"],
    }


def _template(name: str) -> str:
    return files("seq2seq.report").joinpath(f"templates/{name}").read_text(encoding="utf-8")


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("seq2seq.report"),
        autoescape=lambda name: bool(name and ".html" in name),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bucket": lambda bucket: bucket_label(bucket["low"], bucket["high"]),
        "number": short_number,
        "time": short_time,
        "p": tables.p_text,
        "score": tables.score_text,
        "difference": tables.difference_text,
        "yaml": lambda value: yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120),
        "table": tables.markdown_table,
    }
    environment.globals |= {
        "cell": tables.cell,
        "best": tables.best,
        "rows": tables.summary_rows,
        "difference_rows": difference_rows,
        "by_length": by_length_rows,
        "other_rows": other_rows,
        "part_rows": part_rows,
        "part_note": part_note,
        "part_figure": part_figure,
        "beam_rows": beam_rows,
        "effect_rows": effect_rows,
        "example_rows": example_rows,
    }
    return environment


def difference_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """How far each system is from the baseline in BLEU and chrF, and whether it was luck."""
    rows = [
        [
            system["name"],
            tables.tested_text(system["bleu_difference"]),
            tables.p_text(system["p_value"]),
            tables.tested_text(system["chrf_difference"]),
            tables.p_text(system["chrf_p_value"]),
        ]
        for system in report["systems"]
        if system["bleu_difference"]
    ]
    return [[f"Against {report['baseline']}", report["bleu_name"], "p", "chrF", "p"], *rows]


def by_length_rows(report: Mapping[str, Any], metric: str) -> list[list[str]]:
    """Source words, segments, then each system's score with its interval."""
    systems = [system for system in report["systems"] if system["by_length"]]
    buckets = {bucket["low"]: bucket for system in systems for bucket in system["by_length"]}
    rows = [["Source words", "Segments", *(system["name"] for system in systems)]]
    for low in sorted(buckets):
        own = [next((b for b in system["by_length"] if b["low"] == low), None) for system in systems]
        scores = [tables.score_text(bucket[metric]) if bucket else tables.NONE for bucket in own]
        label = bucket_label(buckets[low]["low"], buckets[low]["high"])
        rows.append([label, str(buckets[low]["segments"]), *scores])
    return rows


def other_rows(other: Mapping[str, Any]) -> list[list[str]]:
    """Scores of another test set."""
    forms = {
        "bleu": (other["bleu_name"], tables.score_text),
        "chrf": ("chrF", tables.score_text),
        "ter": ("TER", tables.score_text),
        "comet": ("COMET", tables.comet_text),
        "retention": (f"Retention (n={other['long_segments']})", tables.retention_text),
    }
    systems = other["systems"]
    shown = {metric: form for metric, form in forms.items() if any(scores[metric] for scores in systems.values())}

    def cell(score: Mapping[str, Any] | None, form: Callable[[Mapping[str, Any]], str]) -> str:
        if score is None:
            return tables.NONE
        return form(score) + (f" (n={score['runs']})" if "runs" in score else "")

    rows = [
        [name, *(cell(scores[metric], form) for metric, (_, form) in shown.items())] for name, scores in systems.items()
    ]
    return [["System", *(heading for heading, _ in shown.values())], *rows]


def part_rows(table: Mapping[str, Any]) -> list[list[str]]:
    """BLEU of each part of joined segments, and what it keeps of the BLEU of the same segments translated alone."""
    count = max(len(parts) for parts in table["systems"].values())
    rows = [["System", *(f"Part {number}" for number in range(1, count + 1))]]
    for name, parts in table["systems"].items():
        shares = [share_of_alone(part) for part in parts]
        kept = ["" if share is None else f", {share:.0%}" for share in shares]
        rows.append([name, *(tables.score_text(part["bleu"]) + text for part, text in zip(parts, kept, strict=True))])
    return rows


def part_note(tables: Sequence[Mapping[str, Any]]) -> str:
    """How the parts may be read against each other, and the systems."""
    parts = [part for table in tables for own in table["systems"].values() for part in own]
    meaning = (
        "percentages are a part's BLEU over the BLEU of the same segments translated alone, 100% meaning that nothing "
        "is forgotten."
        if any(share_of_alone(part) is not None for part in parts)
        else "compare systems at one part, not the parts of one system."
    )
    return f"The parts are different sentences, some harder than others: {meaning}"


def beam_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """What the size of the beam does to BLEU, length and speed."""
    rows = [["System", "Beam", report["bleu_name"], "Length", "Sentences/s"]]
    for system in report["systems"]:
        for beam in system["by_beam_size"]:
            length = f"{beam['length_ratio']:.2f}" if beam.get("length_ratio") else tables.NONE
            speed = short_number(beam["sentences_per_second"]) if beam.get("sentences_per_second") else tables.NONE
            rows.append([system["name"], str(beam["beam_size"]), tables.score_text(beam["bleu"]), length, speed])
    return rows


def effect_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """One setting changed, and what it did to BLEU."""
    rows = [
        [
            f"`{effect['setting']}`",
            f"{effect['first_value']} ({effect['first']})",
            f"{effect['second_value']} ({effect['second']})",
            tables.difference_text(effect["difference"]),
            tables.p_text(effect["p_value"]),
        ]
        for effect in report["effects"]
    ]
    return [["Setting", "From", "To", "BLEU", "p"], *rows]


def example_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """The segment whose sentence BLEU differs most between systems, with everybody's output."""
    sentences = report["sentences"]
    bleu = [system["bleu"] for system in sentences["systems"].values()]
    index = max(range(len(sentences["rows"])), key=lambda row: max(b[row] for b in bleu) - min(b[row] for b in bleu))
    outputs = [[name, system["hypotheses"][index]] for name, system in sentences["systems"].items()]
    given = [["source", sentences["sources"][index]], ["reference", sentences["references"][index]]]
    return [["System", "Text"], *([name, tables.literal(text)] for name, text in (*given, *outputs))]

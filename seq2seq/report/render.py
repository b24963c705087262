"""Write a comparison as report.html, report.md, report.json and one SVG file per figure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seq2seq.errors import UserError
from seq2seq.evaluation.lengths import bucket_label
from seq2seq.evaluation.metrics import METRICS, PRIMARY
from seq2seq.files import atomic_write
from seq2seq.report import tables
from seq2seq.report.comparison import compare
from seq2seq.report.difficulty import loss_note, loss_rows
from seq2seq.report.draw import draw, short_number, short_time, standalone
from seq2seq.report.figures import figures, part_figure
from seq2seq.report.headline import fairness, headline
from seq2seq.report.splits import share_of_alone
from seq2seq.report.study import Study

WIDE, MEDIUM, NARROW = (860, 410), (560, 360), (400, 340)
"""Sizes of the drawings: across the page and in files, two in a row, and on a phone."""


@dataclass(frozen=True)
class ReportFiles:
    """The files that `build_report` wrote."""

    html: Path
    markdown: Path
    json: Path
    figures: list[Path]


def build_report(
    study: Study, folder: str | Path, baseline: str | None = None, split: str | None = None
) -> tuple[ReportFiles, dict[str, Any]]:
    """Compare the study's results and write the report into `folder`; also returns the values (`comparison.compare`).

    Raises UserError where the folder cannot be written.
    """
    report = compare(study, baseline, split)
    return write_report(report, folder), report


def write_report(report: Mapping[str, Any], folder: str | Path) -> ReportFiles:
    """Write report.html (one file that needs no network), report.md, report.json and figures/*.svg.

    Raises UserError where the folder cannot be written.
    """
    folder = Path(folder)
    charts = figures(report)
    wide = {name: draw(chart, *WIDE) for name, chart in charts.items()}
    medium = {name: draw(chart, *MEDIUM) for name, chart in charts.items()}
    narrow = {name: draw(chart, *NARROW) for name, chart in charts.items()}
    values = {
        "report": report,
        "headline": headline(report),
        "fairness": fairness(report),
        "several_seeds": any(len(system["runs"]) > 1 for system in report["systems"]),
        "retention": tables.retention_definition(report),
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
    try:
        for path, content in zip([paths.html, paths.markdown, paths.json, *paths.figures], contents, strict=True):
            with atomic_write(path) as stream:
                stream.write(content)
    except OSError as error:
        raise UserError(f"the report cannot be written into {folder}: {error.strerror}") from error
    return paths


ASSETS = {
    "theme_css": "theme.css",
    "report_css": "report.css",
    "heatmap_css": "heatmap.css",
    "heatmap_js": "heatmap.js",
    "report_js": "report.js",
}


def script_json(value: Any) -> Markup:
    """Write JSON that may stand inside <script>: no character of it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _payload(report: Mapping[str, Any]) -> dict[str, Any]:
    systems = [{"name": system["name"], "color": system["color"]} for system in report["systems"]]
    scored = next(iter(report["sentences"]["systems"].values())) if report["sentences"] else {}
    return {
        "systems": systems,
        "baseline": report["baseline"],
        "units": report["units"],
        "metrics": [
            {"key": metric.key, "name": metric.name, "rising": metric.rising}
            for metric in METRICS.values()
            if metric.key in scored
        ],
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
        "loss_rows": loss_rows,
        "loss_note": loss_note,
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
    """Difference of each system from the baseline by each tested metric, and its p-value."""
    tested = [system for system in report["systems"] if system["tests"]]
    keys = [key for key in report["labels"] if any(key in system["tests"] for system in tested)]
    rows = [
        [
            system["name"],
            *(
                text
                for key in keys
                for text in (
                    tables.tested_text(system["tests"].get(key, {}).get("difference")),
                    tables.p_text(tables.p_value(system, key)),
                )
            ),
        ]
        for system in tested
    ]
    return [[f"Against {report['baseline']}", *(text for key in keys for text in (report["labels"][key], "p"))], *rows]


def by_length_rows(report: Mapping[str, Any], key: str) -> list[list[str]]:
    """Source length, segments, then each system's score by a metric, with a share of the best system's for the
    primary metric, or its "length_ratio"."""
    systems = [system for system in report["systems"] if any(bucket.get(key) for bucket in system["by_length"])]
    buckets = {bucket["low"]: bucket for system in systems for bucket in system["by_length"]}
    rows = [[f"Source {report['units']['source']}", "Segments", *(system["name"] for system in systems)]]

    def text(bucket: Mapping[str, Any]) -> str:
        value, share = bucket.get(key), bucket.get("share_of_best")
        if key in METRICS:
            kept = f", {share:.0%}" if key == PRIMARY.key and share is not None else ""
            return tables.score_text(value, METRICS[key].digits) + kept
        return tables.NONE if value is None else f"{value:.2f}"

    for low in sorted(buckets):
        own: list[Mapping[str, Any]] = [
            next((bucket for bucket in system["by_length"] if bucket["low"] == low), {}) for system in systems
        ]
        label = bucket_label(buckets[low]["low"], buckets[low]["high"])
        rows.append([label, str(buckets[low]["segments"]), *map(text, own)])
    return rows


def other_rows(other: Mapping[str, Any]) -> list[list[str]]:
    """Scores of another test set."""
    systems = other["systems"]
    headings = {**other["labels"], "retention": f"Retention (n={other['long_segments']})"}
    shown = {key: text for key, text in headings.items() if any(scores[key] for scores in systems.values())}

    def cell(key: str, score: Mapping[str, Any] | None) -> str:
        text = tables.score_text(score, METRICS[key].digits) if key in METRICS else tables.retention_text(score)
        return text + (f" (n={score['runs']})" if score and "runs" in score else "")

    rows = [[name, *(cell(key, scores[key]) for key in shown)] for name, scores in systems.items()]
    return [["System", *shown.values()], *rows]


def part_rows(table: Mapping[str, Any]) -> list[list[str]]:
    """Score of each part of joined segments, and its share of the score of the same segments translated alone."""
    count = max(len(parts) for parts in table["systems"].values())
    rows = [["System", *(f"Part {number}" for number in range(1, count + 1))]]
    for name, parts in table["systems"].items():
        shares = [share_of_alone(part) for part in parts]
        kept = [
            "" if share is None else f", {share:.0%} of {part['alone']['score']:.1f}"
            for part, share in zip(parts, shares, strict=True)
        ]
        rows.append(
            [name, *(tables.score_text(part[PRIMARY.key]) + text for part, text in zip(parts, kept, strict=True))]
        )
    return rows


def part_note(tables: Sequence[Mapping[str, Any]]) -> str:
    """Explain how to compare the parts, and the systems."""
    parts = [part for table in tables for own in table["systems"].values() for part in own]
    meaning = (
        f"percentages are a part's {PRIMARY.name} divided by that of the same segments translated alone, which is "
        "given after it; 100% means that nothing is forgotten."
        if any(share_of_alone(part) is not None for part in parts)
        else "compare systems at one part, not the parts of one system."
    )
    return f"The parts are different sentences, some harder than others: {meaning}"


def beam_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """Effect of the beam's size on score, length and speed."""
    rows = [["System", "Beam", report["labels"][PRIMARY.key], "Length", "Sentences/s"]]
    for system in report["systems"]:
        for beam in system["by_beam_size"]:
            length = f"{beam['length_ratio']:.2f}" if beam.get("length_ratio") else tables.NONE
            speed = short_number(beam["sentences_per_second"]) if beam.get("sentences_per_second") else tables.NONE
            rows.append([system["name"], str(beam["beam_size"]), tables.score_text(beam[PRIMARY.key]), length, speed])
    return rows


def effect_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """Effect of one changed setting on the score."""
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
    return [["Setting", "From", "To", PRIMARY.name, "p"], *rows]


def example_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """The segment whose sentence score differs most between systems, with the output of each."""
    sentences = report["sentences"]
    scores = [system[PRIMARY.key] for system in sentences["systems"].values()]
    index = max(
        range(len(sentences["rows"])), key=lambda row: max(s[row] for s in scores) - min(s[row] for s in scores)
    )
    outputs = [[name, system["hypotheses"][index]] for name, system in sentences["systems"].items()]
    given = [["source", sentences["sources"][index]], ["reference", sentences["references"][index]]]
    return [["System", "Text"], *([name, tables.literal(text)] for name, text in (*given, *outputs))]

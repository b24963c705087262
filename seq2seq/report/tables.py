"""Tables: the summary, one row per system, in the terminal, in Markdown and on the page, and the texts of its cells."""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from seq2seq.evaluation.lengths import LONG, SHORT
from seq2seq.evaluation.metrics import METRICS, PRIMARY, perplexity_text
from seq2seq.report.draw import short_number, short_time
from seq2seq.report.splits import long_segments

NONE = "\u2013"

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters except tabs and ends of lines."""


@dataclass(frozen=True)
class Column:
    """One column. value: the number to sort by (None: nothing to show); text: the cell; rising: higher is better.
    compared: whether the best value stands out."""

    key: str
    heading: str
    explanation: str
    value: Callable[[Mapping[str, Any]], float | None]
    text: Callable[[Mapping[str, Any]], str]
    rising: bool = True
    compared: bool = False


def columns(report: Mapping[str, Any]) -> list[Column]:
    """The columns that have a value for at least one system."""
    unit = report["units"]["target"]
    everything = [
        *([_seeds()] if any(len(system["runs"]) > 1 for system in report["systems"]) else []),
        _number("parameters", "Params", "Trained numbers, tied ones counted once", short_number, rising=False),
        *(column for key in report["labels"] for column in _metric_columns(report, key)),
        _score_column("retention", "Retention", f"{retention_definition(report)}, with {report['bounds']}", _retention),
        _number(
            "perplexity",
            "Perplexity",
            "Per target token; comparable with the same tokenizer only",
            perplexity_text,
            rising=False,
        ),
        replace(
            _number(
                "alignment_error_rate",
                "AER",
                "Alignment error rate of attention, in percent",
                _hundred,
                rising=False,
            ),
            compared=True,
        ),
        _number(
            "repetition_rate",
            "Repeats",
            f"{unit.capitalize()} that repeat the n-gram right before them (n up to 4)",
            _hundred,
            rising=False,
        ),
        _number("length_ratio", "Length", "Output tokens divided by reference tokens", _two),
        _number("training_seconds", "Training", "Wall time of training", short_time, rising=False),
        _number("training_updates", "Updates", "Optimizer steps", short_number, rising=False),
        _number("training_target_tokens_per_second", "Tokens/s", "Target tokens trained on per second", short_number),
        _number("sentences_per_second", "Sent./s", "Sentences translated per second", short_number),
    ]
    present = _metrics_of_runs(report)
    return [
        _with_counts(column, present) if column.key in METRICS else column
        for column in everything
        if any(column.value(system) is not None for system in report["systems"])
    ]


def _metric_columns(report: Mapping[str, Any], key: str) -> list[Column]:
    """A metric's score; of the primary metric also its bounds, and the p-value against the baseline."""
    metric, label, baseline = METRICS[key], report["labels"][key], report["baseline"]

    def text(score: Mapping[str, Any]) -> str:
        return score_text(score, metric.digits, bounds=metric is PRIMARY)

    if metric is not PRIMARY:
        return [_score_column(key, label, metric.explanation, text, metric.rising)]
    explanation = f"{metric.explanation}, with {report['bounds']}; ± is the deviation over seeds"
    return [
        _score_column(key, label, explanation, text, metric.rising),
        Column(
            "p_value",
            f"p vs {baseline}",
            f"Paired bootstrap against {baseline}: how often chance alone gives such a {metric.name} difference",
            p_value,
            lambda system: p_text(p_value(system)) if system["name"] != baseline else "baseline",
            rising=False,
        ),
    ]


def p_value(system: Mapping[str, Any], key: str = PRIMARY.key) -> float | None:
    """The p-value of a system's difference from the baseline; None where it was not tested."""
    tests = system["tests"] or {}
    return tests[key]["p_value"] if key in tests else None


def retention_definition(report: Mapping[str, Any]) -> str:
    """Define retention in the units of the test set."""
    unit = report["units"]["source"]
    low, high = SHORT[unit]
    segments = long_segments(report["systems"][0])
    return (
        f"{PRIMARY.name} at {long_lengths(report)} ({segments} segments) divided by {PRIMARY.name} at {low} to {high}"
    )


def long_lengths(report: Mapping[str, Any]) -> str:
    """'40 or more source words': the sources that retention calls long."""
    unit = report["units"]["source"]
    return f"{LONG[unit][0]} or more source {unit}"


def _seeds() -> Column:
    def number(system: Mapping[str, Any]) -> int | None:
        return None if system["external"] else len(system["runs"])

    return Column("seeds", "Seeds", "Trained runs whose scores are averaged", number, lambda s: str(number(s)))


def _metrics_of_runs(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The metrics that each trained run has on the main test set."""
    return {run["name"]: run["splits"].get(report["split"], {}) for run in report["reproduce"]}


def _with_counts(column: Column, present: Mapping[str, Mapping[str, Any]]) -> Column:
    """The column with "(n=1)" where fewer runs than the system has were averaged."""

    def text(system: Mapping[str, Any]) -> str:
        having = [run for run in system["runs"] if column.key in present.get(run, {})]
        fewer = not system["external"] and len(having) < len(system["runs"])
        return column.text(system) + (f" (n={len(having)})" if fewer else "")

    return replace(column, text=text)


def cell(column: Column, system: Mapping[str, Any]) -> str:
    """The column's text for a system."""
    if column.value(system) is None and not (column.key == "p_value" and column.text(system) == "baseline"):
        return NONE
    return column.text(system)


def best(column: Column, systems: Sequence[Mapping[str, Any]]) -> float | None:
    """The value to print in bold; only scores have one."""
    values = [value for system in systems if (value := column.value(system)) is not None]
    if not column.compared or len(values) < 2:
        return None
    return max(values) if column.rising else min(values)


def summary_table(report: Mapping[str, Any]) -> Table:
    """Lay out the systems of `comparison.compare`'s report for a terminal."""
    shown = columns(report)
    table = Table(title=f"{report['title']}, {report['segments']} segments", header_style="bold", title_justify="left")
    table.add_column("System", no_wrap=True)
    for column in shown:
        table.add_column(column.heading, justify="right", no_wrap=column.key not in (PRIMARY.key, "retention"))
    for system in report["systems"]:
        cells = []
        for column in shown:
            top = best(column, report["systems"])
            text = cell(column, system)
            cells.append(f"[bold]{text}[/bold]" if top is not None and column.value(system) == top else text)
        table.add_row(system["name"].replace("[", "\\["), *(text.replace(" [", " \\[") for text in cells))
    return table


def summary_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """The cells of the summary as plain text, headings first."""
    shown = columns(report)
    rows = [[system["name"], *(cell(column, system) for column in shown)] for system in report["systems"]]
    return [["System", *(column.heading for column in shown)], *rows]


def markdown_table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Write a Markdown table that also reads as plain text; `left` columns are left-aligned, the others right."""
    escaped = [[re.sub("[\r\n]", " ", text.replace("|", "\\|")) for text in row] for row in rows]
    widths = [max(3, *(len(row[i]) for row in escaped)) for i in range(len(escaped[0]))]

    def line(row: Sequence[str]) -> str:
        cells = [
            text.ljust(width) if i < left else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        return f"| {' | '.join(cells)} |"

    rule = ["-" * width if i < left else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join([line(escaped[0]), line(rule), *(line(row) for row in escaped[1:])])


def literal(text: str) -> str:
    """Write text as Markdown that is read as this very text; control characters become U+FFFD."""
    return html.escape(re.sub(r"([\\`*_~\[\]])", r"\\\1", CONTROL.sub("\ufffd", text)), quote=False)


def print_summary(report: Mapping[str, Any], console: Console) -> None:
    """Print the table in colors on a terminal, as Markdown into a file or pipe."""
    if console.is_terminal:
        console.print(summary_table(report))
    else:
        console.file.write(markdown_table(summary_rows(report)) + "\n")


def p_text(value: float | None) -> str:
    """Format a p-value as papers print it."""
    if value is None:
        return NONE
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def difference_text(value: float | None) -> str:
    """Format a difference: '+1.2', '\u22120.4', '0.0'."""
    if value is None:
        return NONE
    return "0.0" if abs(value) < 0.05 else f"{value:+.1f}".replace("-", "\u2212")


def tested_text(difference: Mapping[str, Any] | None) -> str:
    """Format a difference between two systems with its bounds, if it has any: '+1.3 [0.4, 2.2]'."""
    if difference is None:
        return NONE
    low, high = difference.get("low"), difference.get("high")
    interval = f" [{low:.1f}, {high:.1f}]".replace("-", "\u2212") if low is not None and high is not None else ""
    return difference_text(difference["score"]) + interval


def score_text(score: Mapping[str, Any] | None, digits: int = 1, bounds: bool = True) -> str:
    """Format a score: '36.2 [35.1, 37.4]', with '± 0.3' where there are several seeds."""
    if not score:
        return NONE
    deviation = score.get("deviation")
    text = f"{score['score']:.{digits}f}" + (f" ± {deviation:.{digits}f}" if deviation is not None else "")
    if not bounds or score.get("low") is None:
        return text
    return f"{text} [{score['low']:.{digits}f}, {score['high']:.{digits}f}]"


def retention_text(score: Mapping[str, Any] | None) -> str:
    """Format a retention: '70% [61%, 79%]'."""
    return _retention(score) if score else NONE


def _number(key: str, heading: str, explanation: str, form: Callable[[float], str], rising: bool = True) -> Column:
    return Column(key, heading, explanation, lambda s: s[key], lambda s: form(s[key]), rising)


def _score_column(
    key: str, heading: str, explanation: str, form: Callable[[Mapping[str, Any]], str], rising: bool = True
) -> Column:
    def value(system: Mapping[str, Any]) -> float | None:
        return system[key]["score"] if system[key] else None

    return Column(key, heading, explanation, value, lambda system: form(system[key]), rising, compared=True)


def _retention(score: Mapping[str, Any]) -> str:
    interval = f" [{score['low']:.0%}, {score['high']:.0%}]" if score.get("low") is not None else ""
    return f"{score['score']:.0%}{interval}"


def _two(value: float) -> str:
    return f"{value:.2f}"


def _hundred(value: float) -> str:
    return f"{100 * value:.1f}%"

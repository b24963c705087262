"""Figures of a report, each made from the values that report.json holds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seq2seq.evaluation.lengths import bucket_label
from seq2seq.evaluation.metrics import METRICS, PRIMARY
from seq2seq.report.draw import Chart, Point, Series, short_number
from seq2seq.report.splits import share_of_alone


def figures(report: Mapping[str, Any]) -> dict[str, Chart]:
    """File name (without ending) -> chart, in the order of the report; charts without data are left out."""
    key, name = PRIMARY.key, report["labels"][PRIMARY.key]
    score, perplexity = f"valid_{key}", "valid_perplexity"
    charts = {
        **{f"{key}-by-length": _by_length(report, key, label) for key, label in report["labels"].items()},
        f"{key}-share-by-length": _share_by_length(report, name),
        "length-ratio-by-length": _ratio_by_length(report),
        **{part_figure(report, table): _by_part(report, table) for table in report["parts"]},
        f"{key}-by-beam-size": _by_beam_size(report),
        f"validation-{key}-by-time": _training(report, "seconds", score, f"Validation {name}"),
        f"validation-{key}-by-update": _training(report, "update", score, f"Validation {name}"),
        "validation-perplexity-by-time": _training(
            report, "seconds", perplexity, "Validation perplexity", logarithmic=True
        ),
        "validation-perplexity-by-update": _training(
            report, "update", perplexity, "Validation perplexity", logarithmic=True
        ),
        "word-f1-by-frequency": _word_f1(report),
        "length-differences": _length_differences(report),
    }
    return {name: chart for name, chart in charts.items() if chart.series}


def _by_length(report: Mapping[str, Any], key: str, name: str) -> Chart:
    return _length_chart(
        report,
        name,
        lambda bucket: bucket.get(key),
        lambda place, score, note: _point(place, score, f"{note}: {name}", METRICS[key].digits),
    )


def _share_by_length(report: Mapping[str, Any], name: str) -> Chart:
    label = f"{name}, share of the best (%)"
    return _length_chart(
        report,
        label,
        lambda bucket: bucket["share_of_best"],
        lambda place, share, note: Point(
            place, 100 * share, note=f"{note}: {share:.0%} of the best system's {name} at this length"
        ),
    )


def _ratio_by_length(report: Mapping[str, Any]) -> Chart:
    return _length_chart(
        report,
        "Length ratio",
        lambda bucket: bucket.get("length_ratio"),
        lambda place, ratio, note: Point(place, ratio, note=f"{note}: length ratio {ratio:.2f}"),
    )


def _length_chart(
    report: Mapping[str, Any],
    name: str,
    value: Callable[[Mapping[str, Any]], Any],
    point: Callable[[int, Any, str], Point],
) -> Chart:
    """A value of each length bucket; systems and buckets that lack it are left out."""
    unit = report["units"]["source"]
    counted: dict[int, tuple[str, str]] = {}
    for system in report["systems"]:
        for bucket in system["by_length"]:
            if value(bucket) is not None:
                counted[bucket["low"]] = (bucket_label(bucket["low"], bucket["high"]), f"n={bucket['segments']}")
    lows = sorted(counted)
    series = []
    for system in _in_color_order(report):
        points = [
            point(lows.index(bucket["low"]), own, f"{system['name']}, {counted[bucket['low']][0]} {unit}")
            for bucket in system["by_length"]
            if (own := value(bucket)) is not None
        ]
        if points:
            series.append(Series(system["name"], system["color"], points))
    label = f"{unit.capitalize()} in the source sentence"
    return Chart(f"{name} by source length", label, name, series, [counted[low] for low in lows])


def part_figure(report: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    """Name of the figure for one entry of report["parts"]."""
    name = f"{PRIMARY.key}-by-part"
    return name if len(report["parts"]) == 1 else f"{name}-{table['split'].rpartition('_')[2]}"


def _by_part(report: Mapping[str, Any], table: Mapping[str, Any]) -> Chart:
    """Share that each part keeps of the score of its segments alone; its score itself where one is not known."""
    name = report["labels"][PRIMARY.key]
    comparable = all(share_of_alone(part) is not None for own in table["systems"].values() for part in own)
    parts = sorted({part["part"] for own in table["systems"].values() for part in own})
    series = []
    for system in _in_color_order(report):
        points = [
            _part_point(parts.index(part["part"]), part, f"{system['name']}, part {part['part']}: {name}", comparable)
            for part in table["systems"].get(system["name"], [])
        ]
        if points:
            series.append(Series(system["name"], system["color"], points))
    title = f"{name} by position in the segment, {table['split']}"
    label = f"{PRIMARY.name} kept (%)" if comparable else name
    return Chart(title, "Part of the segment", label, series, [(str(part), "") for part in parts])


def _part_point(position: int, part: Mapping[str, Any], name: str, comparable: bool) -> Point:
    point, share = _point(position, part[PRIMARY.key], name), share_of_alone(part)
    if share is None or not comparable:
        return point
    return Point(position, 100 * share, note=f"{point.note}, {share:.0%} of the same segments alone")


def _by_beam_size(report: Mapping[str, Any]) -> Chart:
    name = report["labels"][PRIMARY.key]
    sizes = _union(report, "by_beam_size", lambda bucket: bucket["beam_size"])
    series = []
    for system in _in_color_order(report):
        points = [
            _point(
                sizes.index(beam["beam_size"]),
                beam[PRIMARY.key],
                f"{system['name']}, beam {beam['beam_size']}: {name}",
            )
            for beam in system["by_beam_size"]
        ]
        if points:
            series.append(Series(system["name"], system["color"], points))
    return Chart(f"{name} by beam size", "Beam size", name, series, [(str(size), "") for size in sizes])


def _training(report: Mapping[str, Any], x: str, y: str, y_label: str, logarithmic: bool = False) -> Chart:
    series = []
    for system in _in_color_order(report):
        events = report["training"].get(system["name"], [])
        points = [Point(e[x], e[y]) for e in events if e.get(x) is not None and e.get(y) is not None]
        if logarithmic:
            points = [point for point in points if point.y > 0]
        if points:
            series.append(Series(system["name"], system["color"], points))
    label, unit = ("Training time", "time") if x == "seconds" else ("Updates", "")
    title = f"{y_label} by {label.lower()}"
    few = all(len(each.points) <= 15 for each in series)
    return Chart(title, label, y_label, series, unit=unit, logarithmic=logarithmic, markers=few)


def _word_f1(report: Mapping[str, Any]) -> Chart:
    words = report["words"] or {"systems": {}, "counted_in": "training", "unit": "words"}
    lows = sorted({bucket["low"] for table in words["systems"].values() for bucket in table})
    series = []
    ticks: dict[int, tuple[str, str]] = {}
    for system in _in_color_order(report):
        points = []
        for bucket in words["systems"].get(system["name"], []):
            label = bucket_label(bucket["low"], bucket["high"])
            ticks[bucket["low"]] = (label, f"n={short_number(bucket['words'])}")
            note = f"{system['name']}, seen {label} times: F1 {100 * bucket['f1']:.1f}"
            points.append(Point(lows.index(bucket["low"]), 100 * bucket["f1"], note=note))
        if points:
            series.append(Series(system["name"], system["color"], points))
    where = "the training data" if words["counted_in"] == "training" else "the reference"
    word = words["unit"].removesuffix("s")
    title, label = f"{word.capitalize()} F1 by frequency", f"Occurrences of the {word} in {where}"
    return Chart(title, label, "F1 (%)", series, [ticks[i] for i in lows])


def _length_differences(report: Mapping[str, Any]) -> Chart:
    series = []
    ticks: Sequence[tuple[str, str]] = ()
    for system in _in_color_order(report):
        table = report["length_differences"].get(system["name"])
        if table:
            ticks = [_two_lines(bucket_label(bucket["low"], bucket["high"])) for bucket in table]
            points = [
                Point(i, 100 * b["share"], note=f"{system['name']}, {' '.join(ticks[i])}: {b['segments']} segments")
                for i, b in enumerate(table)
            ]
            series.append(Series(system["name"], system["color"], points))
    label = f"{report['units']['target'].capitalize()} more (+) or fewer (\u2212) than the reference"
    return Chart("Length of the output against the reference", label, "Segments (%)", series, ticks)


def _two_lines(label: str) -> tuple[str, str]:
    first, _, rest = label.replace("\u2013", " to ").partition(" to ")
    return first, f"to {rest}" if rest else ""


def _point(position: int, score: Mapping[str, Any], name: str, digits: int = 1) -> Point:
    low, high, deviation = score.get("low"), score.get("high"), score.get("deviation")
    interval = f" [{low:.{digits}f}, {high:.{digits}f}]" if low is not None and high is not None else ""
    seeds = f" ± {deviation:.{digits}f}" if deviation is not None else ""
    note = f"{name} {score['score']:.{digits}f}{seeds}{interval}"
    return Point(position, score["score"], low, high, note, deviation)


def _union(report: Mapping[str, Any], table: str, key: Callable[[Mapping[str, Any]], int]) -> list[int]:
    return sorted({key(bucket) for system in report["systems"] for bucket in system[table]})


def _in_color_order(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Worst first, so that the best line lies on top."""
    return list(reversed(report["systems"]))

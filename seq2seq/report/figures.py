"""Which charts a report has: each made from the values that report.json holds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seq2seq.evaluation.lengths import bucket_label, hardly_spaced
from seq2seq.report.draw import Chart, Point, Series, short_number
from seq2seq.report.splits import share_of_alone


def figures(report: Mapping[str, Any]) -> dict[str, Chart]:
    """File name (without ending) -> chart, in the order of the report; charts without data are left out."""
    charts = {
        "bleu-by-length": _by_length(report, "bleu", report["bleu_name"]),
        "chrf-by-length": _by_length(report, "chrf", "chrF"),
        **{part_figure(report, table): _by_part(report, table) for table in report["parts"]},
        "bleu-by-beam-size": _by_beam_size(report),
        "validation-bleu-by-time": _training(report, "seconds", "valid_bleu", f"Validation {report['bleu_name']}"),
        "validation-bleu-by-update": _training(report, "update", "valid_bleu", f"Validation {report['bleu_name']}"),
        "validation-perplexity-by-time": _training(
            report, "seconds", "valid_perplexity", "Validation perplexity", logarithmic=True
        ),
        "validation-perplexity-by-update": _training(
            report, "update", "valid_perplexity", "Validation perplexity", logarithmic=True
        ),
        "word-f1-by-frequency": _word_f1(report),
        "length-differences": _length_differences(report),
    }
    return {name: chart for name, chart in charts.items() if chart.series}


def _by_length(report: Mapping[str, Any], metric: str, name: str) -> Chart:
    buckets = _union(report, "by_length", lambda bucket: bucket["low"])
    series = []
    for system in _in_colour_order(report):
        points = []
        for bucket in system["by_length"]:
            score = bucket[metric]
            label = bucket_label(bucket["low"], bucket["high"])
            points.append(_point(buckets.index(bucket["low"]), score, f"{system['name']}, {label} words: {name}"))
        if points:
            series.append(Series(system["name"], system["colour"], points))
    counted = {
        bucket["low"]: (bucket_label(bucket["low"], bucket["high"]), f"n={bucket['segments']}")
        for system in report["systems"]
        for bucket in system["by_length"]
    }
    ticks = [counted[low] for low in buckets]
    return Chart(f"{name} by source length", "Words in the source sentence", name, series, ticks)


def part_figure(report: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    """Name of the figure for one entry of report["parts"]."""
    return "bleu-by-part" if len(report["parts"]) == 1 else f"bleu-by-part-{table['split'].rpartition('_')[2]}"


def _by_part(report: Mapping[str, Any], table: Mapping[str, Any]) -> Chart:
    """What each part keeps of the BLEU of its segments alone; its BLEU itself where one is not known."""
    name = report["bleu_name"]
    comparable = all(share_of_alone(part) is not None for own in table["systems"].values() for part in own)
    parts = sorted({part["part"] for own in table["systems"].values() for part in own})
    series = []
    for system in _in_colour_order(report):
        points = [
            _part_point(parts.index(part["part"]), part, f"{system['name']}, part {part['part']}: {name}", comparable)
            for part in table["systems"].get(system["name"], [])
        ]
        if points:
            series.append(Series(system["name"], system["colour"], points))
    title = f"{name} by position in the segment, {table['split']}"
    label = "BLEU kept (%)" if comparable else name
    return Chart(title, "Part of the segment", label, series, [(str(part), "") for part in parts])


def _part_point(position: int, part: Mapping[str, Any], name: str, comparable: bool) -> Point:
    point, share = _point(position, part["bleu"], name), share_of_alone(part)
    if share is None or not comparable:
        return point
    return Point(position, 100 * share, note=f"{point.note}, {share:.0%} of the same segments alone")


def _by_beam_size(report: Mapping[str, Any]) -> Chart:
    name = report["bleu_name"]
    sizes = _union(report, "by_beam_size", lambda bucket: bucket["beam_size"])
    series = []
    for system in _in_colour_order(report):
        points = [
            _point(sizes.index(beam["beam_size"]), beam["bleu"], f"{system['name']}, beam {beam['beam_size']}: {name}")
            for beam in system["by_beam_size"]
        ]
        if points:
            series.append(Series(system["name"], system["colour"], points))
    return Chart(f"{name} by beam size", "Beam size", name, series, [(str(size), "") for size in sizes])


def _training(report: Mapping[str, Any], x: str, y: str, y_label: str, logarithmic: bool = False) -> Chart:
    series = []
    for system in _in_colour_order(report):
        events = report["training"].get(system["name"], [])
        points = [Point(e[x], e[y]) for e in events if e.get(x) is not None and e.get(y) is not None]
        if logarithmic:
            points = [point for point in points if point.y > 0]
        if points:
            series.append(Series(system["name"], system["colour"], points))
    label, unit = ("Training time", "time") if x == "seconds" else ("Updates", "")
    title = f"{y_label} by {label.lower()}"
    few = all(len(each.points) <= 15 for each in series)
    return Chart(title, label, y_label, series, unit=unit, logarithmic=logarithmic, markers=few)


def _word_f1(report: Mapping[str, Any]) -> Chart:
    words = report["words"] or {"systems": {}, "counted_in": "training"}
    lows = sorted({bucket["low"] for table in words["systems"].values() for bucket in table})
    series = []
    ticks: dict[int, tuple[str, str]] = {}
    for system in _in_colour_order(report):
        points = []
        for bucket in words["systems"].get(system["name"], []):
            label = bucket_label(bucket["low"], bucket["high"])
            ticks[bucket["low"]] = (label, f"n={short_number(bucket['words'])}")
            note = f"{system['name']}, seen {label} times: F1 {100 * bucket['f1']:.1f}"
            points.append(Point(lows.index(bucket["low"]), 100 * bucket["f1"], note=note))
        if points:
            series.append(Series(system["name"], system["colour"], points))
    where = "the training data" if words["counted_in"] == "training" else "the reference"
    return Chart(
        "Word F1 by frequency", f"Occurrences of the word in {where}", "F1 (%)", series, [ticks[i] for i in lows]
    )


def _length_differences(report: Mapping[str, Any]) -> Chart:
    series = []
    ticks: Sequence[tuple[str, str]] = ()
    for system in _in_colour_order(report):
        table = report["length_differences"].get(system["name"])
        if table:
            ticks = [_two_lines(bucket_label(bucket["low"], bucket["high"])) for bucket in table]
            points = [
                Point(i, 100 * b["share"], note=f"{system['name']}, {' '.join(ticks[i])}: {b['segments']} segments")
                for i, b in enumerate(table)
            ]
            series.append(Series(system["name"], system["colour"], points))
    unit = "Characters" if series and hardly_spaced(report["sentences"]["references"]) else "Words"
    label = f"{unit} more (+) or fewer (\u2212) than the reference"
    return Chart("Length of the output against the reference", label, "Segments (%)", series, ticks)


def _two_lines(label: str) -> tuple[str, str]:
    first, _, rest = label.replace("\u2013", " to ").partition(" to ")
    return first, f"to {rest}" if rest else ""


def _point(position: int, score: Mapping[str, Any], name: str) -> Point:
    low, high = score.get("low"), score.get("high")
    interval = f" [{low:.1f}, {high:.1f}]" if low is not None and high is not None else ""
    return Point(position, score["score"], low, high, f"{name} {score['score']:.1f}{interval}")


def _union(report: Mapping[str, Any], table: str, key: Callable[[Mapping[str, Any]], int]) -> list[int]:
    return sorted({key(bucket) for system in report["systems"] for bucket in system[table]})


def _in_colour_order(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Worst first, so that the best line lies on top."""
    return list(reversed(report["systems"]))

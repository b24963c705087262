"""Line charts as SVG text: one drawing for the page, which colors it with its style, and for separate files.

Colors come from the classes c0 .. c9 of templates/theme.css. Every series also has its own dash pattern and marker and
carries its name at its end, so that nothing rests on color alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files

NARROW = 500
"""Below this width there is no room for names beside the lines; they stand above them."""

DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 4", "6 2 1 2", "14 3 2 3", "3 5")
CHARACTER = 8.0
"""Width of a bold character at the charts' font size of 13 pixels, by a wide font's measure."""


@dataclass(frozen=True)
class Point:
    """One value with its interval and its deviation over seeds, if it has them; `note` is its
    tooltip."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    note: str = ""
    deviation: float | None = None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def seeds(self) -> tuple[float, float] | None:
        """The value minus and plus its deviation, cut off at 0."""
        if self.deviation is None:
            return None
        return max(self.y - self.deviation, min(self.y, 0.0)), self.y + self.deviation


@dataclass(frozen=True)
class Series:
    """A named line; color is an index into the palette."""

    name: str
    color: int
    points: Sequence[Point]


@dataclass(frozen=True)
class Chart:
    """The content of a drawing.

    `ticks` name positions 0, 1, 2 .. of a categorical x axis, each with a second line of small print. Without ticks x
    is a number. `unit` formats the numbers of x: "time" (seconds) or "" (plain). `logarithmic` is the y axis; a linear
    one starts at 0.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    ticks: Sequence[tuple[str, str]] = field(default_factory=tuple)
    unit: str = ""
    logarithmic: bool = False
    markers: bool = True


def draw(chart: Chart, width: int, height: int) -> str:
    """An <svg> element with a title and a description, to be put into a page that has theme.css."""
    narrow = width < NARROW
    names = [_shorten(series.name, 24) for series in chart.series]
    key, top = _key(chart.series, names, width) if narrow else ("", 14)
    right = 22 if narrow else max(map(len, names), default=0) * CHARACTER + 26
    height += round(top) - 14
    frame = _Frame(46 if narrow else 56, top, width - right, height - (58 if chart.ticks else 44))
    frame.set_limits(chart)
    body = [_axes(chart, frame, width), key]
    body += [_band(series.color, [(p.x, p.bounds) for p in series.points], frame) for series in chart.series]
    body += [_band(series.color, [(p.x, p.seeds) for p in series.points], frame) for series in chart.series]
    body += [_line(series, frame, chart.markers) for series in chart.series]
    body += [] if narrow else _end_labels(chart.series, names, frame)
    description = "; ".join(
        f"{series.name} from {series.points[0].y:.1f} to {series.points[-1].y:.1f}" for series in chart.series
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(chart.title)}. {escape(description)}">'
        f"<title>{escape(chart.title)}</title>{''.join(body)}</svg>"
    )


def standalone(svg: str) -> str:
    """Turn a drawing into a file: with its style, light or dark as the reader's system is, on a plain ground."""
    style = files("seq2seq.report").joinpath("templates/theme.css").read_text(encoding="utf-8")
    head, rest = svg.split(">", 1)
    ground = '<rect class="ground" width="100%" height="100%"/>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}><style>{style}</style>{ground}{rest}\n'


class _Frame:
    """The plot's rectangle and its scales."""

    def __init__(self, left: float, top: float, right: float, bottom: float) -> None:
        self.left, self.top, self.right, self.bottom = left, top, right, bottom

    def set_limits(self, chart: Chart) -> None:
        points = [point for series in chart.series for point in series.points]
        values = [value for p in points for value in (p.y, *(p.bounds or ()), *(p.seeds or ()))]
        self.logarithmic = chart.logarithmic
        low, high = min(values, default=1.0), max(values, default=1.0)
        self.y_ticks = log_ticks(low, high) if chart.logarithmic else nice_ticks(min(low, 0.0), high)
        self.y_low, self.y_high = self.y_ticks[0], self.y_ticks[-1]
        if chart.ticks:
            self.x_low, self.x_high = -0.45, len(chart.ticks) - 0.55
        else:
            self.x_low = 0.0
            self.x_high = max((point.x for point in points), default=1.0) or 1.0

    def x(self, value: float) -> float:
        return self.left + (value - self.x_low) / (self.x_high - self.x_low) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.y_low, self.y_high
        if self.logarithmic:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Choose about `count` round numbers, the first at most low and the last at least high."""
    high = high if high > low else low + 1.0
    span = high - low
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 10) for index in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Choose from 1, 2, 5, 10, 20 .. those from at most low to at least high; both are above 0."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 2)
    ticks = [round(step * 10.0**power, 12) for power in powers for step in (1, 2, 5)]
    first = max(tick for tick in ticks if tick <= low)
    last = min(tick for tick in ticks if tick >= high and tick > first)
    return [tick for tick in ticks if first <= tick <= last]


def short_number(value: float) -> str:
    """Format a number in short: 12000 -> '12k', 2400000 -> '2.4M', 0.25 -> '0.25'."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def short_time(seconds: float) -> str:
    """Format seconds as '45 s', '12 min' or '3.5 h'."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _axes(chart: Chart, frame: _Frame, width: int) -> str:
    parts = []
    for tick in frame.y_ticks:
        y = frame.y(tick)
        parts.append(f'<line class="grid" x1="{frame.left}" x2="{frame.right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = short_number(tick)
        parts.append(f'<text class="tick" x="{frame.left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for position, label, small in _x_ticks(chart, frame, width):
        x = frame.x(position)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{frame.bottom + 18}" text-anchor="middle">{escape(label)}</text>'
        )
        if small:
            y = frame.bottom + 33
            parts.append(f'<text class="small" x="{x:.1f}" y="{y}" text-anchor="middle">{escape(small)}</text>')
    bottom = frame.bottom + (52 if chart.ticks else 38)
    middle_x, middle_y = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
    parts.append(
        f'<text class="axis" x="{middle_x:.1f}" y="{bottom}" text-anchor="middle">{escape(chart.x_label)}</text>'
    )
    parts.append(
        f'<text class="axis" transform="translate(14 {middle_y:.1f}) rotate(-90)" text-anchor="middle">'
        f"{escape(chart.y_label)}</text>"
    )
    return "".join(parts)


def _x_ticks(chart: Chart, frame: _Frame, width: int) -> list[tuple[float, str, str]]:
    if chart.ticks:
        return [(index, label, small) for index, (label, small) in enumerate(chart.ticks)]
    if chart.unit == "time":
        scale, unit = (3600, "h") if frame.x_high >= 7200 else (60, "min") if frame.x_high >= 120 else (1, "s")
        ticks = nice_ticks(0, frame.x_high / scale, 3 if width < 500 else 6)
        return [(tick * scale, f"{tick:g} {unit}", "") for tick in ticks if tick * scale <= frame.x_high]
    ticks = nice_ticks(0, frame.x_high, 3 if width < 500 else 6)
    return [(tick, short_number(tick), "") for tick in ticks if tick <= frame.x_high]


def _band(color: int, places: Sequence[tuple[float, tuple[float, float] | None]], frame: _Frame) -> str:
    """Draw the ranges of y over x as one area, a single range as a thick line."""
    ranges = [(frame.x(x), frame.y(bounds[0]), frame.y(bounds[1])) for x, bounds in places if bounds is not None]
    if len(ranges) < 2:
        return "".join(
            f'<line class="c{color} stroke whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
            for x, low, high in ranges
        )
    upper = [f"{x:.1f},{high:.1f}" for x, _, high in ranges]
    lower = [f"{x:.1f},{low:.1f}" for x, low, _ in reversed(ranges)]
    return f'<polygon class="c{color} band" points="{" ".join(upper + lower)}"/>'


def _line(series: Series, frame: _Frame, markers: bool) -> str:
    color = f"c{series.color}"
    path = " ".join(f"{frame.x(p.x):.1f},{frame.y(p.y):.1f}" for p in series.points)
    dash = f' stroke-dasharray="{DASHES[series.color]}"' if DASHES[series.color] else ""
    parts = [f'<polyline class="{color} stroke line" points="{path}"{dash}/>']
    if markers:
        for p in series.points:
            mark = _marker(series.color, frame.x(p.x), frame.y(p.y))
            parts.append(
                f'<g class="{color} mark"><title>{escape(p.note or f"{series.name}: {p.y:.1f}")}</title>{mark}</g>'
            )
    return "".join(parts)


def _marker(shape: int, x: float, y: float) -> str:
    """One of four shapes; a larger unseen disc makes it easy to point at."""
    target = f'<circle class="target" cx="{x:.1f}" cy="{y:.1f}" r="12"/>'
    if shape % 4 == 0:
        return target + f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
    if shape % 4 == 1:
        return target + f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.6"/>'
    if shape % 4 == 2:
        return target + f'<path d="M{x:.1f} {y - 5.5:.1f}l5.5 5.5-5.5 5.5-5.5-5.5z"/>'
    return target + f'<path d="M{x:.1f} {y - 5.2:.1f}l5.6 9.6h-11.2z"/>'


def _end_labels(series: Sequence[Series], names: Sequence[str], frame: _Frame) -> list[str]:
    """Each name right of its line's end, moved apart where they would meet and tied to the end by a thin line."""
    ends = [(frame.x(each.points[-1].x), frame.y(each.points[-1].y)) for each in series]
    order = sorted(range(len(series)), key=lambda index: ends[index][1])
    places = spread([ends[index][1] for index in order], 17, frame.top + 4, frame.bottom)
    parts = []
    for index, place in zip(order, places, strict=True):
        x, y = ends[index]
        color = f"c{series[index].color}"
        tie = f"M{x + 7:.1f} {y:.1f}L{frame.right + 6:.1f} {place:.1f}"
        parts.append(f'<path class="{color} stroke tie" d="{tie}"/>')
        label = escape(names[index])
        parts.append(f'<text class="{color} label" x="{frame.right + 10:.1f}" y="{place + 4.5:.1f}">{label}</text>')
    return parts


def _key(series: Sequence[Series], names: Sequence[str], width: int) -> tuple[str, float]:
    """The names with their lines and markers in rows, best line first, and the height that they take."""
    parts = []
    x, y = 4.0, 16.0
    ends = sorted(zip(series, names, strict=True), key=lambda pair: -pair[0].points[-1].y)
    for each, name in ends:
        length = 34 + len(name) * CHARACTER
        if x > 4 and x + length > width:
            x, y = 4.0, y + 20
        dash = f' stroke-dasharray="{DASHES[each.color]}"' if DASHES[each.color] else ""
        color = f"c{each.color}"
        parts.append(f'<path class="{color} stroke line" d="M{x} {y - 4}h22"{dash}/>')
        parts.append(f'<g class="{color} mark">{_marker(each.color, x + 11, y - 4)}</g>')
        parts.append(f'<text class="{color} label" x="{x + 28}" y="{y}">{escape(name)}</text>')
        x += length + 10
    return "".join(parts), y + 18


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move ascending places a little, so that they lie `gap` apart between low and high (as far as there is room)."""
    down, up = list(places), list(places)
    for index in range(1, len(down)):
        down[index] = max(down[index], down[index - 1] + gap)
    for index in range(len(up) - 2, -1, -1):
        up[index] = min(up[index], up[index + 1] - gap)
    middle = [(a + b) / 2 for a, b in zip(down, up, strict=True)]
    for index in range(len(middle) - 1, -1, -1):
        middle[index] = min(middle[index], high - gap * (len(middle) - 1 - index))
    return [max(place, low + gap * index) for index, place in enumerate(middle)]


def _shorten(name: str, limit: int) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"

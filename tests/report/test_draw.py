"""Charts: ticks, labels and lines."""

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from seq2seq.report.draw import Chart, Point, Series, draw, log_ticks, nice_ticks, spread


def test_ticks_enclose_the_values():
    assert nice_ticks(0, 97) == [0, 20, 40, 60, 80, 100]
    assert nice_ticks(0, 0) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert log_ticks(2.1, 38) == [2, 5, 10, 20, 50]
    assert log_ticks(1, 1) == [1, 2]


def test_labels_are_spread_without_overlap_inside_the_frame():
    placed = spread([10, 11, 12, 200, 201], 17, 0, 210)
    assert placed == sorted(placed)
    assert all(b - a >= 17 - 1e-6 for a, b in pairwise(placed))
    assert placed[0] >= 0 and placed[-1] <= 210


@pytest.mark.parametrize("width", [860, 400])
def test_a_chart_puts_larger_values_higher_and_names_every_line(width):
    points = [Point(0, 10, 5, 15, "first"), Point(1, 90, 80, 95, "second <&>")]
    series = [Series("up", 0, points), Series("flat <x>", 1, [Point(0, 50), Point(1, 50)])]
    svg = ElementTree.fromstring(draw(Chart("T", "x", "y", series, [("a", "n=1"), ("b", "n=2")]), width, 400))
    space = "{http://www.w3.org/2000/svg}"
    lines = [line.get("points") for line in svg.iter(f"{space}polyline")]
    (x0, y0), (x1, y1) = (map(float, pair.split(",")) for pair in lines[0].split())
    assert x0 < x1 and y0 > y1
    texts = [text.text for text in svg.iter(f"{space}text")]
    assert {"up", "flat <x>", "a", "n=2"} <= set(texts)
    assert "second <&>" in [title.text for title in svg.iter(f"{space}title")]
    assert len(list(svg.iter(f"{space}polygon"))) == 1


def test_seeds_have_an_inner_band():
    points = [Point(0, 10, 5, 15, deviation=1.5), Point(1, 90, 80, 95, deviation=2.0)]
    svg = ElementTree.fromstring(draw(Chart("T", "x", "y", [Series("a", 0, points)], [("a", ""), ("b", "")]), 860, 400))
    outer, inner = (
        sorted(float(pair.split(",")[1]) for pair in band.get("points").split())
        for band in svg.iter("{http://www.w3.org/2000/svg}polygon")
    )
    assert outer[0] < inner[0] < inner[1] < outer[1] and outer[2] < inner[2] < inner[3] < outer[3]
    assert Point(0, 0.5, deviation=0.8).seeds == (0.0, 1.3) and Point(0, 0.5).seeds is None

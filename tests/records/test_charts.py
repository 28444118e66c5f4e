from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from swiftsure.records.charts import WIDTH, Bar, Dots, Line, Stack, bar_chart, dot_chart, line_chart, stack_chart

SVG = "{http://www.w3.org/2000/svg}"


def parse(markup: Markup) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{markup}</div>")


def widths(markup: Markup) -> list[float]:
    return [float(rect.attrib["width"]) for rect in parse(markup).iter("rect")]


def test_bars_are_proportional_to_their_values() -> None:
    chart = bar_chart([Bar(label="a", value=10, text="10"), Bar(label="b", value=5, text="5", series=1)], title="t")
    assert widths(chart) == [WIDTH, WIDTH / 2]


def test_stacked_parts_follow_each_other_and_are_in_the_legend() -> None:
    chart = stack_chart([Stack(label="a", parts=[("load", 1.0), ("decode", 3.0)], text="4 s")], title="t")
    rects = [(float(r.attrib["x"]), float(r.attrib["width"])) for r in parse(chart).iter("rect")]
    assert rects == [(0.0, 100.0), (100.0, 300.0)]
    assert re.findall(r"</i>(\w+)</span>", chart) == ["load", "decode"]


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6))
def test_dots_stay_on_the_plot_in_the_order_of_their_values(values: list[float]) -> None:
    chart = parse(dot_chart([Dots(label="a", values=values, text="x", low=min(values), high=max(values))], title="t"))
    places = [float(circle.attrib["cx"]) for circle in chart.iter("circle")]
    assert all(0 <= place <= WIDTH for place in places)
    order = sorted(range(len(values)), key=lambda i: values[i])
    assert [places[i] for i in order] == sorted(places)


def test_lines_run_from_left_to_right_whatever_the_order_of_their_points() -> None:
    lines = [Line(label="base", points=[(4, 2), (2, 1)], reference=True), Line(label="peer", points=[(4, 8), (2, 2)])]
    chart = line_chart(lines, title="t", x_name="context", y_name="ms")
    base, peer = ([tuple(map(float, spot.split(","))) for spot in line.attrib["points"].split()] for line in parse(chart).iter("polyline"))
    assert base[0][0] == peer[0][0] < base[1][0] == peer[1][0] <= WIDTH
    assert peer[1][1] < peer[0][1] == base[1][1] < base[0][1]  # more is higher up
    assert re.findall(r"</i>(\w+)</span>", chart) == ["base", "peer"]


def test_lines_below_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="finite value of at least 0"):
        line_chart([Line(label="a", points=[(1, -1)])], title="t", x_name="x", y_name="y")


def test_labels_are_escaped() -> None:
    chart = bar_chart([Bar(label="<script>", value=1, text="&")], title='"quoted"')
    assert "<script>" not in chart
    parse(chart)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_bars_of_no_length_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="finite value of at least 0"):
        bar_chart([Bar(label="a", value=value, text="")], title="t")


def test_a_chart_of_nothing_is_still_a_picture() -> None:
    parse(bar_chart([], title="t"))
    parse(dot_chart([], title="t"))
    line_chart([], title="t", x_name="x", y_name="y")

"""Charts and reports: well-formed, escaped, bounded, and saying what they were given."""

from __future__ import annotations

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fusee.charts import POINTS_MAX, Report, bars, columns, lines

SVG = "{http://www.w3.org/2000/svg}"
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
# What XML cannot hold at all is not a matter of escaping.
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"))


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def places(svg: str) -> list[tuple[float, float]]:
    line = parsed(svg).find(f"{SVG}polyline")
    assert line is not None
    return [(float(x), float(y)) for x, y in re.findall(r"([-\d.]+),([-\d.]+)", line.attrib["points"])]


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30), TEXT)
@example([(0.0, 1.5e308)], "a")
@example([(0.0, -1.7e308), (1.0, 1.7e308)], "a")
@example([(0.0, 0.0), (5e-324, 5e-324)], "a")
def test_lines_whatever_the_points_stay_on_the_page(points: list[tuple[float, float]], name: str) -> None:
    svg = lines(name, {name: points})
    if any(math.isfinite(x) and math.isfinite(y) for x, y in points):
        assert all(0 <= x <= 760 and 0 <= y <= 280 for x, y in places(svg))
    else:
        assert "nothing was measured" in svg


@given(st.lists(st.tuples(TEXT, st.floats(0, allow_infinity=False)), max_size=60))
@example([("a", 5e-324)])
@example([("a", 1.7e308), ("b", 1.7e308)])
def test_bars_and_columns_whatever_the_values_are_well_formed(values: list[tuple[str, float]]) -> None:
    parsed(bars("<b>", values, unit="&"))
    parsed(columns("<b>", values, y_unit="&"))


def test_lines_go_up_where_values_do() -> None:
    (_, low), (_, high) = places(lines("t", {"a": [(0, 1), (1, 5)]}))
    assert high < low


def test_lines_with_many_points_keep_the_peak() -> None:
    points = [(float(x), 1.0) for x in range(10 * POINTS_MAX)]
    points[7777] = (7777.0, 50.0)
    drawn = places(lines("t", {"a": points}))
    assert len(drawn) <= POINTS_MAX
    assert min(y for _, y in drawn) < min(drawn[0][1], drawn[-1][1])


def test_bars_are_as_long_as_their_values_and_say_how_many_are_left_out() -> None:
    svg = bars("t", [(f"topic-{number}", 100.0 - number) for number in range(50)])
    lengths = [float(one.attrib["width"]) for one in parsed(svg).iter(f"{SVG}rect")]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] / lengths[39] == pytest.approx(100 / 61, rel=0.01)
    assert "and 10 more" in svg


def test_columns_with_many_values_do_not_write_over_each_other() -> None:
    svg = columns("t", [(f"{hour:02}:00", 1.0) for hour in range(200)])
    labels = [one for one in parsed(svg).iter(f"{SVG}text") if (one.text or "").endswith(":00")]
    assert 5 <= len(labels) <= 16


def test_report_escapes_everything_and_stands_alone(tmp_path: Path) -> None:
    report = Report("<script>alert(1)</script>", "a & b")
    report.heading("<i>")
    report.text("1 < 2")
    report.facts({"<n>": "<v>"})
    report.chart(lines("latency", {"p50": [(0, 1), (1, 2)], "p99": [(0, 3), (1, 4)]}, x_unit="s", y_unit="ms"))
    report.table(["<head>", "n"], [["<cell>", 1234567], ["x", 0.5]])
    path = tmp_path / "deep" / "report.html"
    report.save(path)
    html = path.read_text()
    assert "<script" not in html
    assert "<i>" not in html
    assert "<cell>" not in html
    assert "1,234,567" in html
    assert not re.search(r"(src|href)=", html)

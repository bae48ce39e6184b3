"""Charts as SVG and reports as one HTML file: what commands write for people to look at, without a script or a network.

    page = Report("Latency of billing")
    page.facts({"messages": "1,000,000", "p99": "12 ms"})
    page.chart(lines("Latency", {"p50": points, "p99": other_points}, x_unit="s", y_unit="ms"))
    page.table(["topic", "messages"], [["orders", 12]])
    page.save(path)

Text from outside is escaped wherever it goes in. Colours keep apart by lightness too, and follow the reader's choice
of a light or dark page. The same data stands in the marks as titles, which a browser shows under the pointer.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

WIDTH: Final = 760
HEIGHT: Final = 280
POINTS_MAX: Final = 2000
BARS_MAX: Final = 40
ROWS_MAX: Final = 5000

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 34, 40
_BAR_HEIGHT: Final = 22
_LABEL_CHARS: Final = 28
_COLOURS: Final = 6
# Beyond these, differences and quotients of doubles leave the numbers that can be drawn.
_VALUE_MAX: Final = 1e300
_SPAN_MIN: Final = 1e-290


def lines(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x_unit: str = "",
    y_unit: str = "",
    y_from_zero: bool = True,
) -> str:
    """Values over something that runs: each series as points (x, y), in the order of x. Thinned beyond 2,000 points."""
    drawn = {name: _thinned([one for one in points if _is_real(one)]) for name, points in series.items()}
    every = [point for points in drawn.values() for point in points]
    if not every:
        return _empty(title)
    x_scale = _Scale([x for x, _ in every], _LEFT, WIDTH - _RIGHT)
    y_scale = _Scale([y for _, y in every], HEIGHT - _BOTTOM, _TOP, from_zero=y_from_zero)
    parts = [*_axes(x_scale, y_scale, x_unit, y_unit)]
    for number, (name, points) in enumerate(drawn.items()):
        path = " ".join(f"{x_scale.at(x):.1f},{y_scale.at(y):.1f}" for x, y in points)
        label = f"{name}: {_number(points[-1][1])} {y_unit} at the end" if points else name
        parts.append(
            f'<polyline class="line c{number % _COLOURS}" points="{path}"><title>{escape(label)}</title></polyline>'
        )
        if len(points) == 1:
            x, y = points[0]
            parts.append(
                f'<circle class="dot c{number % _COLOURS}" cx="{x_scale.at(x):.1f}" cy="{y_scale.at(y):.1f}" r="3"/>'
            )
    return _svg(title, parts, HEIGHT, legend=list(drawn) if len(drawn) > 1 else ())


def columns(title: str, values: Sequence[tuple[str, float]], *, y_unit: str = "", x_unit: str = "") -> str:
    """Upright bars in a given order, side by side: a histogram, or something by hour."""
    if not values:
        return _empty(title)
    y_scale = _Scale([value for _, value in values], HEIGHT - _BOTTOM, _TOP, from_zero=True)
    room = (WIDTH - _LEFT - _RIGHT) / len(values)
    every = max(1, math.ceil(len(values) * 46 / (WIDTH - _LEFT - _RIGHT)))
    parts = [*_y_axis(y_scale, y_unit), _axis_name(x_unit)]
    for number, (label, value) in enumerate(values):
        x, y = _LEFT + number * room, y_scale.at(max(value, 0.0))
        parts.append(
            f'<rect class="bar" x="{x + room * 0.08:.1f}" y="{y:.1f}" width="{max(room * 0.84, 0.5):.1f}"'
            f' height="{max(HEIGHT - _BOTTOM - y, 0):.1f}">'
            f"<title>{escape(label)}: {_number(value)} {escape(y_unit)}</title></rect>"
        )
        if number % every == 0:
            parts.append(
                f'<text class="tick" x="{x + room / 2:.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">'
                f"{escape(_short(label, 14))}</text>"
            )
    return _svg(title, parts, HEIGHT)


def bars(title: str, values: Sequence[tuple[str, float]], *, unit: str = "") -> str:
    """Bars one below the other with a name before and a number behind each; the first 40."""
    shown = values[:BARS_MAX]
    if not shown:
        return _empty(title)
    left, most = 210, max((value for _, value in shown if math.isfinite(value)), default=0.0)
    room = WIDTH - left - 110
    height = _TOP + len(shown) * _BAR_HEIGHT + 12
    parts = []
    for number, (label, value) in enumerate(shown):
        y = _TOP + number * _BAR_HEIGHT
        length = max(value, 0.0) / most * room if most > 0 and math.isfinite(value) else 0.0
        name = escape(label)
        parts.append(
            f'<text class="name" x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(_short(label, _LABEL_CHARS))}'
            f"<title>{name}</title></text>"
            f'<rect class="bar" x="{left}" y="{y + 3}" width="{max(length, 1):.1f}" height="{_BAR_HEIGHT - 6}">'
            f"<title>{name}: {_number(value)} {escape(unit)}</title></rect>"
            f'<text class="tick" x="{left + length + 6:.1f}" y="{y + 15}">{_number(value)} {escape(unit)}</text>'
        )
    if len(values) > len(shown):
        parts.append(f'<text class="tick" x="{left}" y="{height - 2}">and {len(values) - len(shown)} more</text>')
        height += 8
    return _svg(title, parts, height)


class Report:
    """An HTML page that stands alone, made from top to bottom."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]
        if subtitle:
            self._parts.append(f'<p class="subtitle">{escape(subtitle)}</p>')

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str) -> None:
        self._parts.append(f"<p>{escape(text)}</p>")

    def facts(self, facts: Mapping[str, object]) -> None:
        """The few numbers that matter, large."""
        cells = "".join(
            f"<div><b>{escape(str(value))}</b><span>{escape(name)}</span></div>" for name, value in facts.items()
        )
        self._parts.append(f'<div class="facts">{cells}</div>')

    def chart(self, svg: str) -> None:
        """A chart of this module."""
        self._parts.append(f"<figure>{svg}</figure>")

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """At most 5,000 rows; numbers stand to the right."""
        body = []
        for row in rows[:ROWS_MAX]:
            cells = "".join(
                f'<td class="number">{_cell(cell)}</td>'
                if isinstance(cell, int | float) and not isinstance(cell, bool)
                else f"<td>{escape(str(cell))}</td>"
                for cell in row
            )
            body.append(f"<tr>{cells}</tr>")
        if len(rows) > ROWS_MAX:
            body.append(f'<tr><td colspan="{len(heads)}">and {len(rows) - ROWS_MAX:,} more</td></tr>')
        head = "".join(f"<th>{escape(name)}</th>" for name in heads)
        self._parts.append(
            f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
        )

    def html(self) -> str:
        content = "\n".join(self._parts)
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(self._title)}</title>'
            f"<style>{_STYLE}</style></head><body><main>\n{content}\n</main></body></html>\n"
        )

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.html(), encoding="utf-8")


class _Scale:
    """Numbers to places on the page, with round marks."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, from_zero: bool = False) -> None:
        low, high = _drawable(min(values)), _drawable(max(values))
        if from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if high - low < _SPAN_MIN:
            high = low + max(abs(low), 1.0)
        step = _round_step((high - low) / 5)
        if from_zero:
            low, high = math.floor(low / step) * step, math.ceil(high / step) * step
        self._low, self._span = low, high - low
        self._start, self._end = start, end
        first = math.ceil(low / step - 1e-9)
        last = math.floor(high / step + 1e-9)
        self.marks = [number * step for number in range(first, last + 1)]

    def at(self, value: float) -> float:
        return self._start + (_drawable(value) - self._low) / self._span * (self._end - self._start)


def _drawable(value: float) -> float:
    return max(-_VALUE_MAX, min(value, _VALUE_MAX))


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * nice for nice in (1, 2, 2.5, 5, 10) if power * nice >= rough * 0.999)


def _axes(x_scale: _Scale, y_scale: _Scale, x_unit: str, y_unit: str) -> list[str]:
    parts = [*_y_axis(y_scale, y_unit), _axis_name(x_unit)]
    y = HEIGHT - _BOTTOM + 16
    parts += [
        f'<text class="tick" x="{x_scale.at(mark):.1f}" y="{y}" text-anchor="middle">{_number(mark)}</text>'
        for mark in x_scale.marks
    ]
    return parts


def _y_axis(scale: _Scale, unit: str) -> list[str]:
    parts = [f'<text class="tick" x="{_LEFT - 8}" y="{_TOP - 8}" text-anchor="end">{escape(unit)}</text>']
    for mark in scale.marks:
        y = scale.at(mark)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_number(mark)}</text>'
        )
    return parts


def _axis_name(unit: str) -> str:
    return f'<text class="tick" x="{WIDTH - _RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{escape(unit)}</text>'


def _svg(title: str, parts: Sequence[str], height: float, *, legend: Sequence[str] = ()) -> str:
    marks = []
    x = float(WIDTH - _RIGHT)
    for number, name in reversed(list(enumerate(legend))):
        label = _short(name, _LABEL_CHARS)
        x -= 7.2 * len(label) + 22
        marks.append(
            f'<rect class="key c{number % _COLOURS}" x="{x:.0f}" y="8" width="10" height="10"/>'
            f'<text class="tick" x="{x + 14:.0f}" y="17">{escape(label)}</text>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f'<text class="title" x="0" y="17">{escape(title)}</text>{"".join(marks)}{"".join(parts)}</svg>'
    )


def _empty(title: str) -> str:
    return _svg(title, [f'<text class="tick" x="0" y="{_TOP + 20}">nothing was measured</text>'], _TOP + 40)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most POINTS_MAX: of each stretch the point furthest from zero stays, so that peaks do."""
    if len(points) <= POINTS_MAX:
        return list(points)
    stretch = math.ceil(len(points) / POINTS_MAX)
    return [max(points[at : at + stretch], key=lambda one: abs(one[1])) for at in range(0, len(points), stretch)]


def _is_real(point: tuple[float, float]) -> bool:
    return math.isfinite(point[0]) and math.isfinite(point[1])


def _short(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "?"
    for limit, divisor, suffix in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= limit:
            return f"{value / divisor:.3g}{suffix}"
    return f"{value:.4g}"


def _cell(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")


_STYLE: Final = """
:root{color-scheme:light dark;--text:#1d2530;--soft:#5c6773;--line:#d9dee5;--back:#fff;--c0:#2563a8;--c1:#d1662b;
--c2:#3b8f5a;--c3:#8a4fa3;--c4:#b8932b;--c5:#6b7785}
@media(prefers-color-scheme:dark){:root{--text:#e4e9f0;--soft:#9aa6b4;--line:#343d49;--back:#151a21;--c0:#6aa5e8;
--c1:#ef935e;--c2:#6cc08d;--c3:#c08ada;--c4:#dcbc5e;--c5:#9aa6b4}}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif}
main{max-width:860px;margin:0 auto;padding:24px 16px 64px}
h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 8px}.subtitle{color:var(--soft);margin:0 0 20px}
.facts{display:flex;flex-wrap:wrap;gap:12px 32px;margin:16px 0 24px}.facts div{display:flex;flex-direction:column}
.facts b{font-size:22px;font-variant-numeric:tabular-nums}.facts span{color:var(--soft);font-size:13px}
figure{margin:20px 0}svg{width:100%;height:auto;font:12px system-ui,sans-serif}
.title{fill:var(--text);font-size:14px;font-weight:600}.tick{fill:var(--soft)}.name{fill:var(--text)}
.grid{stroke:var(--line)}.bar{fill:var(--c0)}.line{fill:none;stroke-width:1.8}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}
.key.c0,.dot.c0{fill:var(--c0)}.key.c1,.dot.c1{fill:var(--c1)}.key.c2,.dot.c2{fill:var(--c2)}.key.c3,.dot.c3{fill:var(--c3)}
.key.c4,.dot.c4{fill:var(--c4)}.key.c5,.dot.c5{fill:var(--c5)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px;margin:12px 0}
th,td{padding:5px 10px;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:600}.number{text-align:right;font-variant-numeric:tabular-nums}
"""

"""What a benchmark found: a table and a plot in the terminal, JSON, and one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from fusee.cli.bench_measure import PERCENTILES
from fusee.cli.render import count_text, facts, size_text, table

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from fusee.cli.bench_measure import Latencies, Measured

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_BAR: Final = "█"
_PART_BARS: Final = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def plain(measured: Measured, settings: dict[str, Any]) -> dict[str, Any]:
    """For programs; latencies in milliseconds."""
    latencies = measured.latencies
    found: dict[str, Any] = {
        "load": measured.what,
        "settings": settings,
        "messages": measured.done,
        "seconds": round(measured.seconds, 3),
        "rate": round(measured.rate, 1),
        "bytesPerSecond": round(measured.size_bytes / measured.seconds),
        "failed": sum(measured.failures.values()),
        "failures": measured.failures,
        "perSecond": measured.by_second,
    }
    if latencies.count:
        found["latencyMs"] = {
            "min": round(latencies.min_ms, 3),
            "mean": round(latencies.mean_ms, 3),
            **{name: round(value, 3) for name, value in latencies.percentiles().items()},
            "max": round(latencies.max_ms, 3),
        }
        found["histogram"] = [
            {"fromMs": round(start, 4), "toMs": round(end, 4), "count": count}
            for start, end, count in latencies.shape(60)
        ]
    return found


def show(out: Console, measured: Measured) -> None:
    """For people."""
    out.print(
        facts(
            [
                ("messages", count_text(measured.done)),
                ("rate", f"{measured.rate:,.0f} messages/s, {size_text(measured.size_bytes / measured.seconds)}/s"),
                ("over", f"{measured.seconds:.1f} s"),
                ("by second", Text(sparkline(measured.by_second[:-1] or measured.by_second, out.width - 12))),
            ]
        )
    )
    latencies = measured.latencies
    if latencies.count:
        out.print()
        names = ["min", *(f"p{percent:g}" for percent in PERCENTILES), "max"]
        rows = table("latency", *names, right=names)
        values = [latencies.min_ms, *latencies.percentiles().values(), latencies.max_ms]
        rows.add_row("ms", *(_ms(value) for value in values))
        out.print(rows)
        out.print()
        _plot(out, latencies)
    for cause, count in measured.failures.items():
        out.print(Text(f"! {count_text(count)} times {cause}", style="yellow"))


def save(path: Path, measured: Measured, settings: dict[str, Any], title: str) -> None:
    """One HTML file that stands alone."""
    from fusee.charts import Report, columns, lines

    latencies = measured.latencies
    page = Report(f"fusee bench {measured.what}", title)
    numbers: dict[str, object] = {
        "messages": count_text(measured.done),
        "messages/s": f"{measured.rate:,.0f}",
        "a second": size_text(measured.size_bytes / measured.seconds),
        "failed": count_text(sum(measured.failures.values())),
    }
    if latencies.count:
        numbers |= {f"{name}, ms": _ms(value) for name, value in latencies.percentiles((50.0, 99.0, 99.9)).items()}
    page.facts(numbers)
    rate = [(float(second), float(count)) for second, count in enumerate(measured.by_second)]
    page.chart(lines("Rate", {"messages/s": rate}, x_unit="s", y_unit="messages/s"))
    if latencies.count:
        shape = [(f"{_ms(start)}", float(count)) for start, _, count in latencies.shape(40)]
        page.chart(columns("Latency", shape, x_unit="ms", y_unit="messages"))
        nines = [(percent, latencies.percentile(percent)) for percent in _CURVE]
        page.chart(lines("Latency by percentile", {"ms": nines}, x_unit="per cent", y_unit="ms"))
        page.table(["percentile", "ms"], [[name, value] for name, value in latencies.percentiles().items()])
    page.heading("Settings")
    page.table(["setting", "value"], [[name, str(value)] for name, value in settings.items()])
    if measured.failures:
        page.heading("Failures")
        page.table(["cause", "count"], [[cause, count] for cause, count in measured.failures.items()])
    page.save(path)


def sparkline(values: list[int], width: int) -> str:
    """Numbers as a line of blocks; the largest of each stretch when there are more than fit."""
    if not values or not max(values):
        return ""
    stretch = max(-(-len(values) // max(width, 1)), 1)
    peaks = [max(values[start : start + stretch]) for start in range(0, len(values), stretch)]
    return "".join(_BLOCKS[round(peak / max(peaks) * (len(_BLOCKS) - 1))] for peak in peaks)


def bar(part: float, width: int) -> str:
    """A bar of so much of a width, to an eighth of a character."""
    eighths = round(max(min(part, 1.0), 0.0) * width * 8)
    return _BAR * (eighths // 8) + _PART_BARS[eighths % 8]


_CURVE: Final = (*range(0, 100, 2), 99.0, 99.5, 99.9, 99.95, 99.99, 100.0)


def _plot(out: Console, latencies: Latencies) -> None:
    shape = latencies.shape()
    most = max(count for _, _, count in shape)
    width = max(min(out.width - 34, 60), 10)
    for start, end, count in shape:
        out.print(
            Text.assemble(
                (f"{_ms(start):>8} to {_ms(end):>8} ms ", "dim"),
                (bar(count / most, width).ljust(width), "cyan"),
                f" {count / latencies.count:6.2%}",
            ),
            no_wrap=True,
        )


def _ms(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"

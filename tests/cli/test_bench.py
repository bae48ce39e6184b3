from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from fusee.cli.bench_measure import Latencies, Measured
from fusee.cli.bench_report import bar, show, sparkline
from tests.cli.scene import Terminal, server


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with server(topics={"mine": 1}) as here:
        yield Terminal(here.name_server)


@pytest.mark.parametrize(
    "load",
    [
        ["produce", "--count", "300", "--size", "64", "--connections", "2"],
        ["consume", "--count", "300"],
        ["end-to-end", "--count", "100", "--rate", "500"],
        ["transaction", "--count", "50", "--in-flight", "4"],
        ["delay", "--count", "20", "--rate", "100"],
    ],
    ids=lambda load: load[0],
)
def test_every_load_is_measured_and_leaves_nothing_behind(terminal: Terminal, load: list[str], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    found = terminal.json("bench", *load, "--html", str(page))
    assert (found["messages"], found["failed"]) == (int(load[2]), 0)
    assert found["rate"] > 0
    assert sum(found["perSecond"]) == found["messages"]
    if load[0] == "consume":
        assert "latencyMs" not in found
    else:
        latency = found["latencyMs"]
        assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"]
        assert sum(row["count"] for row in found["histogram"]) == found["messages"]
    text = page.read_text()
    assert "<svg" in text
    assert "http" not in text.replace("http-equiv", "")
    assert terminal.ok("topic", "list").split() == ["mine"]
    assert terminal.ok("group", "list", "--names") == ""


def test_a_duration_ends_and_a_topic_of_ones_own_stays(terminal: Terminal) -> None:
    text = terminal.ok("bench", "produce", "--duration", "0.3", "--rate", "100", "--topic", "mine")
    assert "messages/s" in text
    assert "p99.9" in text
    assert terminal.json("topic", "show", "mine")["messages"] > 0


def test_what_cannot_be_is_told(terminal: Terminal) -> None:
    assert "'none'" in terminal.run("bench", "produce", "--topic", "none").error
    assert "there is no delay level 99" in terminal.run("bench", "delay", "--level", "99").error


def test_percentiles_are_true_to_five_per_cent() -> None:
    chance = random.Random(7)
    values = [chance.lognormvariate(1, 1.5) for _ in range(20_000)]
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    values.sort()
    for percent in (10, 50, 90, 99, 99.9):
        exact = values[round(len(values) * percent / 100) - 1]
        assert latencies.percentile(percent) == pytest.approx(exact, rel=0.06)
    assert latencies.percentile(100) == latencies.max_ms == values[-1]
    assert sum(count for _, _, count in latencies.shape(16)) == len(values)
    assert len(latencies.shape(16)) <= 16
    assert Latencies().percentile(99) == 0.0
    assert Latencies().shape() == []


def test_bars_and_lines_fit_their_width() -> None:
    assert (bar(0, 10), bar(1, 4), bar(0.5, 4), bar(2, 4)) == ("", "████", "██", "████")
    assert sparkline([], 10) == sparkline([0, 0], 10) == ""
    assert sparkline([0, 4, 8], 10) == " ▄█"
    assert len(sparkline(list(range(100)), 10)) == 10


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_report_keeps_to_the_width_of_the_terminal(width: int) -> None:
    measured = Measured("produce")
    measured.begin()
    for number in range(100):
        measured.success(measured.now() - number / 1000, 1000)
    measured.failure(ValueError("no"))
    console = Console(width=width, record=True, file=io.StringIO())
    show(console, measured)
    assert max(len(line) for line in console.export_text().splitlines()) <= width

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import typer

from fusee.cli.moments import parse_span_ms, parse_time_ms
from fusee.clock import SystemClock


def test_spans_and_moments_as_people_write_them() -> None:
    assert [parse_span_ms(text, "--x") for text in ("500ms", "30s", "10m", "1.5h", "1d")] == [
        500,
        30_000,
        600_000,
        5_400_000,
        86_400_000,
    ]
    at = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
    assert parse_time_ms("2026-11-16T09:30:00+00:00", "--x") == at.timestamp() * 1000
    assert parse_time_ms("1700000000000", "--x") == 1_700_000_000_000
    now_ms = SystemClock().time_ms()
    assert 0 <= parse_time_ms("now", "--x") - now_ms < 60_000
    assert abs(now_ms - 600_000 - parse_time_ms("10m", "--x")) < 60_000


@pytest.mark.parametrize("text", ["soon", "10", "m", "-5s", ""])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="no span"):
        parse_span_ms(text, "--x")


def test_what_is_no_moment_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="no time"):
        parse_time_ms("yesterday", "--x")

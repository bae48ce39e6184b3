"""Moments and spans as people write them: `2026-11-16T09:30`, milliseconds, `10m` ago; `30s`, `2h`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import typer

from fusee.clock import SystemClock

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)").fullmatch

TIME_HELP: Final = "2026-11-16T09:30, milliseconds, or a span before now: 30s, 10m, 2h, 1d."


def parse_span_ms(text: str, option: str) -> int:
    """A span of time: a number with ms, s, m, h or d. Raises BadParameter."""
    found = _SPAN(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no span of time: write 500ms, 30s, 10m, 2h or 1d", param_hint=option)
    return round(float(found[1]) * _UNITS_MS[found[2]])


def parse_time_ms(text: str, option: str) -> int:
    """A moment: ISO 8601 (local time without a zone), milliseconds, `now`, or a span before now."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    now_ms = SystemClock().time_ms()
    if text == "now":
        return now_ms
    if _SPAN(text) is not None:
        return now_ms - parse_span_ms(text, option)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is no time: write 2026-11-16T09:30, 2026-11-16T09:30:00.123+01:00, milliseconds, or a span "
            "before now such as 10m",
            param_hint=option,
        ) from error

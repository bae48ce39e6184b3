"""Pages as HTML: templates that escape everything, and the ways in which figures are written for people."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from fusee import __version__
from fusee.console.pages import PAGES

if TYPE_CHECKING:
    from fusee.clock import Clock
    from fusee.console.known import Known

_TEMPLATES: Final = Path(__file__).parent / "templates"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
MENU: Final = [*((page.menu, page.path) for page in PAGES if page.menu)]
MENU.insert(4, ("Messages", "/messages"))


class Rendering:
    """The templates of the console."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._environment = environment = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {
            "number": number,
            "rate": rate,
            "bytes": size,
            "moment": moment,
            "ago": self.ago,
            "duration": duration,
            "part": lambda text: quote(str(text), safe=""),
            "json": lambda value: msgspec.json.encode(value).decode(),
            "percent": lambda value: unknown("it was not told") if value is None or value < 0 else f"{value:.0%}",
        }
        environment.globals |= {"unknown": unknown, "menu": MENU, "version": __version__, "now_ms": clock.time_ms}

    def page(self, template: str, **values: Any) -> str:
        """A page."""
        return self._environment.get_template(template).render(**values)

    def ago(self, timestamp_ms: int | None) -> str | Markup:
        """How long ago, or in how long."""
        if not timestamp_ms or timestamp_ms <= 0:
            return Markup("&ndash;")
        seconds = (self._clock.time_ms() - timestamp_ms) / 1000
        text = f"{duration(abs(seconds))} ago" if seconds >= 0 else f"in {duration(-seconds)}"
        return Markup('<time title="{}">{}</time>').format(_iso(timestamp_ms), text)


def unknown(cause: str | Known[Any] = "") -> Markup:
    """What is not known, with the cause for whoever points at it."""
    text = cause if isinstance(cause, str) else cause.cause
    return Markup('<span class="unknown" title="{}">unknown</span>').format(text or "nobody told")


def number(value: float | None) -> str | Markup:
    """A whole number with separators."""
    return unknown("it was not told") if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str | Markup:
    """Messages per second."""
    if value is None:
        return unknown("it was not told")
    return f"{value:,.1f}/s" if value < 100 else f"{value:,.0f}/s"


def size(value: float | None) -> str | Markup:
    """Bytes in the unit that fits."""
    if value is None:
        return unknown("it was not told")
    unit = 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:,.0f} B" if unit == 0 else f"{value:,.1f} {_UNITS[unit]}"


def duration(seconds: float | None) -> str | Markup:
    """A span of time in its two largest units."""
    if seconds is None:
        return unknown("it was not told")
    whole = round(seconds)
    if whole < 1:
        return f"{seconds * 1000:.0f} ms"
    parts = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, whole = divmod(whole, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def moment(timestamp_ms: int | None) -> str | Markup:
    """A time in UTC."""
    if not timestamp_ms or timestamp_ms <= 0:
        return Markup("&ndash;")
    text = _iso(timestamp_ms)
    return Markup('<time datetime="{}">{}</time>').format(text, escape(text[:19].replace("T", " ")))


def _iso(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)

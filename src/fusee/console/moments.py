"""Times as people write them in forms."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from fusee.errors import ConfigError


def moment_of(text: str) -> datetime:
    """A time in ISO form, UTC unless it says otherwise; or milliseconds since 1970. Raises ConfigError."""
    if text.isascii() and text.isdigit():
        try:
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        except (OverflowError, ValueError, OSError) as error:
            raise ConfigError(f"{text!r} is no time in milliseconds") from error
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is no time: write it like 2026-01-05T10:20:30, in UTC") from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def target_of(text: str) -> datetime | Literal["first", "last"]:
    """Where a group is to go on: `first`, `last`, or a time. Raises ConfigError."""
    if text == "first":
        return "first"
    if text == "last":
        return "last"
    return moment_of(text)

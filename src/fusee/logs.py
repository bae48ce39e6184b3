"""Logs of a server: one line per event, as text for people, or as logfmt or JSON for programs.

Nothing is logged per message. A line has the time (UTC, milliseconds), the level, the part of the program, and what
happened; an exception is told in the same line, so that a line is always a whole event. Values given by
`extra={"fields": {...}}` are columns of their own.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fusee.errors import ConfigError

if TYPE_CHECKING:
    from typing import TextIO

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/;@%+,")


class LogFormat(Enum):
    """How a line is written."""

    TEXT = "text"
    LOGFMT = "logfmt"
    JSON = "json"


class _Fields(logging.Formatter):
    """A record as names and values; how they are joined is the subclass's."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "part": record.name.removeprefix("fusee."),
            "event": record.getMessage(),
        }
        given = getattr(record, "fields", None)
        if isinstance(given, dict):
            fields |= given
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return self.join(fields)

    def join(self, fields: dict[str, Any]) -> str:
        """The line."""
        return msgspec.json.encode(fields, enc_hook=str).decode()


class _Logfmt(_Fields):
    def join(self, fields: dict[str, Any]) -> str:
        return " ".join(f"{name}={_quoted(str(value))}" for name, value in fields.items())


def _quoted(text: str) -> str:
    return text if text and _PLAIN.issuperset(text) else msgspec.json.encode(text).decode()


def begin_logging(level: str = "info", style: LogFormat | str = LogFormat.TEXT, stream: TextIO | None = None) -> None:
    """Log to a stream, standard error unless given, from this level on. Raises ConfigError."""
    if level not in LEVELS:
        raise ConfigError(f"log level {level!r} is none of {', '.join(LEVELS)}")
    try:
        chosen = LogFormat(style)
    except ValueError:
        raise ConfigError(f"log format {style!r} is none of {', '.join(each.value for each in LogFormat)}") from None
    handler = logging.StreamHandler(stream)
    formatters: dict[LogFormat, logging.Formatter] = {
        LogFormat.TEXT: logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"),
        LogFormat.LOGFMT: _Logfmt(),
        LogFormat.JSON: _Fields(),
    }
    handler.setFormatter(formatters[chosen])
    logging.basicConfig(level=LEVELS[level], handlers=[handler], force=True)

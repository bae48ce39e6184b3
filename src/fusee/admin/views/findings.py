"""What an examination of a cluster found."""

from __future__ import annotations

from enum import Enum

import msgspec


class Severity(Enum):
    """How bad it is: `ERROR` something does not work, `WARNING` it will not for long or not always."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at: what was found, and how it is mended."""

    check: str
    """What was looked at: `name server`, `address`, `clock`, ..."""
    subject: str
    """Of whom: an address, a broker, a topic."""
    severity: Severity
    what: str
    fix: str = ""

    @property
    def is_wrong(self) -> bool:
        return self.severity in (Severity.WARNING, Severity.ERROR)

"""What a check found: errors and notes, each with file and position, in bounded number.

An *error* is something a broker would serve wrongly, refuse, or lose. A *note* is something a person may want to know
and that is no damage: what an unclean stop leaves and recovery mends, what another release writes, what is not checked.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

SHOWN_PER_KIND: Final = 50


class Severity(Enum):
    """Whether somebody must act."""

    ERROR = "error"
    NOTE = "note"


class Finding(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One thing that was found."""

    severity: Severity
    kind: str
    """A short name that stays the same, for programs."""
    file: str
    text: str
    position: int | None = None
    """Byte in the file."""
    log_offset: int | None = None


class Findings:
    """Gathers findings: all are counted, the first of each kind are kept."""

    def __init__(self, shown_per_kind: int = SHOWN_PER_KIND) -> None:
        self._shown_per_kind = shown_per_kind
        self.kept: list[Finding] = []
        self.counts: Counter[tuple[Severity, str]] = Counter()

    def add(self, finding: Finding) -> None:
        key = (finding.severity, finding.kind)
        if self.counts[key] < self._shown_per_kind:
            self.kept.append(finding)
        self.counts[key] += 1

    def add_more(self, severity: Severity, kind: str, times: int) -> None:
        """Count findings that nobody will see."""
        self.counts[severity, kind] += times

    def tell(
        self,
        severity: Severity,
        kind: str,
        file: str,
        text: str,
        position: int | None = None,
        log_offset: int | None = None,
    ) -> None:
        self.add(Finding(severity, kind, file, text, position, log_offset))

    def error(
        self, kind: str, file: str, text: str, position: int | None = None, log_offset: int | None = None
    ) -> None:
        self.add(Finding(Severity.ERROR, kind, file, text, position, log_offset))

    def note(self, kind: str, file: str, text: str, position: int | None = None, log_offset: int | None = None) -> None:
        self.add(Finding(Severity.NOTE, kind, file, text, position, log_offset))

    def add_each(
        self,
        severity: Severity,
        kind: str,
        items: Sequence[T],
        make: Callable[[T], tuple[str, str, int | None, int | None]],
    ) -> None:
        """One finding for each item, made (file, text, position, log offset) only as long as somebody sees it."""
        shown = max(min(self._shown_per_kind - self.counts[severity, kind], len(items)), 0)
        for item in items[:shown]:
            self.kept.append(Finding(severity, kind, *make(item)))
        self.counts[severity, kind] += len(items)

    def drop_notes(self, kinds: frozenset[str]) -> int:
        """Forget the notes of these kinds; how many there were."""
        self.kept = [each for each in self.kept if each.severity is Severity.ERROR or each.kind not in kinds]
        return sum(self.counts.pop((Severity.NOTE, kind), 0) for kind in kinds)

    def total(self, severity: Severity) -> int:
        return sum(count for (of, _), count in self.counts.items() if of is severity)

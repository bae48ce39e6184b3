"""What a job came to: facts and tables that a terminal, a program or a page can show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under heads."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one job."""

    title: str
    facts: Mapping[str, object]
    tables: Sequence[Table] = ()
    report_path: str | None = None
    is_good: bool = True
    """Whether nothing was found that somebody has to look at: lost messages, refused sends."""

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "ok": self.is_good,
            "facts": dict(self.facts),
            "tables": [
                {"title": table.title, "rows": [dict(zip(table.heads, row, strict=True)) for row in table.rows]}
                for table in self.tables
            ],
            "report": self.report_path,
        }


class Observer(Protocol):
    """Who is told how a job goes on."""

    def step(self, text: str) -> None:
        """Something begins."""

    def advanced(self, done: int, total: int | None) -> None:
        """So much of it is done; the total is None while it is not known."""


@dataclass(slots=True)
class Silence:
    """An observer for callers that want none."""

    said: list[str] = field(default_factory=list)

    def step(self, text: str) -> None:
        pass

    def advanced(self, done: int, total: int | None) -> None:
        pass

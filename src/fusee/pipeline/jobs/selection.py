"""Which messages a job is about: by time, key, tag, or a condition in SQL over the columns of the source."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fusee.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """All that is given must hold. Times are those at which the broker stored a message; `until` is not included."""

    since: datetime | None = None
    until: datetime | None = None
    keys: tuple[str, ...] = ()
    """One of the message's keys is one of these."""
    tags: tuple[str, ...] = ()
    where: str = ""

    def __post_init__(self) -> None:
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None and moment.tzinfo is None:
                raise ConfigError(f"{name} has no time zone: say datetime(..., tzinfo=UTC), or 2026-01-31T10:00Z")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ConfigError(f"since ({self.since}) is not before until ({self.until})")

    def applied(self, rows: DataFrame) -> DataFrame:
        """The rows that are meant. Raises ConfigError when the condition cannot be understood."""
        from pyspark.errors import AnalysisException, ParseException
        from pyspark.sql import functions as f

        if self.since is not None:
            rows = rows.where(f.col("storeTimestamp") >= f.lit(self.since.astimezone(UTC)))
        if self.until is not None:
            rows = rows.where(f.col("storeTimestamp") < f.lit(self.until.astimezone(UTC)))
        if self.tags:
            rows = rows.where(f.col("tags").isin(*self.tags))
        if self.keys:
            rows = rows.where(f.arrays_overlap(f.split("keys", " "), f.array(*map(f.lit, self.keys))))
        if self.where:
            try:
                rows = rows.where(self.where)
            except (ParseException, AnalysisException) as error:
                raise ConfigError(f"the condition {self.where!r} cannot be understood: {error}") from error
        return rows

    def described(self) -> str:
        """In a line, for people."""
        parts = [
            f"since {self.since.isoformat()}" if self.since else "",
            f"until {self.until.isoformat()}" if self.until else "",
            f"tags {', '.join(self.tags)}" if self.tags else "",
            f"keys {', '.join(self.keys)}" if self.keys else "",
            f"where {self.where}" if self.where else "",
        ]
        return "; ".join(part for part in parts if part) or "everything"

    def starting_options(self) -> Mapping[str, str]:
        """Options of the source that leave out what is older than `since`."""
        if self.since is None:
            return {}
        return {
            "startingTimestamp": str(int(self.since.timestamp() * 1000)),
            "startingOffsetsByTimestampStrategy": "latest",
        }

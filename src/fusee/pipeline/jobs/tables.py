"""Where a job reads: topics as they are now, archives, or both as one table, in which no message is there twice."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fusee.errors import ConfigError
from fusee.pipeline.jobs.archive import read_archive
from fusee.pipeline.jobs.catalog import Catalog
from fusee.pipeline.jobs.folders import Folder
from fusee.pipeline.positions import nested
from fusee.pipeline.registration import register
from fusee.pipeline.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

NAMES: Final = tuple(column.name for column in COLUMNS)


@dataclass(frozen=True, slots=True)
class Place:
    """Options of the source `fusee` (nameServer or store, and more), an archive, or both."""

    source: Mapping[str, str] = field(default_factory=dict)
    archive: str | None = None

    def __post_init__(self) -> None:
        if not self.source and self.archive is None:
            raise ConfigError("where are the messages? give name servers, a store directory, or an archive")

    @property
    def is_live(self) -> bool:
        return bool(self.source)


def read_place(spark: SparkSession, place: Place, topics: Sequence[str]) -> DataFrame:
    """The messages of these topics, with the columns of the source.

    With an archive and a source, archived rows come from the archive, and from the source what it has beyond them.
    """
    register(spark)
    if place.archive is None:
        return live(spark, place.source, topics)
    archived = read_archive(spark, place.archive).where(_topic_in(topics)).select(*NAMES)
    if not place.is_live:
        return archived
    positions = Catalog(Folder(spark, place.archive)).positions()
    beyond = {queue: queue_offset for queue, queue_offset in positions.items() if queue.topic in topics}
    source = dict(place.source)
    if beyond:
        source["startingOffsets"] = json.dumps(nested(beyond))
    return archived.unionByName(live(spark, source, topics))


def live(spark: SparkSession, source: Mapping[str, str], topics: Sequence[str]) -> DataFrame:
    """What the brokers, or the store directories, hold of these topics now."""
    options = {"subscribe": ",".join(topics), **source}
    return spark.read.format("fusee").options(**options).load().select(*NAMES)


def _topic_in(topics: Sequence[str]) -> str:
    quoted = ", ".join(sql_text(topic) for topic in topics)
    return f"topic in ({quoted})"


def sql_text(text: str) -> str:
    """A literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

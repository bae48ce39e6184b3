"""Where a job reads: topics as they are now, archives, or both as one table, in which no message is there twice."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fusee.errors import ConfigError, TopicNotFoundError
from fusee.pipeline.jobs.archive import read_archive
from fusee.pipeline.jobs.catalog import Catalog
from fusee.pipeline.jobs.folders import Folder
from fusee.pipeline.options import Topics, read_options
from fusee.pipeline.positions import nested
from fusee.pipeline.registration import register
from fusee.pipeline.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from fusee.message.model import MessageQueue

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
    archived = read_archive(spark, place.archive, topics=topics).select(*NAMES)
    if not place.is_live:
        return archived
    beyond = beyond_archive(place.source, Catalog(Folder(spark, place.archive)).positions(), topics)
    return archived if beyond is None else archived.unionByName(live(spark, beyond, topics))


def beyond_archive(
    source: Mapping[str, str], positions: Mapping[MessageQueue, int], topics: Sequence[str]
) -> Mapping[str, str] | None:
    """Options that read what the source has behind these positions; None when it has none of the topics any more.

    Topics, brokers and queues that only the archive has are left out. A topic that neither has stays, for the read to
    say so.
    """
    from fusee.pipeline.reading import open_view

    archived = {queue.topic for queue in positions}
    there: list[MessageQueue] = []
    asked: list[str] = []
    view = open_view(read_options({"subscribe": ",".join(topics), **source}, reading="batch"))
    try:
        for topic in topics:
            try:
                there += view.queues(Topics(names=(topic,)))
            except TopicNotFoundError:
                if topic in archived:
                    continue
            asked.append(topic)
    finally:
        view.close()
    if not asked:
        return None
    options = {**source, "subscribe": ",".join(asked)}
    if beyond := {queue: positions[queue] for queue in there if queue in positions}:
        options["startingOffsets"] = json.dumps(nested(beyond))
    return options


def live(spark: SparkSession, source: Mapping[str, str], topics: Sequence[str]) -> DataFrame:
    """What the brokers, or the store directories, hold of these topics now."""
    options = {"subscribe": ",".join(topics), **source}
    return spark.read.format("fusee").options(**options).load().select(*NAMES)


def sql_text(text: str) -> str:
    """A literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

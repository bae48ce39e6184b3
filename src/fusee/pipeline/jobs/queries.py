"""SQL over topics: those that a statement names become views, of what is live, archived, or both as one table.

    query(spark, "select tags, count(*) from orders group by tags", place=Place({"nameServer": "127.0.0.1:9876"}))

A topic is a table of its name; one with characters that SQL does not take for a name stands in backquotes: `my-topic`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from fusee.errors import ConfigError
from fusee.message.topics import is_system_topic
from fusee.pipeline.cluster_view import ClusterView
from fusee.pipeline.jobs.catalog import Catalog
from fusee.pipeline.jobs.folders import Folder
from fusee.pipeline.jobs.tables import read_place
from fusee.pipeline.options import read_options
from fusee.pipeline.registration import register

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from fusee.pipeline.jobs.tables import Place

NAMED_MAX: Final = 20


def query(spark: SparkSession, statement: str, *, place: Place) -> DataFrame:
    """The rows of the statement, lazily. Raises ConfigError that names the topics there are when a table is unknown."""
    from pyspark.errors import AnalysisException, ParseException

    register(spark)
    known = topics_of(spark, place)
    for topic in named_in(statement, known):
        read_place(spark, place, [topic]).createOrReplaceTempView(f"`{topic}`")
    try:
        return spark.sql(statement)
    except ParseException as error:
        raise ConfigError(f"the statement cannot be understood: {_first_line(error)}") from error
    except AnalysisException as error:
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            own = [topic for topic in known if not is_system_topic(topic)]
            there = ", ".join(own[:NAMED_MAX]) + (" ..." if len(own) > NAMED_MAX else "")
            raise ConfigError(
                f"{_first_line(error)} Tables are topics, and there are: {there or 'none'}. A name with other "
                "characters than letters, digits and _ stands in backquotes."
            ) from error
        raise ConfigError(f"the statement cannot be run: {_first_line(error)}") from error


def topics_of(spark: SparkSession, place: Place) -> list[str]:
    """The topics that can be asked for: of the cluster (also the system's), the store directories, the archive."""
    found: set[str] = set()
    if place.archive is not None:
        found.update(one.topic for one in Catalog(Folder(spark, place.archive)).files())
    if "store" in place.source:
        rows = spark.read.format("fusee").options(**place.source).schema("topic string").load().distinct().collect()
        found.update(row[0] for row in rows)
    elif place.is_live:
        view = ClusterView(read_options({"subscribePattern": ".*", **place.source}, reading="batch"))
        try:
            found.update(view.topics())
        finally:
            view.close()
    return sorted(found)


def named_in(statement: str, topics: Iterable[str]) -> list[str]:
    """Those of the topics that stand in the statement as a name. One too many costs nothing: views are lazy."""
    lowered = statement.lower()
    return [topic for topic in topics if re.search(rf"(?<![\w%$-]){re.escape(topic.lower())}(?![\w%$-])", lowered)]


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]

"""`fusee sql`: SQL over topics, archives, or both as one table."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from fusee.cli.render import AsJson, body_text, note, output, print_json_line, table
from fusee.cli.spark_job import (
    DEFAULT_MASTER,
    Conf,
    FromArchive,
    LiveName,
    Master,
    SourceOption,
    Store,
    place_of,
    spark_session,
    watched,
)


def sql(
    statement: Annotated[
        str, typer.Argument(metavar="STATEMENT", help="A statement of Spark's SQL; topics are tables.")
    ],
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Rows that are shown.")] = 100,
    name_servers: LiveName = None,
    store: Store = None,
    archive: FromArchive = None,
    options: SourceOption = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """**SQL over topics**: live ones, archives, or both as one table in which no message is there twice.

    Columns are those of the Spark source: topic, queueId, queueOffset, keys, tags, body, properties, ..

    Example: `fusee sql "select tags, count(*) from orders group by tags"`
    """
    from fusee.pipeline.jobs.queries import query

    place = place_of(name_servers, store, archive, options)
    with spark_session(master, conf, "sql") as spark, watched() as (observer, _):
        observer.step("running")
        rows = query(spark, statement, place=place)
        names = rows.columns
        found = rows.limit(limit + 1).collect()
    if as_json:
        for row in found[:limit]:
            print_json_line({name: _plain(value) for name, value in zip(names, row, strict=True)})
        return
    numbers = [
        name for place_of_name, name in enumerate(names) if found and isinstance(found[0][place_of_name], int | float)
    ]
    shown = table(*names, right=numbers)
    for row in found[:limit]:
        shown.add_row(*(Text(_text(value)) for value in row))
    output().print(shown)
    if len(found) > limit:
        note(f"only the first {limit} rows; --limit shows more")


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bytes | bytearray):
        return body_text(bytes(value), 80)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)

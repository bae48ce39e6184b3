"""What commands that run on Spark share: where the messages are, which Spark, progress, and the outcome for people.

Ctrl-C asks a job to stop at the next place where nothing is half done, and a second one ends it at once.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from fusee.cli.connect import INTERRUPTED
from fusee.cli.moments import TIME_HELP, parse_time_ms
from fusee.cli.render import count_text, facts, note, output, print_json, progress, table
from fusee.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from fusee.pipeline.jobs.outcome import Outcome
    from fusee.pipeline.jobs.selection import Selection
    from fusee.pipeline.jobs.tables import Place

ROWS_SHOWN: Final = 50

LiveName = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrv",
        metavar="HOST:PORT;...",
        envvar="NAMESRV_ADDR",
        help="Name servers of the cluster that has the messages, joined by `;`.",
    ),
]
Store = Annotated[
    list[str] | None,
    typer.Option("--store", metavar="DIR", help="Read a broker's store directory instead; several times for several."),
]
FromArchive = Annotated[
    str | None, typer.Option("--archive", metavar="DIR", help="An archive made by `fusee pipeline archive`.")
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="A further option of the Spark source `fusee`."),
]
SinkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sink-option",
        metavar="NAME=VALUE",
        help="An option of the Spark sink `fusee`: delivery, createTopics, tls, ...",
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master", envvar="FUSEE_SPARK_MASTER", help="Spark's master: `local[*]`, `spark://host:7077`, `yarn`, ..."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; several times for several."),
]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help=f"Stored since: {TIME_HELP}")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Stored before.")]
Keys = Annotated[list[str] | None, typer.Option("--key", metavar="KEY", help="With this key; or another, if given.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="With this tag; or another, if given.")]
Where = Annotated[
    str, typer.Option("--where", metavar="SQL", help="A condition over the columns: `properties['region'] = 'eu'`.")
]
DEFAULT_MASTER: Final = "local[*]"


def place_of(
    name_servers: str | None, store: Sequence[str] | None, archive: str | None, options: Sequence[str] | None
) -> Place:
    """Where the messages are. A store stands in the place of name servers, also when the environment has some."""
    from fusee.pipeline.jobs.tables import Place

    source: dict[str, str] = {}
    if store:
        source["store"] = ",".join(store)
    elif name_servers:
        source["nameServer"] = name_servers
    source.update(pairs_of(options, "--option"))
    if not source and archive is None:
        raise ConfigError("where are the messages? give --namesrv (or NAMESRV_ADDR), --store or --archive")
    if source and archive is not None and not {"nameServer", "store"} & source.keys():
        raise ConfigError(
            f"--option {next(iter(source))} is for name servers or a store, and only an archive is read; --sink-option "
            "is for where messages are sent"
        )
    return Place(source, archive)


def sink_of(
    target: str | None, name_servers: str | None, source: Mapping[str, str], options: Sequence[str] | None
) -> dict[str, str]:
    """Options of the sink. The cluster that is read from is spoken to as for reading, by TLS or not.

    Raises ConfigError for an option that the sink does not have.
    """
    from fusee.pipeline.option_table import READ_OPTIONS, TLS_OPTIONS, spelled
    from fusee.pipeline.write_options import WRITE_OPTIONS

    sink = spelled(pairs_of(options, "--sink-option"), WRITE_OPTIONS, reading="batch")
    here = spelled(source, READ_OPTIONS, reading="batch")
    to = sink.get("nameServer") or target or here.get("nameServer") or name_servers
    if not to:
        raise ConfigError("where are the messages to be sent? give --to-namesrv, or --namesrv (NAMESRV_ADDR)")
    if to == here.get("nameServer") and not sink.keys() & set(TLS_OPTIONS):
        sink |= {name: value for name, value in here.items() if name in TLS_OPTIONS}
    return {**sink, "nameServer": to}


def selection_of(
    since: str | None, until: str | None, keys: Sequence[str] | None, tags: Sequence[str] | None, where: str
) -> Selection:
    """Which messages are meant."""
    from fusee.pipeline.jobs.selection import Selection

    return Selection(
        since=_moment(since, "--since"),
        until=_moment(until, "--until"),
        keys=tuple(keys or ()),
        tags=tuple(tags or ()),
        where=where,
    )


@contextmanager
def spark_session(master: str, conf: Sequence[str] | None, app_name: str) -> Iterator[SparkSession]:
    """A session for one command. Raises ConfigError without the extra `spark`, or without Java."""
    try:
        import pyspark.sql  # noqa: F401  the next import alone would not load it

        from fusee.pipeline import open_session
    except ImportError as error:
        raise ConfigError(f"this needs Spark ({error}): pip install 'fusee[spark]'") from error
    quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR", "spark.ui.enabled": "false"}
    if master.startswith("local"):
        quiet |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    note(f"starting Spark on {master}")
    with _java_quiet():
        spark = open_session(master, app=f"fusee {app_name}", conf={**quiet, **pairs_of(conf, "--conf")})
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def watched() -> Iterator[tuple[Watch, Callable[[], bool]]]:
    """An observer that shows progress, and whether the user has asked to stop."""
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True
        note("stopping when what is under way is done; Ctrl-C again ends at once", style="yellow")

    before = signal.signal(signal.SIGINT, stop)
    try:
        with progress() as advance:
            yield Watch(advance), lambda: stopped
    except KeyboardInterrupt:
        note("interrupted", style="yellow")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)


class Watch:
    """Tells progress bars how a job goes on."""

    def __init__(self, advance: Callable[[str, int, int | None], object]) -> None:
        self._advance = advance
        self._text = ""

    def step(self, text: str) -> None:
        self._text = text
        self._advance(text, 0, None)

    def advanced(self, done: int, total: int | None) -> None:
        self._advance(self._text, done, total)


def show(outcome: Outcome, *, as_json: bool) -> None:
    """The outcome of a job; exit code 1 when there is something to look at."""
    if as_json:
        print_json(outcome.to_json())
    else:
        out = output()
        for one in outcome.tables:
            if not one.rows:
                continue
            numbers = [head for place, head in enumerate(one.heads) if isinstance(one.rows[0][place], int | float)]
            rows = table(*one.heads, right=numbers, title=one.title)
            for row in one.rows[:ROWS_SHOWN]:
                rows.add_row(*(Text(_cell(value)) for value in row))
            out.print(rows)
            if len(one.rows) > ROWS_SHOWN:
                out.print(Text(f"... and {len(one.rows) - ROWS_SHOWN:,} more; --json has all", style="dim"))
            out.print()
        out.print(facts([(name, _cell(value)) for name, value in outcome.facts.items()]))
        if outcome.report_path is not None:
            out.print(Text(f"report: {outcome.report_path}", style="bold"))
    if not outcome.is_good:
        raise typer.Exit(1)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return count_text(value)
    return str(value)


def _moment(text: str | None, option: str) -> datetime | None:
    return None if text is None else datetime.fromtimestamp(parse_time_ms(text, option) / 1000, UTC)


def pairs_of(given: Sequence[str] | None, option: str) -> Mapping[str, str]:
    """Settings that were given as NAME=VALUE."""
    found: dict[str, Any] = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{one!r} is not NAME=VALUE", param_hint=option)
        found[name] = value
    return found


@contextmanager
def _java_quiet() -> Iterator[None]:
    """While Java starts, what it says of its own modules goes nowhere; a failure is raised all the same."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)

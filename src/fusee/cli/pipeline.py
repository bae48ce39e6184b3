"""`fusee pipeline`: jobs on Spark over topics, stores and archives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fusee.cli.connect import DryRun, Yes, confirm
from fusee.cli.moments import parse_span_ms
from fusee.cli.render import AsJson
from fusee.cli.spark_job import (
    DEFAULT_MASTER,
    Conf,
    FromArchive,
    Keys,
    LiveName,
    Master,
    Since,
    SinkOption,
    SourceOption,
    Store,
    Tags,
    Until,
    Where,
    pairs_of,
    place_of,
    selection_of,
    show,
    sink_of,
    spark_session,
    watched,
)
from fusee.cli.tree import subcommands
from fusee.errors import ConfigError

if TYPE_CHECKING:
    from fusee.store.config import StoreConfig

app = subcommands("pipeline")

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics.")]
Report = Annotated[Path | None, typer.Option("--report", metavar="FILE", help="Write an HTML page with charts.")]
Target = Annotated[
    str | None,
    typer.Option("--to-namesrv", metavar="HOST:PORT;...", help="Send to this cluster; the one read from by default."),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="FILE", help="Remember what is done, so that the same command goes on after an end."
    ),
]
Rate = Annotated[float | None, typer.Option("--rate", metavar="N", help="At most so many messages a second.")]


@app.command("archive")
def archive_topics(
    to: Annotated[
        str, typer.Option("--to", metavar="DIR", help="The archive: a folder, or an address Spark writes to.")
    ],
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC...", help="Topics.")] = None,
    continuous: Annotated[bool, typer.Option("--continuous", help="Go on until Ctrl-C.")] = False,
    every_s: Annotated[
        float, typer.Option("--every", metavar="S", help="With --continuous: seconds between batches.")
    ] = 60.0,
    compaction: Annotated[
        bool,
        typer.Option(
            "--compact/--no-compact",
            help="Put small files together: at the end; with --continuous those of past hours.",
        ),
    ] = True,
    show_only: Annotated[bool, typer.Option("--show", help="Only show what is archived, up to which offset.")] = False,
    name_servers: LiveName = None,
    store: Store = None,
    options: SourceOption = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """**Topics to Parquet**, by topic, date and hour; exactly once; a later run goes on where the last one ended.

    Example: `fusee pipeline archive orders payments --to /data/archive`
    """
    from fusee.pipeline.jobs.archive import archive, catalog_outcome

    if show_only:
        with spark_session(master, conf, "archive") as spark:
            show(catalog_outcome(spark, to), as_json=as_json)
        return
    source = place_of(name_servers, store, None, options).source
    if not topics and not {"subscribePattern", "assign"} & set(source):
        raise ConfigError("which topics? name them, or give -o subscribePattern=REGEX")
    with spark_session(master, conf, "archive") as spark, watched() as (observer, is_stopped):
        outcome = archive(
            spark,
            to=to,
            topics=topics or (),
            source=source,
            continuous=continuous,
            every_s=every_s,
            compact_after=compaction,
            observer=observer,
            is_stopped=is_stopped,
        )
    show(outcome, as_json=as_json)


@app.command("compact")
def compact_archive(
    archive: Annotated[str, typer.Argument(metavar="DIR", help="An archive that nobody writes to now.")],
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """**Small files of an archive, put together** by topic and hour, as `archive` does when it ends.

    Example: `fusee pipeline compact /data/archive`
    """
    from fusee.pipeline.jobs.archive import compact

    with spark_session(master, conf, "compact") as spark, watched() as (observer, _):
        outcome = compact(spark, archive_path=archive, observer=observer)
    show(outcome, as_json=as_json)


@app.command("replay")
def replay_messages(
    topics: Topics,
    to_topic: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Where to; back where they came from by default.")
    ] = None,
    target: Target = None,
    sink_options: SinkOption = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    state: State = None,
    times_max: Annotated[
        int, typer.Option("--times-max", min=1, help="Leave out what was replayed so often already.")
    ] = 1,
    since: Since = None,
    until: Until = None,
    keys: Keys = None,
    tags: Tags = None,
    where: Where = "",
    name_servers: LiveName = None,
    store: Store = None,
    archive: FromArchive = None,
    options: SourceOption = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """**Messages of topics or of an archive, sent again**: chosen, at a bounded rate, once, never in circles.

    Look first: `fusee pipeline replay orders --archive /data/archive --since 2d --tag paid --to orders-again --dry-run`
    """
    from fusee.pipeline.jobs.replay import replay

    place = place_of(None if archive else name_servers, store, archive, options)
    sink = sink_of(target, name_servers, place.source, sink_options)
    if not dry_run:
        confirm(f"Send messages of {', '.join(topics)} to {to_topic or 'where they came from'} again?", yes=yes)
    with spark_session(master, conf, "replay") as spark, watched() as (observer, is_stopped):
        outcome = replay(
            spark,
            place=place,
            topics=topics,
            sink=sink,
            to_topic=to_topic,
            selection=selection_of(since, until, keys, tags, where),
            rate=rate,
            dry_run=dry_run,
            state_path=state,
            generations_max=times_max,
            observer=observer,
            is_stopped=is_stopped,
        )
    show(outcome, as_json=as_json)


@app.command("stats")
def topic_stats(
    topics: Topics,
    top: Annotated[int, typer.Option("--top", min=1, help="How many tags and keys are shown.")] = 20,
    report: Report = None,
    since: Since = None,
    until: Until = None,
    keys: Keys = None,
    tags: Tags = None,
    where: Where = "",
    name_servers: LiveName = None,
    store: Store = None,
    archive: FromArchive = None,
    options: SourceOption = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """**What is in topics**: counts and sizes by topic, tag and hour, skew of queues, hot keys.

    Example: `fusee pipeline stats orders --since 1d --report orders.html`
    """
    from fusee.pipeline.jobs.stats import stats

    place = place_of(name_servers, store, archive, options)
    with spark_session(master, conf, "stats") as spark, watched() as (observer, _):
        outcome = stats(
            spark,
            place=place,
            topics=topics,
            selection=selection_of(since, until, keys, tags, where),
            top=top,
            report_path=report,
            observer=observer,
        )
    show(outcome, as_json=as_json)


@app.command("dlq")
def dead_letter_job(
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP...", help="Groups; all without any.")] = None,
    again: Annotated[
        bool, typer.Option("--replay", help="Send them again, to the topics they were sent to at first.")
    ] = False,
    to_topic: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="With --replay: to this topic instead.")
    ] = None,
    origin: Annotated[
        str | None, typer.Option("--origin", metavar="TOPIC", help="With --replay: only those of this topic.")
    ] = None,
    target: Target = None,
    sink_options: SinkOption = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    state: State = None,
    times_max: Annotated[
        int, typer.Option("--times-max", min=1, help="Leave out what was replayed so often already.")
    ] = 3,
    report: Report = None,
    since: Since = None,
    until: Until = None,
    keys: Keys = None,
    tags: Tags = None,
    where: Where = "",
    name_servers: LiveName = None,
    store: Store = None,
    archive: FromArchive = None,
    options: SourceOption = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """**Dead letters in bulk**: grouped by cause, and sent again.

    For a few of them `fusee dlq` is quicker, and needs no Spark. Example: `fusee pipeline dlq billing --replay`
    """
    from fusee.pipeline.jobs.dead_letters import dead_letters, replay_dead_letters

    place = place_of(name_servers, store, archive, options)
    selection = selection_of(since, until, keys, tags, where)
    if again:
        if not groups or len(groups) != 1:
            raise ConfigError("give one group whose dead letters are to be sent again")
        sink = sink_of(target, name_servers, place.source, sink_options)
        if not dry_run:
            confirm(f"Send the dead letters of {groups[0]} again?", yes=yes)
    with spark_session(master, conf, "dlq") as spark, watched() as (observer, is_stopped):
        if again and groups:
            outcome = replay_dead_letters(
                spark,
                place=place,
                group=groups[0],
                sink=sink,
                to_topic=to_topic,
                origin_topic=origin,
                selection=selection,
                rate=rate,
                dry_run=dry_run,
                state_path=state,
                generations_max=times_max,
                observer=observer,
                is_stopped=is_stopped,
            )
        else:
            outcome = dead_letters(
                spark, place=place, groups=groups or (), selection=selection, report_path=report, observer=observer
            )
    show(outcome, as_json=as_json)


@app.command("rebuild")
def rebuild_store(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store directory that no broker has open.")],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where `consumequeue` and `index` are written.")],
    kinds: Annotated[
        list[str] | None, typer.Option("--only", metavar="KIND", help="consumequeue or index; both without.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="The broker's settings, if sizes are not defaults."),
    ] = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """**Consume queues and index of a log, made again** by all cores, as the broker itself would write them.

    Example: `fusee pipeline rebuild /data/store --to /data/rebuilt`
    """
    from fusee.pipeline.jobs.rebuild import INDEX, QUEUES, rebuild

    settings = _store_config(config)
    with spark_session(master, conf, "rebuild") as spark, watched() as (observer, _):
        outcome = rebuild(spark, store=store, to=to, kinds=kinds or (QUEUES, INDEX), config=settings, observer=observer)
    show(outcome, as_json=as_json)


@app.command("audit")
def audit_topics(
    topics: Topics,
    groups: Annotated[
        list[str] | None, typer.Option("--group", "-g", metavar="GROUP", help="Only these groups.")
    ] = None,
    late: Annotated[
        str, typer.Option("--late", metavar="SPAN", help="Later than this counts as late: 500ms, 30s, 5m.")
    ] = "60s",
    trace_topic: Annotated[
        str, typer.Option("--trace-topic", metavar="TOPIC", help="Where clients write their traces.")
    ] = "RMQ_SYS_TRACE_TOPIC",
    report: Report = None,
    since: Since = None,
    until: Until = None,
    name_servers: LiveName = None,
    store: Store = None,
    archive: FromArchive = None,
    options: SourceOption = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """**Were messages lost, doubled, late?** Produced, stored, delivered and consumed are held against each other.

    Exit code 1 when something was lost. Example: `fusee pipeline audit orders --report audit.html`
    """
    from fusee.pipeline.jobs.audit import audit

    place = place_of(name_servers, store, archive, options)
    with spark_session(master, conf, "audit") as spark, watched() as (observer, _):
        outcome = audit(
            spark,
            place=place,
            topics=topics,
            groups=groups or (),
            trace_topic=trace_topic,
            late_ms=parse_span_ms(late, "--late"),
            selection=selection_of(since, until, None, None, ""),
            report_path=report,
            observer=observer,
        )
    show(outcome, as_json=as_json)


@app.command("run")
def run_pipeline(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A pipeline in YAML.")],
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Go on until Ctrl-C; without, take what is there.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only read the file and say what it declares.")] = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """**Run a declared pipeline**: sources, steps in SQL or Python, sinks; each sink goes on where it was.

    A file for Spark's own declarative pipelines (with `libraries`) is run by Spark's runner.
    Example: `fusee pipeline run enrich.yaml --continuous`
    """
    from fusee.pipeline.declared import is_sparks_own, read_pipeline, run_sparks_own, start_pipeline
    from fusee.pipeline.jobs.outcome import Outcome, Table

    if is_sparks_own(file):
        raise typer.Exit(run_sparks_own(file, dry_run=check, conf=pairs_of(conf, "--conf")))
    pipeline = read_pipeline(file)
    facts = {"pipeline": pipeline.name, "checkpoints": pipeline.checkpoints}
    if check:
        parts = [(one.name, "source", one.format) for one in pipeline.sources]
        parts += [(one.name, "step", "sql" if one.sql else one.python) for one in pipeline.steps]
        parts += [(one.name, "sink", f"{one.format} from {one.input}") for one in pipeline.sinks]
        show(Outcome("pipeline", facts, [Table("declared", ("name", "part", "how"), tuple(parts))]), as_json=as_json)
        return
    with spark_session(master, conf, pipeline.name) as spark, watched() as (observer, is_stopped):
        observer.step(f"running {pipeline.name}")
        done = start_pipeline(spark, pipeline, once=not continuous).wait(is_stopped)
    rows = tuple((one.name, one.batches, one.rows) for one in done)
    show(Outcome("pipeline", facts, [Table("sinks", ("sink", "batches", "rows read"), rows)]), as_json=as_json)


def _store_config(path: Path | None) -> StoreConfig | None:
    if path is None:
        return None
    from fusee.broker.config import load_settings

    return load_settings(file=path).store

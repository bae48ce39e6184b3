"""Commands that look into a store from outside: `fusee store inspect|verify|dump PATH`.

Exit codes: 0 fine, 1 problems were found, 2 the path is no store or the command line is wrong.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.text import Text

from fusee.cli.message_view import BodyForm, encoded_body
from fusee.cli.render import AsJson, output, print_json, print_json_line
from fusee.cli.tree import subcommands
from fusee.errors import MessageError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fusee.message.model import StoredMessage
    from fusee.store.offline.files import OfflineStore

app = subcommands("store")

StorePath = Annotated[Path, typer.Argument(metavar="PATH", help="Root of the store: the folder that holds commitlog/.")]
CommitLogPath = Annotated[
    Path | None,
    typer.Option("--commit-log", metavar="PATH", help="Where the commit log is, if it is not under the root."),
]


class Section(Enum):
    """What `inspect` can show alone."""

    LOG = "log"
    TOPICS = "topics"
    QUEUES = "queues"
    GROUPS = "groups"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    CONFIG = "config"
    TIMER = "timer"
    TRANSACTIONS = "transactions"


@app.command("inspect")
def inspect_store(
    path: StorePath,
    what: Annotated[Section | None, typer.Argument(metavar="[WHAT]", help="Show only this, with all its rows.")] = None,
    commit_log: CommitLogPath = None,
    as_json: AsJson = False,
) -> None:
    """Show **what is in a store**: log, topics and queues, groups and their lag, index, checkpoint, configuration.

    WHAT is one of log, topics, queues, groups, index, checkpoint, config, timer, transactions.

    Example: `fusee store inspect /var/lib/fusee/store queues`
    """
    from fusee.cli.store_tables import show_overview
    from fusee.store.offline.inspect import inspect

    with _opened(path, commit_log) as store:
        overview = inspect(store)
    if as_json:
        if what is None:
            print_json(overview)
        else:
            print_json({"path": overview.path, "state": overview.state, what.value: getattr(overview, what.value)})
        return
    show_overview(output(), overview, what.value if what is not None else None)


@app.command("verify")
def verify_store(
    path: StorePath,
    commit_log: CommitLogPath = None,
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option(min=1, help="Findings of one kind that are shown; all are counted.")] = 50,
) -> None:
    """**Check a store**: every record, queue entry, index entry and file, against each other.

    An *error* is damage; a *note* is what an unclean stop leaves and recovery mends, or what was not checked. Of a
    store that a broker has open, only what holds at any moment counts as an error.

    Exit code 0: no errors. 1: errors. 2: PATH is no store.

    Example: `fusee store verify /var/lib/fusee/store --json`
    """
    from fusee.cli.store_tables import show_report
    from fusee.store.offline.verify import verify

    with _opened(path, commit_log) as store, _progress() as progress:
        report = verify(store, progress, shown_per_kind=limit)
    if as_json:
        print_json(report)
    else:
        show_report(Console(highlight=False, soft_wrap=True), report)
    if report.errors:
        raise typer.Exit(1)


@app.command("dump")
def dump_store(
    path: StorePath,
    topic: Annotated[str | None, typer.Option(help="Only messages of this topic.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only messages of this queue of the topic.")] = None,
    start: Annotated[
        int | None,
        typer.Option("--from", min=0, help="Begin here: a queue offset with --queue, a log offset without."),
    ] = None,
    count: Annotated[int, typer.Option(min=0, help="Messages that are printed at most; 0 prints all.")] = 100,
    key: Annotated[
        str | None, typer.Option(help="Only messages with this key or unique id; quick if there is a --topic.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stored at or after: ISO 8601, or milliseconds.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Stored at or before.")] = None,
    body: Annotated[BodyForm, typer.Option(help="How bodies are printed; what is no text is printed as hex.")] = (
        BodyForm.UTF8
    ),
    decompress: Annotated[
        bool, typer.Option("--decompress", help="Print compressed bodies as they were sent.")
    ] = False,
    scan: Annotated[
        bool, typer.Option("--scan", help="Read the log itself, without trusting queues or index.")
    ] = False,
    commit_log: CommitLogPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """**Print messages** of a store, in the order of the log, or of one queue.

    Places that cannot be read are told on standard error and passed over; the exit code is 1 then.

    Examples: `fusee store dump /store --topic Orders --queue 0 --from 1200 --count 10`

    `fusee store dump /store --topic Orders --key order-4711 --json`

    `fusee store dump /store --since 2026-11-16T09:00 --until 2026-11-16T10:00 --count 0`
    """
    from fusee.store.offline.dump import TIME_MS_MAX, Selection, Unreadable, select

    wanted = Selection(
        topic=topic,
        queue_id=queue,
        start=start,
        key=key,
        since_ms=0 if since is None else _time_ms(since, "--since"),
        until_ms=TIME_MS_MAX if until is None else _time_ms(until, "--until"),
        scan=scan,
    )
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    printed = unreadable = 0
    out = Console(highlight=False, soft_wrap=True)
    with _opened(path, commit_log) as store:
        for found in select(store, wanted):
            if isinstance(found, Unreadable):
                unreadable += 1
                errors.print(
                    Text(f"unreadable: {found.file} at {found.position}, log offset {found.log_offset}: {found.reason}")
                )
                continue
            if count and printed == count:
                errors.print(Text(f"stopped after {count}; --count 0 prints all messages", style="dim"))
                break
            if as_json:
                print_json_line(_described(found, body, decompress))
            else:
                _show_message(out, _described(found, body, decompress))
            printed += 1
    if unreadable:
        raise typer.Exit(1)


@contextmanager
def _opened(path: Path, commit_log: Path | None) -> Iterator[OfflineStore]:
    from fusee.store.offline.files import OfflineStore

    try:
        store = OfflineStore(path, commit_log)
    except StoreError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(Text.assemble(("error:", "bold red"), f" {error}"))
        raise typer.Exit(2) from error
    with store:
        yield store


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], object] | None]:
    """A bar on standard error, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description:8}"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def advance(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield advance


def _time_ms(text: str, option: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is no time: write 2026-11-16T09:30, 2026-11-16T09:30:00.123+01:00, or milliseconds",
            param_hint=option,
        ) from error


def _described(message: StoredMessage, form: BodyForm, decompress: bool) -> dict[str, Any]:
    """A message as it is printed."""
    from fusee.message.compression import decompress_message
    from fusee.message.flags import SysFlag, transaction_type

    problem = ""
    if decompress and message.sys_flag & SysFlag.COMPRESSED:
        try:
            message = decompress_message(message)
        except MessageError as error:
            problem = str(error)
    described: dict[str, Any] = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "logOffset": message.log_offset,
        "storeSize": message.store_size,
        "storeTimestamp": message.store_timestamp_ms,
        "bornTimestamp": message.born_timestamp_ms,
        "storeHost": message.store_host,
        "bornHost": message.born_host,
        "offsetMsgId": message.offset_id,
        "uniqueId": message.unique_id,
        "tag": message.tag,
        "keys": message.keys,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "transaction": transaction_type(message.sys_flag).name,
        "isCompressed": bool(message.sys_flag & SysFlag.COMPRESSED),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCrc": message.body_crc,
        "bodySize": len(message.body),
        "properties": dict(message.properties),
    }
    if form is not BodyForm.NONE:
        described["bodyEncoding"], described["body"] = encoded_body(message.body, form)
    if problem:
        described["problem"] = problem
    return described


def _show_message(out: Console, message: dict[str, Any]) -> None:
    from fusee.cli.store_tables import printable, size_text, time_text

    out.print(
        Text.assemble(
            (f"{printable(message['topic'])} queue {message['queueId']} at {message['queueOffset']}", "bold"),
            f"  log offset {message['logOffset']}, {size_text(message['storeSize'])}",
        )
    )
    transaction = message["transaction"]
    rows = [
        ("stored", f"{time_text(message['storeTimestamp'])} by {message['storeHost']}"),
        ("born", f"{time_text(message['bornTimestamp'])} at {message['bornHost']}"),
        ("id", message["uniqueId"] or message["offsetMsgId"]),
        ("tag", message["tag"]),
        ("keys", " ".join(message["keys"])),
        ("transaction", "" if transaction == "NOT" else transaction),
        ("retries", str(message["reconsumeTimes"] or "")),
        ("properties", ", ".join(f"{name}={value}" for name, value in message["properties"].items())),
        ("problem", message.get("problem")),
    ]
    if "body" in message:
        packed = ", compressed" if message["isCompressed"] else ""
        rows.append((f"body ({message['bodyEncoding']}, {message['bodySize']} bytes{packed})", message["body"]))
    for name, value in rows:
        if value:
            out.print(Text.assemble("  ", (f"{name}: ", "dim"), printable(value)))

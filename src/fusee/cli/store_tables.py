"""A store's overview, findings and records as people read them at a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from fusee.store.offline.findings import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from fusee.store.offline.inspect import LogView, Overview
    from fusee.store.offline.verify import VerifyReport

SECTIONS = ("log", "topics", "queues", "groups", "index", "checkpoint", "config", "timer", "transactions")
# What an overview leaves out, because it can be long.
_DETAILS = frozenset({"queues", "groups"})
_STATE_STYLES = {"clean": "green", "unclean": "yellow", "open": "cyan"}


def time_text(time_ms: int | None) -> str:
    """A time as people read it, in local time; 0 means never."""
    if not time_ms or time_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03d}"


def size_text(size: int) -> str:
    """A number of bytes as people read it."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{int(amount)} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def printable(text: str) -> str:
    """The text without what would move the cursor or ring a bell; line ends stay."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1] for character in text
    )


def show_overview(out: Console, overview: Overview, section: str | None) -> None:
    """Print everything at a glance, or one section with all its rows."""
    if section is None:
        _show_head(out, overview)
    for name in (section,) if section is not None else SECTIONS:
        if name == "log":
            _show_log(out, overview.log)
        elif section is not None or name not in _DETAILS:
            _SHOW[name](out, overview)


def _show_head(out: Console, overview: Overview) -> None:
    state = overview.state
    meaning = {
        "clean": "closed properly",
        "unclean": "not closed properly: the next start recovers it",
        "open": "open now" + (f", process {overview.holder_pid}" if overview.holder_pid else ""),
    }[state]
    rows = (
        ("store", overview.path),
        ("state", Text.assemble((state, _STATE_STYLES[state]), f", {meaning}")),
        ("written by", overview.writer),
        ("size", f"{size_text(overview.allocated)} on disk, {size_text(overview.size)} with holes"),
    )
    _facts(out, rows)


def _facts(out: Console, rows: Iterable[tuple[str, str | Text]]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value if isinstance(value, Text) else Text(value))
    out.print(table)


def _titled(out: Console, title: str) -> None:
    out.print()
    out.print(Text(title, style="bold underline"))


def _table(out: Console, title: str, columns: Iterable[str], rows: Iterable[tuple[object, ...]], empty: str) -> None:
    """A table whose columns with a `#` in front hold numbers. A column of problems is left out when there are none."""
    _titled(out, title)
    table = Table(box=None, header_style="dim", pad_edge=False)
    rows = list(rows)
    columns = list(columns)
    if columns[-1] == "problem" and not any(row[-1] for row in rows):
        columns.pop()
        rows = [row[:-1] for row in rows]
    for column in columns:
        if column.startswith("#"):
            table.add_column(column[1:], justify="right", overflow="fold")
        else:
            table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    if table.row_count:
        out.print(table)
    else:
        out.print(Text(empty, style="dim"))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def _show_log(out: Console, log: LogView) -> None:
    _titled(out, "commit log")
    about = "about " if log.records_estimated else ""
    rows: list[tuple[str, str | Text]] = [
        ("files", f"{log.segments:,} of {size_text(log.segment_size)}, {size_text(log.allocated)} on disk"),
        ("log offsets", f"{log.min_offset:,} to {log.end_offset:,}"),
        ("records", f"{about}{log.records:,}"),
        ("first stored", time_text(log.first_store_time_ms)),
        ("last stored", time_text(log.last_store_time_ms)),
    ]
    if log.problem:
        rows.append(("problem", Text(f"{log.problem}; see `fusee store verify`", style="red")))
    _facts(out, rows)


def _show_topics(out: Console, overview: Overview) -> None:
    rows = [
        (view.topic, view.kind, view.queues, view.messages, view.groups, view.lag_max, size_text(view.allocated))
        for view in overview.topics
    ]
    columns = ("topic", "queue kind", "#queues", "#messages", "#groups", "#largest lag", "#on disk")
    _table(out, "topics", columns, rows, "no consume queues")


def _show_queues(out: Console, overview: Overview) -> None:
    rows = [
        (
            view.topic,
            view.queue_id,
            view.min_offset,
            view.max_offset,
            view.messages,
            view.files,
            size_text(view.allocated),
        )
        for view in overview.queues
    ]
    columns = ("topic", "#queue", "#min offset", "#max offset", "#messages", "#files", "#on disk")
    _table(out, "queues", columns, rows, "no consume queues")


def _show_groups(out: Console, overview: Overview) -> None:
    rows = [
        (view.group, view.topic, view.queue_id, view.committed_offset, view.max_offset, view.lag)
        for view in overview.groups
    ]
    columns = ("group", "topic", "#queue", "#committed offset", "#max offset", "#lag")
    _table(out, "consumer groups", columns, rows, "no offsets committed")


def _show_index(out: Console, overview: Overview) -> None:
    rows = [
        (
            view.name,
            view.entries,
            "-" if not view.capacity else f"{100 * view.entries / (view.capacity - 1):.1f} %",
            f"{view.begin_log_offset:,} to {view.end_log_offset:,}",
            time_text(view.begin_time_ms)[:19],
            time_text(view.end_time_ms)[:19],
            size_text(view.allocated),
            view.problem,
        )
        for view in overview.index
    ]
    columns = ("file", "#entries", "#full", "#log offsets", "#from", "#to", "#on disk", "problem")
    _table(out, "index", columns, rows, "no index files")


def _show_checkpoint(out: Console, overview: Overview) -> None:
    _titled(out, "checkpoint: everything stored before is on disk")
    view = overview.checkpoint
    if view is None:
        out.print(Text("no checkpoint", style="dim"))
        return
    _facts(
        out,
        (
            ("log", time_text(view.log_time_ms)),
            ("consume queues", time_text(view.queues_time_ms)),
            ("index", time_text(view.index_time_ms)),
            ("master flushed", f"{view.master_flushed_offset:,}"),
            ("confirmed", f"{view.confirmed_offset:,}"),
        ),
    )


def _show_config(out: Console, overview: Overview) -> None:
    rows = [
        (view.name, view.count, size_text(view.size), view.problem)
        for view in overview.config
        if view.problem or not view.name.endswith(".bak")
    ]
    _table(out, "configuration", ("file", "#entries", "#size", "problem"), rows, "no configuration")


def _show_timer(out: Console, overview: Overview) -> None:
    _titled(out, "timer")
    view = overview.timer
    if view is None:
        out.print(Text("no timer wheel", style="dim"))
        return
    _facts(
        out,
        (
            ("wheel", f"{view.slots_used:,} of {view.slots:,} slots in use, {size_text(view.wheel_allocated)} on disk"),
            ("messages", f"{view.messages:,}, the last for {time_text(view.last_time_ms)}"),
            ("timer log", f"{view.log_units:,} units in {view.log_segments} files, {size_text(view.log_allocated)}"),
        ),
    )


def _show_transactions(out: Console, overview: Overview) -> None:
    _titled(out, "transactions")
    view = overview.transactions
    if view is None:
        out.print(Text("no transaction table", style="dim"))
        return
    rows = [(name, f"{count:,}") for name, count in sorted(view.states.items())]
    _facts(out, (*rows, ("files", f"{view.segments} and {view.redo_segments} of redo, {size_text(view.allocated)}")))


_SHOW = {
    "topics": _show_topics,
    "queues": _show_queues,
    "groups": _show_groups,
    "index": _show_index,
    "checkpoint": _show_checkpoint,
    "config": _show_config,
    "timer": _show_timer,
    "transactions": _show_transactions,
}


def show_report(out: Console, report: VerifyReport) -> None:
    """Print what a check found, errors first, and what it looked at."""
    styles = {Severity.ERROR: "bold red", Severity.NOTE: "yellow"}
    shown: dict[tuple[Severity, str], int] = {}
    for finding in report.findings:
        place = finding.file if finding.position is None else f"{finding.file} at {finding.position}"
        key = (finding.severity, finding.kind)
        shown[key] = shown.get(key, 0) + 1
        out.print(
            Text.assemble(
                (f"{finding.severity.value:5} ", styles[finding.severity]),
                (f"{finding.kind:20} ", "bold"),
                f"{place}: ",
                printable(finding.text),
            )
        )
    for count in report.counts:
        more = count.count - shown.get((count.severity, count.kind), 0)
        if more > 0:
            out.print(Text(f"{count.severity.value:5} {count.kind:20} and {more:,} more of this kind", style="dim"))
    out.print(
        Text(
            f"{report.path}: {report.state}; {report.records:,} records in log offsets {report.log_min_offset:,} to "
            f"{report.log_end_offset:,}, {report.queue_entries + report.batch_units:,} entries in {report.queues:,} "
            f"queues, {report.index_entries:,} entries in {report.index_files:,} index files"
        )
    )
    verdict = f"{report.errors:,} errors, {report.notes:,} notes"
    out.print(Text(verdict, style="bold red" if report.errors else "bold green"))

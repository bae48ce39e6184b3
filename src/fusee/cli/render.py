"""What people and programs are shown: tables, times, sizes, bars; JSON; errors in one line."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fusee.errors import SendFailedError, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fusee.admin.views import Failure
    from fusee.message.model import MessageQueue

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

_PIPE_WIDTH: Final = 240
_TOPIC_NOT_EXIST: Final = 17
_SHORTENED: Final = "…"


# Where it goes


def output() -> Console:
    """Standard output. Nobody's window ends at 80 when it is a pipe."""
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    return console


def notes() -> Console:
    """Standard error: what is not the answer."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def note(text: str, style: str = "dim") -> None:
    """A line on standard error."""
    notes().print(Text(text, style=style))


def error_text(error: Exception) -> str:
    """What went wrong, in one line, with the command that may help."""
    if isinstance(error, TopicNotFoundError) and error.topic and error.code == _TOPIC_NOT_EXIST:
        return (
            f"there is no topic {error.topic!r}; `fusee topic list` shows those that there are, "
            f"`fusee topic create {error.topic}` makes it"
        )
    if isinstance(error, SendFailedError) and len({str(each) for each in error.attempts}) == 1:
        tries = f" in {len(error.attempts)} tries" if len(error.attempts) > 1 else ""
        cause = str(error.attempts[0])
        hint = "; give --delay-level instead, or enable timers on the broker" if "timerWheelEnable" in cause else ""
        return " ".join(f"the message for topic {error.topic!r} could not be sent{tries}: {cause}{hint}".split())
    return " ".join(str(error).split())


def tell_error(error: Exception) -> None:
    """The same, on standard error."""
    notes().print(Text.assemble(("error:", "bold red"), f" {error_text(error)}"))


def print_json(value: object) -> None:
    """One JSON document."""
    _write(msgspec.json.format(msgspec.json.encode(value), indent=2))


def print_json_line(value: object) -> None:
    """One JSON document on one line, of many."""
    _write(msgspec.json.encode(value))


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


# Tables


def table(*columns: str, right: Sequence[str] = (), whole: Sequence[str] = (), title: str = "") -> Table:
    """A table without lines; the columns named in `right` hold numbers, those in `whole` are not wrapped either."""
    made = Table(
        box=None,
        header_style="dim",
        pad_edge=False,
        title=Text(title, style="bold") if title else None,
        title_justify="left",
    )
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="fold",
            no_wrap=column in right or column in whole,
        )
    return made


def facts(rows: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one pair a line; those without a value are left out."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, "", ()):
            made.add_row(name, value if isinstance(value, Text) else Text(str(value)))
    return made


def tell_failures(failures: Sequence[Failure]) -> None:
    """Servers that did not tell what they were asked for."""
    for failure in failures:
        who = failure.broker_name or failure.address
        notes().print(Text.assemble(("! ", "bold yellow"), f"{who} did not tell: {failure.cause}"))


# Values


def queue_text(queue: MessageQueue) -> str:
    """A queue within its topic: `broker-a/3`."""
    return f"{queue.broker_name}/{queue.queue_id}"


def plain_queue(queue: MessageQueue) -> dict[str, Any]:
    """A queue as programs read it."""
    return {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id}


def count_text(count: float) -> str:
    """A number as people read it."""
    return f"{count:,}" if isinstance(count, int) else f"{count:,.1f}"


def size_text(size: float) -> str:
    """A number of bytes as people read it."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def time_text(timestamp_ms: int) -> str:
    """A moment in this machine's zone; a dash for none."""
    if timestamp_ms <= 0:
        return "-"
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(" ", "milliseconds")[:23]


def span_text(milliseconds: float, units: int = 2) -> str:
    """A span of time with its largest units, by default two: `3 d 4 h`, `12 s`, `40 ms`."""
    left = abs(round(milliseconds))
    sign = "-" if milliseconds < 0 else ""
    if left < 1_000:
        return f"{sign}{left} ms"
    if left < 60_000:
        seconds = f"{left / 1000:.1f}" if units > 1 else f"{left / 1000:.0f}"
        return f"{sign}{seconds.removesuffix('.0')} s"
    parts: list[str] = []
    for size, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        amount, left = divmod(left, size)
        if amount:
            parts.append(f"{amount} {name}")
        elif parts:
            break
    return sign + " ".join(parts[:units])


def body_text(body: bytes, width: int | None = None) -> str:
    """A body on one line: as text if it is text, in hexadecimal digits otherwise; shortened to a width."""
    try:
        text = "".join(letter if letter.isprintable() else " " for letter in body.decode())
    except UnicodeDecodeError:
        text = "0x" + (body if width is None else body[:width]).hex()
    return text if width is None else shortened(text, width)


def shortened(text: str, width: int) -> str:
    """A text that fits."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + _SHORTENED


# Work that takes time


@contextmanager
def progress() -> Iterator[Callable[[str, int, int | None], object]]:
    """Bars on standard error, if that is a terminal: call with a name, how much is done, and of how much."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def advance(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield advance

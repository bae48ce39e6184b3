"""`fusee transaction`: transactions that wait for their producer, and those that were given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from fusee.cli.connect import DEFAULT_NAME_SERVER, Broker, DryRun, NameServers, Yes, confirm, run
from fusee.cli.message_view import described, show_message
from fusee.cli.render import (
    AsJson,
    note,
    output,
    print_json,
    queue_text,
    span_text,
    table,
    tell_failures,
    time_text,
)
from fusee.cli.tree import subcommands
from fusee.clock import SystemClock
from fusee.errors import NotFoundError

if TYPE_CHECKING:
    from fusee.admin.views import PendingTransaction, PendingTransactions
    from fusee.client.received import ReceivedMessage
    from fusee.connection import Connection

app = subcommands("transaction")

Id = Annotated[
    str, typer.Argument(metavar="ID", help="The transaction, or its half message: any id that `list` shows.")
]
GivenUp = Annotated[bool, typer.Option("--given-up", help="Those whose producer never decided.")]
Limit = Annotated[int, typer.Option("--limit", "-l", min=1, help="Transactions at most.")]


@app.command("list")
def list_transactions(
    given_up: GivenUp = False,
    limit: Limit = 100,
    broker: Broker = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    as_json: AsJson = False,
) -> None:
    """**List transactions** without a decision, oldest first, or those that were given up.

    Brokers write decisions down with a delay of a few seconds: what was decided just now may still be listed.

    Example: `fusee transaction list`
    """
    if given_up:

        async def abandoned(mq: Connection) -> tuple[ReceivedMessage, ...]:
            return await mq.admin.abandoned_transactions(limit=limit)

        _show_given_up(run(name_servers, abandoned), as_json=as_json)
        return

    async def ask(mq: Connection) -> PendingTransactions:
        return await mq.admin.pending_transactions(limit=limit, broker=broker)

    found = run(name_servers, ask)
    if as_json:
        print_json(
            {
                "transactions": [_plain(each) for each in found.transactions],
                "isAll": found.is_all,
                "failures": found.failures,
            }
        )
        return
    if not found.transactions:
        note("no transaction waits for a decision")
    else:
        now_ms = SystemClock().time_ms()
        rows = table(
            "transaction", "topic", "producer group", "begun", "asked", right=("asked",), whole=("transaction",)
        )
        for each in found.transactions:
            rows.add_row(
                each.transaction_id,
                each.topic,
                each.producer_group,
                f"{span_text(now_ms - each.message.born_timestamp_ms, 1)} ago",
                str(each.check_times),
            )
        output().print(rows)
    if not found.is_all:
        note(f"there are more than {limit}; --limit shows more")
    tell_failures(found.failures)


@app.command("show")
def show_transaction(
    transaction_id: Id, name_servers: NameServers = DEFAULT_NAME_SERVER, as_json: AsJson = False
) -> None:
    """Show **one transaction** with its half message, pending or given up.

    Example: `fusee transaction show 7F00000100002A139A46000000000001`
    """
    found = run(name_servers, lambda mq: _find(mq, transaction_id))
    if as_json:
        print_json(_plain(found) if not isinstance(found, _GivenUp) else described(found.message))
        return
    out = output()
    if isinstance(found, _GivenUp):
        out.print(Text("given up: its producer never decided", style="yellow"))
    else:
        out.print(Text(f"pending for {found.topic}, of {found.producer_group}, asked about {found.check_times} times"))
    out.print()
    show_message(out, found.message)


@app.command("commit")
def commit_transaction(
    transaction_id: Id,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """**Deliver** the message of a transaction whose producer does not decide.

    Make sure first what the producer's own transaction came to: this cannot be undone.

    Example: `fusee transaction commit 7F00000100002A139A46000000000001 --dry-run`
    """
    _end(transaction_id, "commit", name_servers, yes=yes, dry_run=dry_run, as_json=as_json)


@app.command("rollback")
def roll_back_transaction(
    transaction_id: Id,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """**Forget** the message of a transaction whose producer does not decide.

    Make sure first what the producer's own transaction came to: this cannot be undone.

    Example: `fusee transaction rollback 7F00000100002A139A46000000000001 --dry-run`
    """
    _end(transaction_id, "rollback", name_servers, yes=yes, dry_run=dry_run, as_json=as_json)


@app.command("resume")
def resume_transaction(
    transaction_id: Id,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Let the producer **be asked again** about a transaction that was given up.

    Example: `fusee transaction resume 7F00000100002A139A46000000000001`
    """

    async def resume(mq: Connection) -> ReceivedMessage:
        found = await _find(mq, transaction_id)
        if not isinstance(found, _GivenUp):
            raise NotFoundError(f"transaction {transaction_id} is pending, so its producer is asked anyway", code=0)
        if not dry_run:
            await mq.admin.resume_half_message(found.message)
        return found.message

    if not dry_run:
        confirm(f"Let the producer of {transaction_id} be asked again?", yes=yes)
    message = run(name_servers, resume)
    if as_json:
        print_json({"messageId": message.message_id, "dryRun": dry_run, "done": "resumed"})
    else:
        output().print(Text(f"{'would resume' if dry_run else 'resumed'} {message.message_id}"))


# Within


class _GivenUp:
    def __init__(self, message: ReceivedMessage) -> None:
        self.message = message


async def _find(mq: Connection, transaction_id: str) -> PendingTransaction | _GivenUp:
    try:
        return await mq.admin.pending_transaction(transaction_id)
    except NotFoundError:
        for message in await mq.admin.abandoned_transactions():
            if transaction_id in (message.message_id, message.offset_id, message.transaction_id):
                return _GivenUp(message)
        raise


def _end(
    transaction_id: str,
    verdict: Literal["commit", "rollback"],
    name_servers: str,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    async def look(mq: Connection) -> PendingTransaction:
        return await mq.admin.pending_transaction(transaction_id)

    pending = run(name_servers, look)
    what = f"transaction {pending.transaction_id} for {pending.topic}"
    if not dry_run:
        verb = "Deliver the message of" if verdict == "commit" else "Forget the message of"
        confirm(f"{verb} {what}?", yes=yes)

        async def end(mq: Connection) -> None:
            await mq.admin.end_transaction(pending, verdict)

        run(name_servers, end)
    if as_json:
        print_json(_plain(pending) | {"verdict": verdict, "dryRun": dry_run})
        return
    done = {"commit": "committed", "rollback": "rolled back"}[verdict]
    output().print(Text(f"would have {done} {what}" if dry_run else f"{done} {what}"))


def _plain(pending: PendingTransaction) -> dict[str, Any]:
    return {
        "transactionId": pending.transaction_id,
        "topic": pending.topic,
        "producerGroup": pending.producer_group,
        "checkTimes": pending.check_times,
        "message": described(pending.message),
    }


def _show_given_up(found: tuple[ReceivedMessage, ...], *, as_json: bool) -> None:
    if as_json:
        print_json([described(message) for message in found])
        return
    if not found:
        note("no transaction was given up")
        return
    rows = table("half message", "topic", "given up", "place", whole=("half message",))
    for message in found:
        rows.add_row(
            message.message_id,
            message.properties.get("REAL_TOPIC", ""),
            time_text(message.store_timestamp_ms),
            f"{queue_text(message.queue)} at {message.queue_offset}",
        )
    output().print(rows)

"""A broker that is killed in the middle of its work: part of `make demo`.

Starts a name server and a broker as real processes and talks to them by protocol, as any RocketMQ client does: sends
and consumes, delays, retries into the dead letters, runs transactions; then kills the broker with SIGKILL while four
producers send, starts it again on the same store, and counts.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from fusee.clock import SystemClock
from fusee.errors import TransportError
from fusee.message.flags import TransactionType
from fusee.message.ids import decode_offset_id
from fusee.message.properties import encode_properties
from fusee.message.record import decode_record, iterate_records
from fusee.message.topics import dlq_topic, retry_topic
from fusee.service import run
from fusee.transport import Client, TcpNetwork
from fusee.transport.router import Router
from fusee.wire.bodies.heartbeat import HeartbeatData, ProducerData
from fusee.wire.bodies.route import decode_route
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.client import Heartbeat
from fusee.wire.headers.namesrv import GetRouteInfo
from fusee.wire.headers.pull import PullMessage, PullMessageResponse
from fusee.wire.headers.send import ConsumerSendMessageBack, SendMessageResponse, SendMessageV2
from fusee.wire.headers.transaction import CheckTransactionState, EndTransaction
from fusee.wire.lenient_json import dumps_fastjson

if TYPE_CHECKING:
    from fusee.message.model import StoredMessage
    from fusee.transport.link import Link
    from fusee.wire.fields import Header

QUEUES = 4
MESSAGES = 2_000
LOAD = 3_000
TIMEOUT = 10.0

SETTINGS = """\
fastListenPort=0
messageDelayLevel=1s 2s 3s
transactionTimeOut=500
transactionCheckInterval=300
mappedFileSizeCommitLog=16777216
"""

out = Console(highlight=False)


def done(text: str) -> None:
    out.print(f"[green]✓[/] {text}")


class Server:
    """A `fusee` process."""

    def __init__(self, *arguments: str) -> None:
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fusee", *arguments, "--log-level", "error"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"listening on ([\d.:]+)", line)
        if found is None:
            raise SystemExit(f"{arguments[0]} did not start: {line!r}")
        self.address = found[1]
        self.seconds = time.perf_counter() - begun

    def end(self, *, kill: bool = False) -> None:
        with self.process:
            if kill:
                self.process.kill()
            else:
                self.process.terminate()


class Peer:
    """One connection to a broker, and what a client says on it."""

    def __init__(self, address: str, router: Router | None = None) -> None:
        self.address = address
        self.client = Client(
            network=TcpNetwork(), clock=SystemClock(), timers=asyncio.get_running_loop(), router=router
        )

    async def ask(self, code: RequestCode, header: Header, body: bytes = b"") -> Command:
        return await self.client.request(self.address, Command.request(code, header, body=body), timeout=TIMEOUT)

    async def send(self, topic: str, body: str, queue_id: int = 0, sys_flag: int = 0, **properties: str) -> Command:
        header = SendMessageV2(
            producer_group="shop",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp_ms=time.time_ns() // 1_000_000,
            flag=0,
            properties=encode_properties(properties).decode(),
        )
        answer = await self.ask(RequestCode.SEND_MESSAGE_V2, header, body.encode())
        if answer.code != ResponseCode.SUCCESS:
            raise SystemExit(f"not stored: {answer.code} {answer.remark}")
        return answer

    async def pull(
        self, topic: str, queue_id: int, queue_offset: int = 0, tags: str = "*", hold_ms: int = 0
    ) -> tuple[int, list[StoredMessage]]:
        header = PullMessage(
            consumer_group="shop",
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            max_messages=32,
            sys_flag=6 if hold_ms else 4,
            commit_offset=0,
            suspend_timeout_ms=hold_ms,
            subscription=tags,
            sub_version=0,
        )
        answer = await self.ask(RequestCode.PULL_MESSAGE, header)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            await asyncio.sleep(0.05)
            return queue_offset, []
        messages = list(iterate_records(answer.body)) if answer.code == ResponseCode.SUCCESS else []
        return answer.read(PullMessageResponse).next_offset, messages

    async def read(self, topic: str, queues: int = QUEUES, tags: str = "*") -> list[StoredMessage]:
        """Everything that is in a topic now."""
        found = []
        for queue_id in range(queues):
            queue_offset = 0
            while True:
                next_offset, messages = await self.pull(topic, queue_id, queue_offset, tags)
                if next_offset == queue_offset:
                    break
                found += messages
                queue_offset = next_offset
        return found

    async def wait_for(self, topic: str, queue_offset: int = 0) -> StoredMessage:
        """The message at this place, held until it is there."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                _, messages = await self.pull(topic, 0, queue_offset, hold_ms=1_000)
                if messages:
                    return messages[0]

    async def close(self) -> None:
        await self.client.close()


# Acts


async def send_and_consume(peer: Peer, name_server: str) -> None:
    begun = time.perf_counter()
    for first in range(0, MESSAGES, 50):
        numbers = range(first, first + 50)
        await asyncio.gather(
            *(peer.send("orders", f"order {n}", n % QUEUES, TAGS="paid" if n % 2 else "open") for n in numbers)
        )
    took = time.perf_counter() - begun
    done(f"{MESSAGES:,} orders sent, each acknowledged: {MESSAGES / took:,.0f} a second from this one connection")

    query = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic="orders"))
    route = decode_route((await peer.client.request(name_server, query)).body)
    (queues,) = route.queue_datas
    done(f"the name server knows the new topic: {queues.write_queue_nums} queues on {queues.broker_name}")

    begun = time.perf_counter()
    everything, paid = await peer.read("orders"), await peer.read("orders", tags="paid")
    took = time.perf_counter() - begun
    assert (len(everything), len(paid)) == (MESSAGES, MESSAGES // 2)
    done(f"all consumed, and the {len(paid):,} paid ones once more by their tag: {took * 1000:.0f} ms")


async def delay(peer: Peer) -> None:
    await peer.send("reminders", "pay, please", DELAY="1")
    begun = time.perf_counter()
    message = await peer.wait_for("reminders")
    took = time.perf_counter() - begun
    done(f"delayed by level 1 (1 s here): {message.body.decode()!r} came after {took:.2f} s")


async def retry_into_dead_letters(address: str) -> None:
    peer = Peer(address)
    await peer.send("parcels", "a parcel without address")
    message = await peer.wait_for("parcels")
    for tries in count(1):
        header = ConsumerSendMessageBack(
            log_offset=message.log_offset, group="shop", delay_level=1, origin_topic="parcels", max_reconsume_times=2
        )
        answer = await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        if tries > 2:
            break
        message = await retried(peer, tries)
    dead = await peer.wait_for(dlq_topic("shop"))
    done(f"tried {tries} times in vain, now in {dead.topic}: {dead.body.decode()!r}")
    await peer.close()


async def retried(peer: Peer, tries: int) -> StoredMessage:
    """The message as it comes again: the broker has made the group's retry topic by then."""
    async with asyncio.timeout(TIMEOUT):
        place = 0
        while True:
            place, messages = await peer.pull(retry_topic("shop"), 0, place, hold_ms=1_000)
            for message in messages:
                if message.reconsume_times == tries:
                    return message


class Bookkeeper:
    """A producer of transactions, which may be asked what became of them."""

    def __init__(self, address: str) -> None:
        router = Router()
        router.add(RequestCode.CHECK_TRANSACTION_STATE, self._asked, router.lane("checks", 100))
        self.peer = Peer(address, router)
        self.asked: list[str] = []

    async def introduce(self) -> None:
        body = HeartbeatData(client_id="bookkeeper", producer_data_set=[ProducerData(group_name="shop")])
        await self.peer.ask(RequestCode.HEART_BEAT, Heartbeat(), dumps_fastjson(body))

    async def prepare(self, uid: str) -> EndTransaction:
        """Send the half message; the header that decides about it, still without decision."""
        answer = await self.peer.send(
            "payments", uid, sys_flag=TransactionType.PREPARED, UNIQ_KEY=uid, TRAN_MSG="true", PGROUP="shop"
        )
        header = answer.read(SendMessageResponse)
        return EndTransaction(
            producer_group="shop",
            half_queue_offset=header.queue_offset,
            log_offset=decode_offset_id(header.msg_id).log_offset,
            commit_or_rollback=TransactionType.NOT,
            msg_id=uid,
        )

    async def decide(self, header: EndTransaction, verdict: TransactionType) -> None:
        header.commit_or_rollback = verdict
        answer = await self.peer.ask(RequestCode.END_TRANSACTION, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def _asked(self, command: Command, link: Link) -> None:
        """The broker asks: this one was paid."""
        question = command.read(CheckTransactionState)
        uid = decode_record(command.body).unique_id or ""
        self.asked.append(uid)
        answer = EndTransaction(
            producer_group="shop",
            half_queue_offset=question.half_queue_offset,
            log_offset=question.log_offset,
            commit_or_rollback=TransactionType.COMMIT,
            from_transaction_check=True,
            msg_id=uid,
        )
        link.send_oneway(Command.request(RequestCode.END_TRANSACTION, answer))


async def transact(address: str) -> None:
    bookkeeper = Bookkeeper(address)
    await bookkeeper.introduce()
    await bookkeeper.decide(await bookkeeper.prepare("committed"), TransactionType.COMMIT)
    await bookkeeper.decide(await bookkeeper.prepare("rolled back"), TransactionType.ROLLBACK)
    await bookkeeper.prepare("forgotten")
    first, second = await bookkeeper.peer.wait_for("payments"), await bookkeeper.peer.wait_for("payments", 1)
    assert [first.body, second.body] == [b"committed", b"forgotten"]
    assert bookkeeper.asked == ["forgotten"]
    done("transactions: one committed, one rolled back, one forgotten and asked about")
    await bookkeeper.peer.close()


async def produce(number: int, address: str, acknowledged: set[str], enough: asyncio.Event) -> None:
    """Send until the broker is gone, several at a time."""
    peer = Peer(address)
    try:
        for n in count():
            bodies = [f"{number}-{n}-{part}" for part in range(8)]
            for body, answer in zip(
                bodies,
                await asyncio.gather(*(peer.send("ledger", body, number) for body in bodies), return_exceptions=True),
                strict=True,
            ):
                if isinstance(answer, BaseException):
                    raise answer
                acknowledged.add(body)
            if len(acknowledged) >= LOAD:
                enough.set()
    except TransportError:
        await peer.close()


async def load_and_kill(server: Server) -> set[str]:
    acknowledged: set[str] = set()
    enough = asyncio.Event()
    producers = [asyncio.create_task(produce(number, server.address, acknowledged, enough)) for number in range(QUEUES)]
    await asyncio.wait_for(enough.wait(), TIMEOUT)
    server.end(kill=True)
    await asyncio.gather(*producers)
    out.print(f"[yellow]✗[/] kill -9 while four producers send; {len(acknowledged):,} messages are acknowledged")
    return acknowledged


async def count_what_is_left(address: str, acknowledged: set[str]) -> None:
    bookkeeper = Bookkeeper(address)
    peer = bookkeeper.peer
    await bookkeeper.introduce()
    found = [message.body.decode() for message in await peer.read("ledger")]
    in_order = all(
        numbers == sorted(numbers)
        for producer in range(QUEUES)
        if (numbers := [int(body.split("-")[1]) for body in found if body.startswith(f"{producer}-")])
    )
    late = await peer.wait_for("reminders", 1)
    paid = await peer.wait_for("payments", 2)
    orders = await peer.read("orders")
    again = [message.body for message in await peer.read("reminders", 1)].count(late.body)
    await peer.close()

    table = Table(title="after the restart", title_justify="left")
    for column in ("", "before", "found"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("acknowledged messages of the load", f"{len(acknowledged):,}", f"{len(acknowledged & set(found)):,}")
    table.add_row(
        "  of these twice, or out of order", "", "0" if in_order and len(found) == len(set(found)) else "some"
    )
    table.add_row("orders sent before", f"{MESSAGES:,}", f"{len(orders):,}")
    table.add_row("delayed message that was under way", "1", str(again))
    table.add_row("undecided transaction: asked about, committed", "1", str(paid.body == b"in doubt" and 1))
    out.print(table)
    assert acknowledged <= set(found)
    assert in_order
    assert len(found) == len(set(found))
    assert (len(orders), again, paid.body) == (MESSAGES, 1, b"in doubt")
    done("nothing is lost")


async def play(folder: Path, servers: list[Server]) -> None:
    (folder / "broker.properties").write_text(SETTINGS)
    name_server = Server("namesrv", "--listen", "127.0.0.1:0", "--kv-path", "")
    servers.append(name_server)

    def start_broker(listen: str) -> Server:
        arguments = ["broker", "-n", name_server.address, "--listen", listen, "--name", "broker-a"]
        broker = Server(*arguments, "--store", str(folder / "store"), "-c", str(folder / "broker.properties"))
        servers.append(broker)
        return broker

    broker = start_broker("127.0.0.1:0")
    done(f"name server on {name_server.address}, broker on {broker.address}, started in {broker.seconds:.2f} s")
    peer = Peer(broker.address)
    await send_and_consume(peer, name_server.address)
    await asyncio.gather(delay(peer), retry_into_dead_letters(broker.address), transact(broker.address))

    bookkeeper = Bookkeeper(broker.address)
    await bookkeeper.prepare("in doubt")
    await peer.send("reminders", "second reminder", DELAY="1")
    await bookkeeper.peer.close()
    acknowledged = await load_and_kill(broker)
    await peer.close()
    servers.remove(broker)

    broker = start_broker(broker.address)
    done(f"the broker is back on the same store after {broker.seconds:.2f} s")
    await count_what_is_left(broker.address, acknowledged)


def main() -> None:
    servers: list[Server] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(play(Path(folder), servers))
        finally:
            for server in servers:
                server.end()


if __name__ == "__main__":
    main()

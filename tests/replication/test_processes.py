"""A master and a slave as real processes that are killed while messages are sent; their logs are compared on disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fusee.clock import SystemClock
from fusee.message.model import StoredMessage
from fusee.message.record import decode_record
from fusee.store.record_scan import find_records
from fusee.transport import Client, TcpNetwork
from fusee.wire.bodies.kv import decode_kv_table
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.replication import ExchangeHaInfo, ExchangeHaInfoResponse
from tests.broker.kill.broker_calls import send_command
from tests.broker.kill.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(120)

SEGMENT = 1 << 18
STORE = {"mappedFileSizeCommitLog": str(SEGMENT), "diskFreeBytesMin": "0", "bindAddress": "127.0.0.1"}


class Group:
    """A master, a slave, and a client that sends to the master."""

    def __init__(self, folder: Path, flush: str) -> None:
        for name in ("master", "slave"):
            (folder / name).mkdir()
        settings = {**STORE, "flushDiskType": flush}
        self.master = BrokerProcess(folder / "master", {**settings, "brokerRole": "SYNC_MASTER"})
        self.slave = BrokerProcess(folder / "slave", {**settings, "brokerRole": "SLAVE", "brokerId": "1"})
        self.addresses: dict[str, str] = {}
        self.client: Client | None = None
        self.sent = 0

    async def ask(self, name: str, command: Command) -> Command:
        assert self.client is not None
        return await self.client.request(self.addresses[name], command, timeout=20.0)

    async def start(self, *names: str) -> None:
        for name in names:
            process = self.master if name == "master" else self.slave
            self.addresses[name] = await asyncio.to_thread(process.start)
        asked = await self.ask("master", Command.request(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHaInfo()))
        known = asked.read(ExchangeHaInfoResponse)
        told = ExchangeHaInfo(master_ha_address=known.master_ha_address, master_address=known.master_address)
        await self.ask("slave", Command.request(RequestCode.EXCHANGE_BROKER_HA_INFO, told))

    async def send(self, count: int) -> list[int]:
        """Send at once; the codes of the answers."""
        commands = []
        for _ in range(count):
            self.sent += 1
            properties = {"UNIQ_KEY": f"ID{self.sent:010d}", "WAIT": "true"}
            body = f"{self.sent:06d}".encode() * 170
            commands.append(send_command("orders", self.sent % 4, body, properties, born_ms=self.sent))
        answers = await asyncio.gather(*(self.ask("master", command) for command in commands))
        return [answer.code for answer in answers]

    async def end_of(self, name: str) -> int:
        answer = await self.ask(name, Command.request(RequestCode.GET_BROKER_RUNTIME_INFO))
        return int(decode_kv_table(answer.body).table["commitLogMaxOffset"])

    async def in_step(self) -> int:
        """Ask until the slave has all of the master's log; how long it is."""
        ends = [-1, 0]
        async with asyncio.timeout(30.0):
            while ends[0] != ends[1]:
                ends = [await self.end_of(name) for name in ("master", "slave")]
        return ends[0]

    async def in_sync(self) -> None:
        """Send until the master counts on its slave."""
        async with asyncio.timeout(30.0):
            while await self.send(1) != [ResponseCode.SUCCESS]:
                pass


@asynccontextmanager
async def group_in(folder: Path, flush: str) -> AsyncIterator[Group]:
    loop = asyncio.get_running_loop()
    group = Group(folder, flush)
    group.client = Client(network=TcpNetwork(), clock=SystemClock(), timers=loop)
    try:
        yield group
    finally:
        group.master.abandon()
        group.slave.abandon()
        await group.client.close()


def log_in(process: BrokerProcess) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((process.store / "commitlog").iterdir())}


def contents(log: dict[str, bytes], end: int) -> Iterator[bytes]:
    for name, data in log.items():
        yield data[: max(min(end - int(name), len(data)), 0)]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_logs_are_the_same_after_either_process_was_killed(tmp_path: Path, flush: str) -> None:
    async def scene() -> None:
        async with group_in(tmp_path, flush) as group:
            await group.start("master", "slave")
            await group.in_step()
            await group.in_sync()
            assert set(await group.send(300)) == {ResponseCode.SUCCESS}
            group.slave.kill()
            alone = await group.send(100)
            assert set(alone) == {ResponseCode.SLAVE_NOT_AVAILABLE}
            await group.start("slave")
            await group.in_step()
            assert set(await group.send(150)) == {ResponseCode.SUCCESS}
            group.master.kill()
            await group.start("master")
            await group.in_step()
            await group.in_sync()
            assert set(await group.send(150)) == {ResponseCode.SUCCESS}
            end = await group.in_step()
            assert end > 2 * SEGMENT
            group.master.kill()
            group.slave.kill()
            whole = b"".join(contents(log_in(group.slave), end))
            assert b"".join(contents(log_in(group.master), end)) == whole
            bodies = {f"{number:06d}".encode() * 170 for number in range(1, group.sent + 1)}
            assert bodies == {message.body for message in iterate_log(whole)}

    asyncio.run(scene())


def iterate_log(log: bytes) -> Iterator[StoredMessage]:
    """Every message of a log, blanks left out."""
    for start in range(0, len(log), SEGMENT):
        segment = log[start : start + SEGMENT]
        positions, stop = find_records(segment, from_log=True)
        assert stop == len(segment)
        for position in positions.tolist():
            yield decode_record(segment, position)

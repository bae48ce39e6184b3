"""Many connections at once: idle ones, busy ones, a flood of heartbeats, rubbish."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any, Final

from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from fusee.wire.framing import encode_frame
from scripts.limits.bounds import Bound, Row, Scale
from scripts.limits.broker_process import KIB, MIB, broker
from scripts.limits.clients import (
    QUEUES,
    Peer,
    Sender,
    connect,
    heartbeat_request,
    percentile,
    send_request,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


async def idle_connections(scale: Scale) -> Row:
    with broker() as server:
        sender = Sender(server.address)
        await sender.send_for(count=20)
        before = server.memory_bytes
        begun = time.perf_counter()
        peers = await connect(server.address, scale.idle)
        for number, peer in enumerate(peers):
            peer.write(encode_frame(heartbeat_request(f"idle-{number}")))
        await until(lambda: all(peer.answers for peer in peers))
        took = time.perf_counter() - begun
        each = (server.memory_bytes - before) / len(peers)
        sender.latencies.clear()
        await sender.send_for(count=scale.probes)
        cpu, now = server.cpu_seconds, time.perf_counter()
        await asyncio.sleep(scale.seconds / 2)
        idle_cpu = (server.cpu_seconds - cpu) / (time.perf_counter() - now)
        lost = sum(peer.is_lost or peer.refusals > 0 for peer in peers)
        for peer in peers:
            peer.close()
        closed = await until(lambda: server.sockets < 50)
        await sender.client.close()
    return Row(
        f"{scale.idle:,} idle connections, each a client that has sent one heartbeat",
        (
            Bound("lost", lost, 0, ""),
            Bound("memory of each", each / KIB, 32, "KiB"),
            sender.p99_bound(50 * scale.slack),
            Bound("CPU while nothing happens", idle_cpu * 100, 5 * scale.slack, "% of a core"),
            Bound("forgotten after they left", closed, 5 * scale.slack, "s"),
        ),
        (f"connected and registered in {took:.1f} s",),
    )


async def busy_connections(scale: Scale) -> Row:
    latencies: list[float] = []
    end = 0.0

    with broker() as server:
        sender = Sender(server.address)
        await sender.send_for(count=20)
        frames: dict[Peer, bytes] = {}

        def again(peer: Peer) -> None:
            now = time.perf_counter()
            latencies.append(now - peer.sent_at)
            if now < end:
                peer.write(frames[peer])

        peers = await connect(server.address, scale.busy, lambda: Peer(again))
        for number, peer in enumerate(peers):
            frames[peer] = encode_frame(send_request(b"x" * KIB, number % QUEUES))
        begun = time.perf_counter()
        end = begun + scale.seconds
        for peer in peers:
            peer.write(frames[peer])
        await until(lambda: time.perf_counter() > end)
        await until(lambda: sum(peer.answers for peer in peers) == len(latencies) and _is_quiet(peers, end))
        counts = sorted(peer.answers for peer in peers)
        refused = sum(peer.refusals for peer in peers)
        for peer in peers:
            peer.close()
        await sender.client.close()
    mean = sum(counts) / len(counts)
    return Row(
        f"{scale.busy:,} busy connections, each sending 1 KiB as soon as it is answered",
        (
            Bound("refused", refused, 0, ""),
            Bound("p99", percentile(latencies, 0.99) * 1000, 1_000 * scale.slack, "ms"),
            Bound("mean progress over the least", mean / max(counts[0], 1e-9), 2 * scale.slack, "times"),
        ),
        (
            f"{sum(counts) / scale.seconds:,.0f} sends/s, median {percentile(latencies, 0.5) * 1000:.0f} ms",
            f"progress of one: {counts[0]} to {counts[-1]}",
        ),
    )


def _is_quiet(peers: Sequence[Peer], end: float) -> bool:
    """Whether every connection has the answer to its last request."""
    return all(peer.is_lost or peer.sent_at < end for peer in peers) and time.perf_counter() > end + 0.2


class Flooder(Peer):
    """Keeps heartbeats in flight; counts answers by their bytes, so that it costs next to nothing itself."""

    DEPTH: Final = 64

    def __init__(self, number: int, answer_size: int) -> None:
        super().__init__()
        self._chunk = encode_frame(heartbeat_request(f"flood-{number}")) * self.DEPTH
        self._answer_size = answer_size
        self._received = 0
        self.is_over = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.write(self._chunk)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        self.answers = self._received // self._answer_size
        if self._received % (self._answer_size * self.DEPTH) == 0 and not self.is_over:
            self.write(self._chunk)


async def heartbeat_flood(scale: Scale) -> Row:
    with broker() as server:
        sender = Sender(server.address)
        await sender.send_for(count=20)
        sizes: list[int] = []
        (measure,) = await connect(server.address, 1, lambda: _Measure(sizes))
        measure.write(encode_frame(heartbeat_request("flood-measure")) * 2)
        await until(lambda: len(sizes) == 2)
        numbers = iter(range(scale.flooders))
        sender.latencies.clear()
        await sender.send_for(count=scale.probes)
        calm = percentile(sender.latencies, 0.99)
        sender.latencies.clear()
        before = server.memory_bytes
        flooders = await connect(server.address, scale.flooders, lambda: Flooder(next(numbers), sizes[1]))
        begun = time.perf_counter()
        counted = sum(peer.answers for peer in flooders)
        await sender.send_for(seconds=scale.seconds)
        rate = (sum(peer.answers for peer in flooders) - counted) / (time.perf_counter() - begun)
        grown = server.memory_bytes - before
        starved = sum(peer.answers == 0 for peer in flooders)
        for peer in (*flooders, measure):
            peer.close()
        await sender.client.close()
    return Row(
        f"A heartbeat flood: {scale.flooders} clients with {Flooder.DEPTH} under way each",
        (
            Bound("clients without answer", starved, 0, ""),
            sender.p99_bound(250 * scale.slack),
            Bound("memory", grown / MIB, 64, "MiB"),
        ),
        (f"{rate:,.0f} heartbeats/s served; p99 of sends without them {calm * 1000:.1f} ms",),
    )


class _Measure(Peer):
    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self._sizes = sizes

    def data_received(self, data: bytes) -> None:
        while len(data) >= 4:
            size = 4 + int.from_bytes(data[:4], "big")
            self._sizes.append(size)
            data = data[size:]


async def rubbish(scale: Scale) -> Row:
    chance = random.Random(7)
    good = encode_frame(heartbeat_request("rubbish"))

    def one(number: int) -> bytes:
        kinds = (
            b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
            chance.randbytes(500),
            (2**31 - 1).to_bytes(4, "big") + b"\0\0\0\x10" + b"x" * 100,
            b"\0\0\0\x08\0\0\x10\0" + b"x" * 100,
            b"\0\0\0\x14\0\0\0\x10" + b'{"code":"no JSON' + b"\0" * 8,
            encode_frame(Command.request(9_999)),
            encode_frame(Command.request(RequestCode.SEND_MESSAGE_V2)),
            good[: len(good) // 2],
        )
        return kinds[number % len(kinds)]

    with broker() as server:
        sender = Sender(server.address)
        await sender.send_for(count=20)
        before = server.memory_bytes
        sender.latencies.clear()
        peers = await connect(server.address, scale.rubbish)
        probe = asyncio.create_task(sender.send_for(count=scale.probes))
        for number, peer in enumerate(peers):
            peer.write(one(number))
        halves = {number for number in range(len(peers)) if number % 8 == 7}
        settled = await until(
            lambda: all(peer.is_lost or peer.refusals for number, peer in enumerate(peers) if number not in halves)
        )
        await probe
        grown = server.memory_bytes - before
        closed = sum(peer.is_lost for peer in peers)
        for peer in peers:
            peer.close()
        server.check_alive()
        await sender.client.close()
    return Row(
        f"{scale.rubbish:,} connections that send rubbish: HTTP, noise, 2 GiB frames, broken headers, half frames",
        (
            Bound("refused or cut, all of them", settled, 5 * scale.slack, "s"),
            sender.p99_bound(250 * scale.slack),
            Bound("memory", grown / MIB, 64, "MiB"),
        ),
        (f"{closed:,} cut; answers to the rest name the error; half frames are cut after 60 s",),
    )

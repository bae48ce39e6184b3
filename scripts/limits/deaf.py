"""Clients that ask and never read the answers."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Final

from fusee.transport.link import LinkLimits, parse_address
from fusee.wire.framing import encode_frame
from scripts.limits.bounds import Bound, Row, Scale
from scripts.limits.broker_process import KIB, MIB, broker
from scripts.limits.clients import Sender, fill, pull_request, until

PULL_SIZE: Final = 250 * KIB
BUFFER_MAX: Final = LinkLimits().write_buffer_max


def deaf_socket(address: str) -> socket.socket:
    """A connection whose owner never reads."""
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
    deaf.connect(parse_address(address))
    deaf.setblocking(False)
    return deaf


def push(deaf: socket.socket, data: bytes) -> int:
    """Write what is taken now; how much, or -1 when the connection is gone."""
    try:
        return deaf.send(data)
    except BlockingIOError:
        return 0
    except OSError:
        return -1


async def pulls_without_reading(scale: Scale) -> Row:
    idle_seconds = 1
    with broker({"serverChannelMaxIdleTimeSeconds": str(idle_seconds)}) as server:
        sender = Sender(server.address)
        await fill(sender, 1, 32, PULL_SIZE // 32)
        await fill(sender, 0, 1_500, 100)  # what any load needs once, such as tables for hashes, is not this client's
        before, sockets = server.memory_bytes, server.sockets
        sender.latencies.clear()
        deaf = deaf_socket(server.address)
        frame = encode_frame(pull_request(1))
        peak = before
        ends = asyncio.Event()
        probe = asyncio.create_task(sender.send_until(ends))
        # One pull at a time: the broker stops reading at a megabyte unread, long before the bound for late answers.
        for _ in range(200):
            push(deaf, frame)
            await asyncio.sleep(0.002)
            peak = max(peak, server.memory_bytes)
        cut_after = await until(lambda: server.sockets <= sockets)
        peak = max(peak, server.memory_bytes)
        ends.set()
        await probe
        server.check_alive()
        deaf.close()
        await sender.client.close()
    return Row(
        f"A client that pulls {200 * PULL_SIZE // MIB} MiB and never reads",
        (
            Bound("memory", (peak - before) / MIB, 32, "MiB"),
            Bound(f"cut, idle time-out being {idle_seconds} s", cut_after, idle_seconds * 1.25 + 1 * scale.slack, "s"),
            sender.p99_bound(50 * scale.slack),
        ),
        ("what is unread stays in the mapped log, and is not copied for it",),
    )


async def holds_without_reading(scale: Scale) -> Row:
    with broker() as server:
        sender = Sender(server.address)
        await fill(sender, 0, 5, KIB)
        await fill(sender, 1, 1, KIB)
        before, sockets = server.memory_bytes, server.sockets
        deaf = deaf_socket(server.address)
        deaf.setblocking(True)
        deaf.sendall(encode_frame(pull_request(1, queue_offset=1, hold_ms=60_000)) * scale.held)
        deaf.setblocking(False)
        sender.latencies.clear()
        await sender.send_for(count=scale.probes)
        begun = time.perf_counter()
        await fill(sender, 1, 1, PULL_SIZE)
        peak = server.memory_bytes
        cut_after = await until(lambda: server.sockets <= sockets)
        peak = max(peak, server.memory_bytes)
        took = time.perf_counter() - begun
        await sender.send_for(count=scale.probes)
        server.check_alive()
        deaf.close()
        await sender.client.close()
    return Row(
        f"{scale.held:,} held pulls of a client that never reads; then 250 KiB arrive for all of them",
        (
            Bound("memory", (peak - before) / MIB, BUFFER_MAX / MIB + 32, "MiB"),
            Bound(f"cut at {BUFFER_MAX // MIB} MiB unread", cut_after, 2 * scale.slack, "s"),
            sender.p99_bound(50 * scale.slack),
        ),
        (f"{scale.held * PULL_SIZE / MIB:,.0f} MiB were asked for; over in {took * 1000:.0f} ms",),
    )

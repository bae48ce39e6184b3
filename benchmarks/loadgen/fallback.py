"""The load generator in Python, where there is no C compiler: options and JSON line of loadgen.c."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import uvloop

from benchmarks.frames import OPAQUE

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPAQUE_KEY: Final = b'"opaque":'
_CODE_KEY: Final = b'"code":'
_DIGITS: Final = frozenset(b"-0123456789")
SAMPLES_MAX: Final = 1_000_000


class Template:
    """A frame split at its opaque, so that a request is one concatenation."""

    __slots__ = ("_binary", "_head", "_tail")

    def __init__(self, frame: bytes) -> None:
        self._binary = frame[4] == 1
        start = 13 if self._binary else frame.index(_OPAQUE_KEY) + len(_OPAQUE_KEY)
        self._head = frame[:start]
        self._tail = frame[start + (4 if self._binary else len(str(OPAQUE))) :]

    def request(self, slot: int) -> bytes:
        opaque = struct.pack(">i", OPAQUE + slot) if self._binary else b"%d" % (OPAQUE + slot)
        return self._head + opaque + self._tail


class Tally:
    """What all connections count together; latencies are kept up to a bound."""

    def __init__(self, expected_code: int | None) -> None:
        self.expected_code = expected_code
        self.recording = False
        self.requests = 0
        self.unexpected = 0
        self.bytes_in = 0
        self.latencies_s: list[float] = []

    def percentile_us(self, share: float) -> float:
        if not self.latencies_s:
            return 0.0
        self.latencies_s.sort()
        return self.latencies_s[min(len(self.latencies_s) - 1, int(len(self.latencies_s) * share))] * 1e6


class Connection(asyncio.Protocol):
    """Keeps `outstanding` requests on the wire and answers each batch of responses with one write."""

    def __init__(self, templates: Sequence[Template], outstanding: int, tally: Tally) -> None:
        self._templates = templates
        self._next = 0
        self._sent_s = [0.0] * outstanding
        self._tally = tally
        self._rest = b""
        self._transport: asyncio.WriteTransport | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._send(range(len(self._sent_s)), time.perf_counter())

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True

    def data_received(self, data: bytes) -> None:
        tally = self._tally
        tally.bytes_in += len(data)
        data = self._rest + data if self._rest else data
        now = time.perf_counter()
        at, size = 0, len(data)
        freed = []
        while size - at >= 8:
            length, word = struct.unpack_from(">II", data, at)
            end = at + 4 + length
            if end > size:
                break
            code, opaque = _code_and_opaque(data, at + 8, word)
            slot = opaque - OPAQUE
            freed.append(slot)
            if tally.recording:
                tally.requests += 1
                if tally.expected_code is not None and code != tally.expected_code:
                    tally.unexpected += 1
                if len(tally.latencies_s) < SAMPLES_MAX:
                    tally.latencies_s.append(now - self._sent_s[slot])
            at = end
        self._rest = data[at:]
        if freed:
            self._send(freed, now)

    def _send(self, slots: Sequence[int], now: float) -> None:
        requests = []
        for slot in slots:
            requests.append(self._templates[self._next % len(self._templates)].request(slot))
            self._next += 1
            self._sent_s[slot] = now
        if self._transport is not None:
            self._transport.write(b"".join(requests))


def _code_and_opaque(data: bytes, start: int, word: int) -> tuple[int, int]:
    if word >> 24 == 1:
        code, opaque = struct.unpack_from(">hxxxi", data, start)
        return int(code), int(opaque)
    return _number(data, _CODE_KEY, start), _number(data, _OPAQUE_KEY, start)


def _number(data: bytes, key: bytes, start: int) -> int:
    first = last = data.index(key, start) + len(key)
    while data[last] in _DIGITS:
        last += 1
    return int(data[first:last])


def _read_frames(path: Path) -> list[Template]:
    content = path.read_bytes()
    templates = []
    at = 0
    while at + 4 <= len(content):
        (length,) = struct.unpack_from(">I", content, at)
        templates.append(Template(content[at + 4 : at + 4 + length]))
        at += 4 + length
    return templates


def _server_cpu_s(pid: int) -> float:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def _machine_cpu_s() -> float:
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]]
    except OSError:
        return 0.0
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _own_cpu_s() -> float:
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


async def measure(options: argparse.Namespace) -> dict[str, object]:
    """One closed-loop run against 127.0.0.1."""
    tally = Tally(options.expected_code)
    templates = _read_frames(options.frames)
    loop = asyncio.get_running_loop()
    connections = []
    for _ in range(options.connections):
        _, connection = await asyncio.wait_for(
            loop.create_connection(
                lambda: Connection(templates, options.outstanding, tally), "127.0.0.1", options.port
            ),
            timeout=5.0,
        )
        connections.append(connection)
    await asyncio.sleep(options.warm_up_s)
    tally.recording = True
    bytes_before = tally.bytes_in
    machine_cpu, server_cpu, own_cpu = _machine_cpu_s(), _server_cpu_s(options.pid), _own_cpu_s()
    start = time.perf_counter()
    await asyncio.sleep(options.seconds)
    seconds = time.perf_counter() - start
    server_cpu, own_cpu = _server_cpu_s(options.pid) - server_cpu, _own_cpu_s() - own_cpu
    other_cpu = max(0.0, _machine_cpu_s() - machine_cpu - server_cpu - own_cpu)
    tally.recording = False
    if any(connection.lost for connection in connections):
        raise SystemExit("loadgen: the server closed a connection")
    return {
        "generator": "python",
        "connections": options.connections,
        "outstanding": options.outstanding,
        "seconds": seconds,
        "requests": tally.requests,
        "unexpected": tally.unexpected,
        "per_second": tally.requests / seconds,
        "server_cpu_us": server_cpu * 1e6 / tally.requests if tally.requests else 0.0,
        "server_cores": server_cpu / seconds,
        "generator_cores": own_cpu / seconds,
        "other_cores": other_cpu / seconds,
        "p50_us": tally.percentile_us(0.5),
        "p99_us": tally.percentile_us(0.99),
        "p999_us": tally.percentile_us(0.999),
        "megabytes_in": (tally.bytes_in - bytes_before) / 1e6,
    }


def main() -> None:
    """The command line of loadgen.c."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-p", dest="port", type=int, required=True)
    parser.add_argument("-f", dest="frames", type=Path, required=True)
    parser.add_argument("-c", dest="connections", type=int, default=1)
    parser.add_argument("-w", dest="outstanding", type=int, default=1)
    parser.add_argument("-u", dest="warm_up_s", type=float, default=1.0)
    parser.add_argument("-t", dest="seconds", type=float, default=5.0)
    parser.add_argument("-P", dest="pid", type=int, default=0)
    parser.add_argument("-e", dest="expected_code", type=int, default=None)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(measure(options))))


if __name__ == "__main__":
    main()

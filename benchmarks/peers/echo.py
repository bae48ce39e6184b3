"""The bare uvloop echo: what a Python server costs before it does anything.

Two forms. `frames` reads only the length and the opaque of each frame, answers it with a fixed minimal
response that carries the same opaque, and writes once per read: the least that any server of this protocol
does. `bytes` writes back what it reads without looking at it: the floor of the event loop and the kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
from typing import Final, cast

import uvloop

_OPAQUE_KEY: Final = b'"opaque":'
_JSON_HEAD: Final = b'{"code":0,"flag":1,"language":"PYTHON","opaque":'
_JSON_TAIL: Final = b',"serializeTypeCurrentRPC":"JSON","version":513}'
_BINARY_HEAD: Final = b"\x00\x00\x00\x19\x01\x00\x00\x15\x00\x00\x03\x02\x01"
_BINARY_TAIL: Final = b"\x00\x00\x00\x01" + bytes(8)


class EchoBytes(asyncio.Protocol):
    """Writes back what it reads."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast("asyncio.WriteTransport", transport).write

    def data_received(self, data: bytes) -> None:
        self._write(data)


class EchoFrames(asyncio.Protocol):
    """Answers each frame with a minimal response of the same opaque, one write per read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast("asyncio.WriteTransport", transport).write
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        responses: list[bytes] = []
        while size - at >= 8:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > size:
                break
            if data[at + 4]:
                responses += (_BINARY_HEAD, data[at + 13 : at + 17], _BINARY_TAIL)
            else:
                start = data.index(_OPAQUE_KEY, at, end) + 9
                digits = data[start : data.index(b",", start, end)]
                size_word = (4 + len(_JSON_HEAD) + len(digits) + len(_JSON_TAIL)).to_bytes(4, "big")
                header_word = (len(_JSON_HEAD) + len(digits) + len(_JSON_TAIL)).to_bytes(4, "big")
                responses += (size_word, header_word, _JSON_HEAD, digits, _JSON_TAIL)
            at = end
        self._rest = data[at:]
        if responses:
            self._write(b"".join(responses))


async def serve(form: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = await loop.create_server(EchoBytes if form == "bytes" else EchoFrames, "127.0.0.1", port)
    print(f"listening on 127.0.0.1:{port}", flush=True)
    gc.freeze()
    await stopped.wait()
    server.close()


def main() -> None:
    """`python -m benchmarks.peers.echo {bytes,frames} PORT`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("form", choices=("bytes", "frames"))
    parser.add_argument("port", type=int)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options.form, options.port))


if __name__ == "__main__":
    main()

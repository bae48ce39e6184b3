"""A connection for programs that block: requests out, several at a time, and answers in the order they come.

Spark's workers have no event loop and read one thing at a time, so this is a socket and the frames of `fusee.wire`.
The body of an answer is received into memory of its own, with no copy on the way: answers are as large as the broker
likes, and what is decoded from them is made of that very memory.

Only answers are expected. Whatever else the peer says is passed over.
"""

from __future__ import annotations

import select
import socket
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fusee.errors import (
    ConfigError,
    ConnectError,
    ConnectionLostError,
    FrameTooLargeError,
    ProtocolError,
    RequestTimeoutError,
)
from fusee.pipeline.spare_memory import SpareMemory
from fusee.wire.framing import FrameLimits, encode_frame, encode_head
from fusee.wire.header_binary import LayoutMemory, decode_binary_header
from fusee.wire.header_json import decode_json_header

if TYPE_CHECKING:
    import ssl

    from fusee.wire.command import Command

_WORDS: Final = Struct(">iI")
_HEAD_SIZE: Final = 512  # a frame's words, the header of most answers, and the first bytes of the body
_RECEIVE_BUFFER_SIZE: Final = 4 << 20
_OPAQUE_MASK: Final = 0x7FFFFFFF
LIMITS: Final = FrameLimits(frame_size_max=80 << 20)


class Answer(NamedTuple):
    """What came back: the command without its body, and the body in memory of its own."""

    command: Command
    body: memoryview


class BlockingLink:
    """One connection. Not for several threads at once."""

    def __init__(self, address: str, *, timeout_ms: int, tls: ssl.SSLContext | None = None) -> None:
        """Connect. Raises ConnectError with the cause; ConfigError when the address is none."""
        self.address = address
        self._timeout_ms = timeout_ms
        host, port = host_and_port(address)
        try:
            plain = socket.create_connection((host, port), timeout_ms / 1000)
        except OSError as error:
            raise ConnectError(f"cannot connect to {address}: {error}; is a server running there?") from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_SIZE)
            self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        except (OSError, ValueError) as error:
            plain.close()
            raise ConnectError(f"no TLS connection to {address}: {error}; does the server speak TLS?") from error
        self._is_tls = tls is not None
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._head = bytearray(_HEAD_SIZE)
        self._ahead: bytes = b""
        self._layouts = LayoutMemory()
        self._opaque = 0
        self._expected: set[int] = set()
        self._early: dict[int, Answer] = {}
        self._spare = SpareMemory()

    @property
    def is_idle(self) -> bool:
        """Whether no answer is outstanding: only then may somebody else go on with this connection."""
        return not self._expected

    @property
    def is_of_this_machine(self) -> bool:
        """Whether both ends have the same address."""
        return bool(self._socket.getpeername()[0] == self._socket.getsockname()[0])

    def has_answer(self) -> bool:
        """Whether something has come, so that `receive` need hardly wait. With TLS that cannot be told: False."""
        return bool(self._early or self._ahead) or (not self._is_tls and bool(self._poll.poll(0)))

    def close(self) -> None:
        self._socket.close()

    def send(self, command: Command, body: memoryview | None = None) -> int:
        """Send a request; the number by which its answer is asked for. `body` is sent from where it lies."""
        self._opaque = opaque = (self._opaque + 1) & _OPAQUE_MASK
        command.opaque = opaque
        try:
            if body is None:
                self._socket.sendall(encode_frame(command))
            else:
                self._send_parts(command, body)
        except TimeoutError as error:
            raise RequestTimeoutError(
                f"{self.address} took no request for {self._timeout_ms} ms", address=self.address
            ) from error
        except OSError as error:
            raise ConnectionLostError(
                f"the connection to {self.address} broke: {error}", address=self.address
            ) from error
        self._expected.add(opaque)
        return opaque

    def _send_parts(self, command: Command, body: memoryview) -> None:
        command.body = body  # type: ignore[assignment]
        head = encode_head(command)  # which asks only for the size of the body
        sent = 0
        if not self._is_tls:
            sent = self._socket.sendmsg([head, body])
        if sent < len(head):
            self._socket.sendall(head[sent:])
            sent = len(head)
        self._socket.sendall(body[sent - len(head) :])

    def receive(self, opaque: int, *, reuse: bool = False) -> Answer:
        """The answer to this request; answers to others that come first are kept for them.

        With `reuse` the body lies in memory that the next such call overwrites: fresh memory for every large answer
        costs as much as receiving it. Only for one request at a time.

        Raises RequestTimeoutError when nothing comes in time, ConnectionLostError, or ProtocolError. The connection is
        of no more use then.
        """
        while opaque not in self._early:
            answer = self._read(reuse)
            number = answer.command.opaque
            if answer.command.is_response and number in self._expected:
                self._early[number] = answer
        self._expected.remove(opaque)
        return self._early.pop(opaque)

    def request(self, command: Command) -> Answer:
        """Send and wait for the answer."""
        return self.receive(self.send(command))

    def _read(self, reuse: bool) -> Answer:
        try:
            return self._read_frame(reuse)
        except TimeoutError as error:
            raise RequestTimeoutError(
                f"{self.address} did not answer within {self._timeout_ms} ms", address=self.address
            ) from error
        except OSError as error:
            raise ConnectionLostError(
                f"the connection to {self.address} broke: {error}", address=self.address
            ) from error

    def _read_frame(self, reuse: bool) -> Answer:
        head = self._ahead
        while len(head) < _WORDS.size:
            head += self._receive_some()
        length, word = _WORDS.unpack_from(head)
        form, header_size = word >> 24, word & 0xFFFFFF
        if length > LIMITS.frame_size_max or header_size > LIMITS.header_size_max:
            raise FrameTooLargeError(
                f"{self.address} answered with {length} bytes, limit {LIMITS.frame_size_max}, and a header of "
                f"{header_size}, limit {LIMITS.header_size_max}; is it a broker or name server?"
            )
        if length < 4 or header_size > length - 4 or form > 1:
            raise ProtocolError(f"{self.address} does not speak RocketMQ's protocol: frame {length}, word {word:#x}")
        body_start = _WORDS.size + header_size
        while len(head) < body_start:
            head += self._receive_some()
        header = head[_WORDS.size : body_start]
        command = decode_json_header(header) if form == 0 else decode_binary_header(header, self._layouts)
        end = 4 + length
        self._ahead = head[end:]
        body = self._memory(end - body_start, reuse)
        got = min(len(head), end) - body_start
        body[:got] = head[body_start : body_start + got]
        while got < len(body):
            received = self._socket.recv_into(body[got:])
            if not received:
                raise ConnectionLostError(
                    f"{self.address} closed the connection in the middle of an answer", address=self.address
                )
            got += received
        return Answer(command, body)

    def _memory(self, size: int, reuse: bool) -> memoryview:
        # not zeroed: all of it is overwritten
        if not reuse:
            return memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type]
        return self._spare.of(size)

    def _receive_some(self) -> bytes:
        received = self._socket.recv_into(self._head)
        if not received:
            raise ConnectionLostError(f"{self.address} closed the connection", address=self.address)
        return bytes(self._head[:received])


def host_and_port(address: str) -> tuple[str, int]:
    """(host, port) of `host:port` or `[v6]:port`. Raises ConfigError for anything else."""
    host, separator, port = address.strip().rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"{address!r} is no address; write HOST:PORT, e.g. 127.0.0.1:9876")
    return host.removeprefix("[").removesuffix("]"), int(port)


def client_context(*, ca_file: str = "", certificate: str = "", key: str = "", verify: bool = True) -> ssl.SSLContext:
    """The TLS settings of a client: whom it trusts, and who it says it is.

    Raises ConfigError when a file is missing or wrong.
    """
    import ssl  # takes long to load, and few need it

    try:
        context = ssl.create_default_context(cafile=ca_file or None)
        if certificate:
            context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use the TLS files {ca_file!r}, {certificate!r}, {key!r}: {error}") from error
    if ca_file or not verify:
        # Certificates of one's own authority seldom name the addresses that brokers announce: that it signed them is
        # what counts. Of a public authority anybody has one, so the name counts, too.
        context.check_hostname = False
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    return context

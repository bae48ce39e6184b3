"""The same over real sockets on loopback: TLS beside plain, half-closed sockets, crowds."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fusee.clock import SystemClock
from fusee.errors import ConfigError, ConnectError, ConnectionLostError
from fusee.service import run as run_on_uvloop
from fusee.transport.client import Client
from fusee.transport.interfaces import LinkListener
from fusee.transport.link import parse_address
from fusee.transport.router import Router
from fusee.transport.server import Server, ServerSettings
from fusee.transport.tcp import ServerTls, TcpNetwork, TlsMode, server_context
from fusee.wire.command import Command
from fusee.wire.framing import FrameDecoder, encode_frame
from tests.transport.world import ECHO, Events, echo


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_on_uvloop(test())


@asynccontextmanager
async def serving(
    network: TcpNetwork | None = None,
    settings: ServerSettings | None = None,
    listeners: tuple[LinkListener, ...] = (),
) -> AsyncIterator[Server]:
    router = Router()
    router.add(ECHO, lambda request, link: request.reply(body=request.body), router.lane("echo", 100))
    server = Server(
        network=network or TcpNetwork(),
        router=router,
        clock=SystemClock(),
        timers=asyncio.get_running_loop(),
        settings=settings,
        listeners=listeners,
    )
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def calling(network: TcpNetwork | None = None) -> AsyncIterator[Client]:
    client = Client(network=network or TcpNetwork(), clock=SystemClock(), timers=asyncio.get_running_loop())
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that lives as long as the tests."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fusee test")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_path, key_path


def test_request_over_tcp_gets_its_answer() -> None:
    async def scenario() -> None:
        async with serving() as server, calling() as client:
            answers = await asyncio.gather(*(client.request(server.address, echo(b"%d" % i)) for i in range(500)))
            assert [answer.body for answer in answers] == [b"%d" % i for i in range(500)]
            assert len(server.links) == 1

    run(scenario)


def test_large_body_crosses_whole() -> None:
    async def scenario() -> None:
        async with serving() as server, calling() as client:
            body = bytes(range(256)) * 40_000
            assert (await client.request(server.address, echo(body), timeout=20)).body == body

    run(scenario)


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
def test_tls_and_plain_share_a_port_as_the_mode_says(certificate: tuple[Path, Path], mode: TlsMode) -> None:
    async def scenario() -> None:
        context = server_context(*certificate)
        trusted = ssl.create_default_context(cafile=str(certificate[0]))
        async with (
            serving(TcpNetwork(server_tls=ServerTls(context, mode))) as server,
            calling(TcpNetwork(client_tls=trusted)) as secret,
            calling() as plain,
        ):
            answer = await secret.request(server.address, echo(b"over TLS"))
            assert answer.body == b"over TLS"
            if mode is TlsMode.PERMISSIVE:
                assert (await plain.request(server.address, echo(b"plain"))).body == b"plain"
            else:
                with pytest.raises(ConnectionLostError):
                    await plain.request(server.address, echo())
            assert (await secret.request(server.address, echo(b"still"))).body == b"still"

    run(scenario)


def test_tls_client_of_a_plain_server_is_refused_with_a_hint(certificate: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        events = Events()
        trusted = ssl.create_default_context(cafile=str(certificate[0]))
        async with (
            serving(listeners=(events,)) as server,
            calling(TcpNetwork(client_tls=trusted)) as secret,
            calling() as plain,
        ):
            with pytest.raises((ConnectError, ConnectionLostError)):
                await secret.request(server.address, echo())
            assert "TLS handshake" in str(events.errors[0])
            assert (await plain.request(server.address, echo())).code == 0

    run(scenario)


def test_garbage_handshake_and_silent_connection_hurt_nobody(certificate: tuple[Path, Path]) -> None:
    async def scenario() -> None:
        tls = ServerTls(server_context(*certificate), first_byte_timeout=0.05)
        async with serving(TcpNetwork(server_tls=tls)) as server, calling() as plain:
            host, port = parse_address(server.address)
            for first in (b"\x16\x03\x01\x00\x05hello", b""):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(first)
                await asyncio.wait_for(reader.read(), 5)  # the server ends it: bad handshake, or silence
                writer.close()
            assert (await plain.request(server.address, echo())).code == 0

    run(scenario)


def test_certificate_that_cannot_be_read_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing.pem"):
        server_context(tmp_path / "missing.pem", tmp_path / "key.pem")


def test_half_closed_socket_still_gets_the_answers_to_what_it_sent() -> None:
    async def scenario() -> None:
        async with serving() as server:
            reader, writer = await asyncio.open_connection(*parse_address(server.address))
            writer.write(encode_frame(echo(b"last words", opaque=5)))
            writer.write_eof()
            data = await asyncio.wait_for(reader.read(), 5)
            (answer,) = FrameDecoder().feed(data)
            assert (answer.opaque, answer.body) == (5, b"last words")
            writer.close()

    run(scenario)


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 100 * 1024 * 1024),
        struct.pack(">iI", 100, 9 << 24),
        struct.pack(">iI", 20, 16) + b"{" * 16,
        b"\x00" * 64,
    ],
)
def test_garbage_closes_its_connection_and_no_other(garbage: bytes) -> None:
    async def scenario() -> None:
        async with serving() as server, calling() as client:
            await client.request(server.address, echo())
            reader, writer = await asyncio.open_connection(*parse_address(server.address))
            writer.write(garbage)
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
            assert (await client.request(server.address, echo(b"fine"))).body == b"fine"

    run(scenario)


def open_and_drop(address: tuple[str, int], count: int) -> None:
    """Connections that end in every impolite way: silent, in the middle of a frame, by reset."""
    sockets = [socket.create_connection(address) for _ in range(count)]
    for index, opened in enumerate(sockets):
        if index % 3 == 0:
            opened.send(b"\x00\x00")
        if index % 3 == 1:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        opened.close()


def test_ten_thousand_connections_opened_and_dropped_leave_nothing() -> None:
    async def scenario() -> None:
        async with serving() as server, calling() as client:
            address = parse_address(server.address)
            await client.request(server.address, echo())
            for number in range(100):
                await asyncio.to_thread(open_and_drop, address, 100)
                assert (await client.request(server.address, echo(b"%d" % number))).code == 0
            async with asyncio.timeout(20):
                while len(server.links) > 1:
                    await client.request(server.address, echo())
            assert (await client.request(server.address, echo(b"alive"))).body == b"alive"

    run(scenario)


def test_port_in_use_says_so() -> None:
    async def scenario() -> None:
        async with serving() as server:
            other = Server(
                network=TcpNetwork(),
                router=Router(),
                clock=SystemClock(),
                timers=asyncio.get_running_loop(),
            )
            with pytest.raises(ConnectError, match=r"cannot listen on 127.0.0.1:\d+: .*another server"):
                await other.start(*parse_address(server.address))

    run(scenario)


def test_server_stops_while_clients_talk() -> None:
    async def scenario() -> None:
        async with calling() as client:
            async with serving() as server:
                address = server.address
                await client.request(address, echo())
            with pytest.raises((ConnectError, ConnectionLostError)):
                await client.request(address, Command(ECHO))

    run(scenario)

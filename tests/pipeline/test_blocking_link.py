"""A blocking connection against peers that answer early, late, in pieces, wrongly, or not at all."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fusee.errors import (
    ConfigError,
    ConnectError,
    ConnectionLostError,
    FrameTooLargeError,
    ProtocolError,
    RequestTimeoutError,
)
from fusee.pipeline.blocking_link import BlockingLink, client_context, host_and_port
from fusee.wire.command import Command
from fusee.wire.framing import FrameDecoder, HeaderForm, encode_frame


@contextmanager
def peer(talk: Callable[[socket.socket], None], context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server whose one connection is talked to by this function; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            try:
                with context.wrap_socket(connection, server_side=True) if context else connection as open_one:
                    talk(open_one)
            except OSError:
                pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join()


def requests(connection: socket.socket, count: int) -> list[Command]:
    decoder = FrameDecoder()
    found: list[Command] = []
    while len(found) < count:
        found += decoder.feed(connection.recv(65536))
    return found


def echo(connection: socket.socket) -> None:
    for request in requests(connection, 1):
        connection.sendall(encode_frame(request.reply(body=request.body)))
    connection.recv(1)


def test_an_answer_of_any_size_comes_back() -> None:
    for size in (0, 1, 400, 600, 3_000_000):
        with peer(echo) as address:
            link = BlockingLink(address, timeout_ms=5000)
            body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
            answer = link.request(Command.request(1, body=body))
            assert bytes(answer.body) == body
            assert link.is_idle
            link.close()


def test_whether_an_answer_is_there_is_told_without_waiting_for_it() -> None:
    go_on = threading.Event()

    def talk(connection: socket.socket) -> None:
        first, second = requests(connection, 2)
        go_on.wait()
        connection.sendall(encode_frame(second.reply()) + encode_frame(first.reply()))
        connection.recv(1)

    with peer(talk) as address:
        link = BlockingLink(address, timeout_ms=5000)
        first, second = link.send(Command.request(1)), link.send(Command.request(1))
        assert not link.has_answer()
        go_on.set()
        link.receive(first)
        assert link.has_answer()  # that of the second, which came before
        link.receive(second)
        assert not link.has_answer()
        link.close()


def test_answers_in_another_order_and_foreign_frames_are_told_apart() -> None:
    def talk(connection: socket.socket) -> None:
        first, second, third = requests(connection, 3)
        late = encode_frame(Command.request(40))
        unknown = Command(0, 999, 1, body=b"nobody asked")
        frames = [
            late,
            encode_frame(third.reply(body=b"3")),
            encode_frame(unknown),
            encode_frame(first.reply(body=b"1"), HeaderForm.BINARY),
            encode_frame(second.reply(body=b"2" * 5000)),
        ]
        for byte in b"".join(frames)[:700]:
            connection.sendall(bytes([byte]))
        connection.sendall(b"".join(frames)[700:])
        connection.recv(1)

    with peer(talk) as address:
        link = BlockingLink(address, timeout_ms=5000)
        numbers = [link.send(Command.request(11)) for _ in range(3)]
        assert [bytes(link.receive(number).body) for number in numbers] == [b"1", b"2" * 5000, b"3"]
        assert link.is_idle
        link.close()


def test_memory_is_used_again_only_when_asked() -> None:
    def talk(connection: socket.socket) -> None:
        for _ in range(3):
            for request in requests(connection, 1):
                connection.sendall(encode_frame(request.reply(body=request.body)))
        connection.recv(1)

    with peer(talk) as address:
        link = BlockingLink(address, timeout_ms=5000)
        kept = link.request(Command.request(1, body=b"a" * 1000)).body
        first = link.receive(link.send(Command.request(1, body=b"b" * 1000)), reuse=True).body
        second = link.receive(link.send(Command.request(1, body=b"c" * 1000)), reuse=True).body
        assert (bytes(kept), bytes(first), bytes(second)) == (b"a" * 1000, b"c" * 1000, b"c" * 1000)
        link.close()


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"", ConnectionLostError),
        (b"\0\0\1\0\0\0\0\x10abc", ConnectionLostError),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", FrameTooLargeError),
        (b"\0\0\0\2\0\0\0\0", ProtocolError),
        (b"\0\0\0\x10\7\0\0\4" + b"x" * 12, ProtocolError),
        (b"\0\0\0\x10\0\0\0\4" + b"nope" + b"x" * 8, ProtocolError),
    ],
)
def test_what_is_no_answer_is_said(said: bytes, error: type[Exception]) -> None:
    def talk(connection: socket.socket) -> None:
        requests(connection, 1)
        connection.sendall(said)

    with peer(talk) as address:
        link = BlockingLink(address, timeout_ms=5000)
        with pytest.raises(error):
            link.request(Command.request(1))
        link.close()


def test_silence_is_a_timeout() -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.recv(1)

    with peer(talk) as address:
        link = BlockingLink(address, timeout_ms=50)
        with pytest.raises(RequestTimeoutError, match="50 ms"):
            link.request(Command.request(1))
        assert not link.is_idle
        link.close()


def test_nobody_there_and_wrong_addresses() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(ConnectError, match="is a server running there"):
        BlockingLink(address, timeout_ms=500)
    for wrong in ("host", "host:", "host:x", "host:99999"):
        with pytest.raises(ConfigError, match="HOST:PORT"):
            host_and_port(wrong)
    assert host_and_port("[::1]:9876") == ("::1", 9876)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of a server at 127.0.0.1, and its key."""
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
    (folder / "cert.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


def test_tls(certificate: tuple[Path, Path]) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    for trusting in (client_context(ca_file=str(certificate[0])), client_context(verify=False)):
        with peer(echo, server) as address:
            link = BlockingLink(address, timeout_ms=5000, tls=trusting)
            assert bytes(link.request(Command.request(1, body=b"secret" * 100_000)).body) == b"secret" * 100_000
            link.close()
    with peer(echo, server) as address, pytest.raises(ConnectError, match="TLS"):
        BlockingLink(address, timeout_ms=5000, tls=client_context())
    assert client_context().check_hostname
    with pytest.raises(ConfigError, match="TLS files"):
        client_context(ca_file="/does/not/exist.pem")

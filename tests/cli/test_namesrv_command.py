"""`fusee namesrv` as a person runs it: a real process, real signals, real messages."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fusee.wire.command import Command
from fusee.wire.framing import FrameDecoder, encode_frame


def command(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fusee", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200", **environment},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    stdout, stderr = process.communicate(timeout=30)
    return process.returncode, stdout, stderr


@contextmanager
def name_server(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]:
    process = command("namesrv", "--listen", "127.0.0.1:0", "--kv-path", "", *arguments, **environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"name server listening on (127\.0\.0\.1):(\d+)", line)
        assert found is not None, line
        yield process, (found[1], int(found[2]))
    finally:
        process.kill()
        process.communicate()


def ask(connection: socket.socket, request: Command) -> Command:
    connection.sendall(encode_frame(request))
    decoder = FrameDecoder()
    while True:
        for answer in decoder.feed(connection.recv(65536)):
            return answer


def test_starts_answers_and_stops_cleanly_on_sigterm() -> None:
    with name_server() as (process, address), socket.create_connection(address, timeout=10) as connection:
        answer = ask(connection, Command(105, opaque=3, ext_fields={"topic": "none"}))
        assert (answer.code, answer.opaque) == (17, 3)
        process.send_signal(signal.SIGTERM)
        assert connection.recv(100) == b""
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_sigint_stops_cleanly() -> None:
    with name_server() as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_start_takes_under_a_second_of_cpu() -> None:
    with name_server() as (process, _):
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        cpu_seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        assert cpu_seconds < 1.0


def test_port_in_use_is_one_clear_line_and_exit_code_1() -> None:
    with name_server() as (_, address):
        code, stdout, stderr = finish(command("namesrv", "--listen", f"{address[0]}:{address[1]}", "--kv-path", ""))
    assert code == 1
    assert f"error: cannot listen on 127.0.0.1:{address[1]}" in stderr
    assert "Traceback" not in stderr
    assert stdout == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("namesrv.properties", "listenPort=9999\nclusterTest=true\nrocketmqHome=/opt\nenableTopicList=false\n"),
        ("namesrv.toml", "listen_port = 9999\nenableTopicList = false\n"),
    ],
)
def test_configuration_comes_from_file_environment_and_flags(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    code, stdout, _ = finish(command("namesrv", "-c", str(file), "-p", FUSEE_NAMESRV_BROKERS_MAX="7"))
    assert code == 0
    settings = dict(line.split("=", 1) for line in stdout.splitlines())
    assert settings["listenPort"] == "9999"
    assert settings["enableTopicList"] == "false"
    assert settings["brokersMax"] == "7"
    code, stdout, _ = finish(command("namesrv", "-c", str(file), "-p", "--listen", "127.0.0.1:8888"))
    assert "listenPort=8888" in stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("listen_prot = 1\n", "'listen_prot', which namesrv does not know"),
        ("listen_port = 'many'\n", "listen_port = 'many'"),
        ("listen_port = 99999\n", "between 0 and 65535"),
        ("listen_port = \n", "cannot be understood"),
    ],
)
def test_wrong_configuration_names_the_setting_and_exits_with_2(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "n.toml"
    file.write_text(text)
    code, _, stderr = finish(command("namesrv", "-c", str(file)))
    assert code == 2
    assert says in stderr
    assert "Traceback" not in stderr


def test_missing_configuration_file_is_named() -> None:
    code, _, stderr = finish(command("namesrv", "-c", "/nowhere/n.toml"))
    assert code == 2
    assert "/nowhere/n.toml" in stderr


def test_help_tells_what_a_name_server_is_and_gives_an_example() -> None:
    code, stdout, _ = finish(command("namesrv", "--help"))
    assert code == 0
    assert "brokers announce their topics" in stdout
    assert "fusee namesrv --listen 127.0.0.1:9876" in stdout


def test_second_sigint_ends_at_once() -> None:
    # A client that reads nothing and an unanswerable drain are not needed: the handler itself is what is tested.
    with name_server() as (process, address):
        connections = [socket.create_connection(address) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 10
        while process.poll() is None and time.monotonic() < deadline:
            process.send_signal(signal.SIGINT)
        assert process.wait(10) in (0, 130, -2)
        for connection in connections:
            connection.close()

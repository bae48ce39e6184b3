"""`fusee broker` as a person runs it: a real process, real signals, real messages."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from tests.broker.world import bodies_in, pull_header, send_header
from tests.cli.test_namesrv_command import ask, command, finish, name_server


class Process:
    """A broker that has said where it listens; `said` is everything it printed at its start."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.search(r"listening on (127\.0\.0\.1):(\d+), fast port 127\.0\.0\.1:(\d+)", first)
        assert found is not None, first + (process.stderr.read() if process.stderr and not first else "")
        self.address = (found[1], int(found[2]))
        self.fast_address = (found[1], int(found[3]))
        self.said = first + process.stdout.readline()

    def next_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def stop(self) -> str:
        """End it by SIGTERM; what it logged."""
        self.process.send_signal(signal.SIGTERM)
        _, logged = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, logged
        assert "Traceback" not in logged
        return logged


# Small files: a start after a kill looks through all of the last one.
SMALL = {
    "FUSEE_BROKER_MAPPED_FILE_SIZE_COMMIT_LOG": str(16 * 1024 * 1024),
    "FUSEE_BROKER_MAX_HASH_SLOT_NUM": "1000",
    "FUSEE_BROKER_MAX_INDEX_NUM": "4000",
    "NAMESRV_ADDR": "",
}


@contextmanager
def broker(folder: Path, *arguments: str) -> Iterator[Process]:
    process = command("broker", "--listen", "127.0.0.1:0", "--store", str(folder), *arguments, **SMALL)
    try:
        yield Process(process)
    finally:
        process.kill()
        process.communicate()


def send(address: tuple[str, int], body: bytes) -> None:
    with socket.create_connection(address, timeout=10) as connection:
        answer = ask(connection, Command.request(RequestCode.SEND_MESSAGE_V2, send_header(), body=body))
    assert answer.code == 0, answer.remark


def pull(address: tuple[str, int]) -> list[bytes]:
    with socket.create_connection(address, timeout=10) as connection:
        return bodies_in(ask(connection, Command.request(RequestCode.PULL_MESSAGE, pull_header())))


def test_starts_answers_stops_cleanly_on_sigterm_and_goes_on_where_it_was(tmp_path: Path) -> None:
    store = tmp_path / "deep" / "store"
    with broker(store, "--name", "broker-x", "--cluster", "east") as running:
        assert "broker broker-x of east listening on" in running.said
        told = f"127.0.0.1:{running.address[1]}"
        assert f"clients are told {told}; store {store}" in running.said
        assert "no name server given (-n)" in running.next_line()
        send(running.address, b"one")
        send(running.fast_address, b"two")
        assert pull(running.address) == [b"one", b"two"]
        running.stop()
    assert not (store / "abort").exists()
    with broker(store, "--name", "broker-x") as running:
        assert pull(running.address) == [b"one", b"two"]


def test_killed_broker_recovers_what_it_had_acknowledged(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        send(running.address, b"kept")
        running.process.kill()
        running.process.wait()
    assert (tmp_path / "abort").exists()
    with broker(tmp_path) as running:
        assert pull(running.address) == [b"kept"]


def test_registers_with_the_name_servers_that_answer_and_says_which_do_not(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    with name_server() as (_, (host, port)):
        with broker(tmp_path, "-n", f"{host}:{port};{nobody}", "--name", "broker-x") as running:
            assert f"registered with {host}:{port}" in running.next_line()
            assert f"not reached yet: {nobody}; trying again" in running.next_line()
            send(running.address, b"hello")
            with socket.create_connection((host, port), timeout=10) as connection:
                answer = ask(connection, Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "TBW102"}))
                assert f"127.0.0.1:{running.address[1]}".encode() in answer.body
            running.stop()
        with socket.create_connection((host, port), timeout=10) as connection:
            answer = ask(connection, Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "TBW102"}))
            assert answer.code == 17


def test_file_of_a_java_broker_is_read_as_it_is_and_what_is_ignored_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "brokerClusterName = DefaultCluster\nbrokerName=broker-a\nbrokerId=0\nbrokerRole=ASYNC_MASTER\n"
        f"flushDiskType=SYNC_FLUSH\nstorePathRootDir={tmp_path}/store\nlistenPort=0\nbrokerIP1=127.0.0.1\n"
        "sendMessageThreadPoolNums=16\nuseEpollNativeSelector=true\n"
    )
    process = command("broker", "-c", str(file), "--listen", "127.0.0.1:0", **SMALL)
    try:
        running = Process(process)
        assert "broker broker-a of DefaultCluster" in running.said
        assert f"store {tmp_path}/store" in running.said
        running.next_line()
        assert running.next_line() == (
            f"ignored settings of {file}: sendMessageThreadPoolNums, useEpollNativeSelector\n"
        )
        send(running.address, b"synced")
        running.stop()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broker.conf", "listenPort=20911\nflushDiskType=SYNC_FLUSH\nsomethingElse=1\nautoCreateTopicEnable=false\n"),
        ("broker.toml", 'listen_port = 20911\nflushDiskType = "SYNC_FLUSH"\nauto_create_topic_enable = false\n'),
    ],
)
def test_settings_are_printed_as_they_come_from_file_environment_and_flags(
    tmp_path: Path, name: str, text: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    arguments = ("--name", "n", "--cluster", "c", "--id", "2", "--store", "/data", "-n", "a:1;b:2")
    code, stdout, stderr = finish(
        command("broker", "-c", str(file), "-p", *arguments, FUSEE_BROKER_FILE_RESERVED_TIME="7")
    )
    assert (code, stderr) == (0, "")
    settings = dict(line.split("=", 1) for line in stdout.splitlines())
    expected = {
        "listenPort": "20911",
        "flushDiskType": "SYNC_FLUSH",
        "autoCreateTopicEnable": "false",
        "fileReservedTime": "7",
        "brokerName": "n",
        "brokerClusterName": "c",
        "brokerId": "2",
        "brokerRole": "SLAVE",
        "storePathRootDir": "/data",
        "namesrvAddr": "a:1;b:2",
    }
    assert {key: settings[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("b.toml", "listen_prot = 1\n", "'listen_prot', which broker does not know"),
        ("b.conf", "flushDiskType=SOMETIMES\n", "flush_disk_type"),
        ("b.conf", "brokerId=1\n", "brokerId=1 does not fit brokerRole=ASYNC_MASTER"),
    ],
)
def test_wrong_configuration_names_the_setting_and_exits_with_2(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    code, stdout, stderr = finish(command("broker", "-c", str(file), "--store", str(tmp_path / "store")))
    assert (code, stdout) == (2, "")
    assert says in stderr
    assert "Traceback" not in stderr
    assert not (tmp_path / "store").exists()


def test_port_in_use_and_store_in_use_are_one_clear_line_and_exit_code_1(tmp_path: Path) -> None:
    with broker(tmp_path / "a") as running:
        address = f"127.0.0.1:{running.address[1]}"
        code, stdout, stderr = finish(command("broker", "--listen", address, "--store", str(tmp_path / "b"), **SMALL))
        assert (code, stdout) == (1, "")
        assert f"error: cannot listen on {address}" in stderr
        assert "is another server running there?" in stderr
        assert "Traceback" not in stderr
        code, stdout, stderr = finish(
            command("broker", "--listen", "127.0.0.1:0", "--store", str(tmp_path / "a"), **SMALL)
        )
        assert (code, stdout) == (1, "")
        assert "Stop that broker, or use another store path" in stderr.replace("\n", " ")
        assert "Traceback" not in stderr
        send(running.address, b"still here")


def test_help_tells_what_a_broker_is_and_gives_an_example() -> None:
    code, stdout, _ = finish(command("broker", "--help"))
    assert code == 0
    assert "keeps messages on disk" in stdout
    assert "fusee broker -n 127.0.0.1:9876" in stdout


def test_metrics_are_served_where_they_are_asked_for(tmp_path: Path) -> None:
    with broker(tmp_path, "--metrics-port", "0") as running:
        assert "no name server given" in running.next_line()
        found = re.search(r"metrics on (http://127\.0\.0\.1:\d+)/metrics", running.next_line())
        assert found is not None
        assert "rocketmq_topic_number{" in httpx.get(f"{found[1]}/metrics", timeout=30).text
        assert httpx.get(f"{found[1]}/ready", timeout=30).status_code == 200
        running.stop()
    with name_server("--metrics-port", "0") as (process, _):
        assert process.stdout is not None
        found = re.search(r"metrics on (http://127\.0\.0\.1:\d+)/metrics", process.stdout.readline())
        assert found is not None
        assert "fusee_namesrv_brokers{" in httpx.get(f"{found[1]}/metrics", timeout=30).text

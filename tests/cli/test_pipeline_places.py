"""Archive, replay, SQL and stats as commands: from stores and archives, by time, resumed, to a cluster with options."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fusee.sync
from fusee.cli.spark_job import place_of, sink_of
from fusee.errors import ConfigError
from fusee.pipeline.blocking_link import client_context
from tests.cli.scene import server as embedded
from tests.cli.scene import wait_for
from tests.cli.test_pipeline import SMALL
from tests.cli.test_pipeline import fusee as run
from tests.pipeline.test_tls import name_server as tls_name_server
from tests.transport.test_tcp import certificate as certificate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fusee.sync import EmbeddedServer

__all__ = ["tls_name_server"]
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


def facts(*arguments: str, name_server: str = "", code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, *SMALL, "--json", name_server=name_server, code=code))["facts"]
    return found


def send(server: EmbeddedServer, topic: str, numbers: range) -> None:
    with server.connect() as mq:
        for number in numbers:
            mq.send(topic, b"%d" % number, tag="ab"[number % 2])


def numbers_in(server: EmbeddedServer, topic: str) -> list[int]:
    with server.connect() as mq:
        return sorted(int(message.body) for message in mq.admin.browse(topic))


@dataclass
class Scene:
    """A server at work, its store, an archive of it in several small files, and the times between what was sent."""

    server: EmbeddedServer
    store: str
    archive: str
    moments: list[str]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("places")
    with embedded(store=folder / "store", topics={"orders": 2, "again": 2, "archived": 2}) as server:
        moments = []
        for start in (0, 3, 7):
            soon = server.now + timedelta(milliseconds=2)
            moments.append(soon.replace(microsecond=soon.microsecond // 1000 * 1000))
            wait_for(lambda: server.now >= moments[-1])
            send(server, "orders", range(start, start + 4 if start else 3))
        made = Scene(
            server, f"embedded={folder / 'store'}", str(folder / "archive"), [one.isoformat() for one in moments]
        )
        several = ("-o", "maxOffsetsPerTrigger=4", "--no-compact")
        command = ("pipeline", "archive", "orders", "--store", made.store, "--to", made.archive, *several)
        assert facts(*command)["new rows"] == 11
        yield made


def test_archive_of_a_store_directory_is_shown_and_compacted(scene: Scene) -> None:
    assert facts("pipeline", "compact", scene.archive)["changes"] >= 1
    shown = json.loads(run("pipeline", "archive", "--show", "--to", scene.archive, *SMALL, "--json"))
    assert shown["facts"]["rows"] == 11
    assert shown["facts"]["files"] <= 2
    ends = {row["queue"]: row["next offset"] for row in shown["tables"][1]["rows"]}
    assert ends.keys() == {0, 1}
    assert sum(ends.values()) == 11


def test_sql_and_stats_of_a_store_directory(scene: Scene) -> None:
    statement = "select tags, count(*) n from orders group by tags order by tags"
    counted = run("sql", statement, "--store", scene.store, *SMALL, "--json")
    assert [json.loads(line) for line in counted.splitlines()] == [{"tags": "a", "n": 6}, {"tags": "b", "n": 5}]
    assert facts("pipeline", "stats", "orders", "--store", scene.store)["messages"] == 11


@pytest.mark.parametrize("to", ["again", "archived"])
def test_replay_by_time_sends_what_was_stored_then(scene: Scene, to: str) -> None:
    place = ("--store", scene.store) if to == "again" else ("--archive", scene.archive)
    times = ("--since", scene.moments[1], "--until", scene.moments[2])
    here = scene.server.name_server
    assert facts("pipeline", "replay", "orders", *place, *times, "--to", to, "--yes", name_server=here)["sent"] == 4
    assert numbers_in(scene.server, to) == [3, 4, 5, 6]


def test_replay_that_is_interrupted_goes_on_with_the_same_command(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    with embedded(topics={"orders": 2, "again": 2}) as server:
        send(server, "orders", range(12))
        command = ["pipeline", "replay", "orders", "--to", "again", "--state", str(state), "--yes"]
        child = subprocess.Popen(
            [sys.executable, "-m", "fusee", *command, "--rate", "3", *SMALL],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NAMESRV_ADDR": server.name_server},
        )
        try:
            wait_for(lambda: child.poll() is not None or (state.exists() and _chunks_done(state)), seconds=120)
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=120)
        finally:
            child.kill()
        assert child.returncode == 1, err
        assert "stopping when" in err
        assert len(numbers_in(server, "again")) < 12
        rest = facts(*command, "--rate", "1000", name_server=server.name_server)
        assert rest["sent"] == 12
        assert "chunks" in rest["done by an earlier run"]
        assert numbers_in(server, "again") == list(range(12))


def _chunks_done(state: Path) -> bool:
    return bool(json.loads(state.read_text())["counts"])


def test_replay_within_a_cluster_under_tls_sends_by_tls_with_the_options_of_the_sink(
    tls_name_server: str, certificate: tuple[Path, Path]
) -> None:
    trusted = str(certificate[0])
    with fusee.sync.connect(tls_name_server, tls=client_context(ca_file=trusted)) as mq:
        mq.admin.create_topic("parts")
        for number in range(6):
            mq.send("parts", b"%d" % number)
        command = ("pipeline", "replay", "parts", "--to", "parts-again", "-o", f"tlsCaFile={trusted}", "--yes")
        options = ("createTopics=true", "createQueues=2", "delivery=at-least-once")
        given = [part for option in options for part in ("--sink-option", option)]
        assert facts(*command, *given, name_server=tls_name_server)["sent"] == 6
        found = list(mq.admin.browse("parts-again"))
        assert sorted(int(message.body) for message in found) == list(range(6))
        # Only messages that are sent at least once have it.
        assert all("IDEMPOTENCE_KEY" in message.properties for message in found)
        assert len(mq.admin.topic_stats("parts-again").queues) == 2


def test_sink_options_of_the_same_cluster_have_the_tls_of_the_source() -> None:
    source = {"nameServer": "here:9876", "tls.client.trustCertPath": "/ca", "TLSVERIFY": "false", "tags": "a"}
    tls = {"tlsCaFile": "/ca", "tlsVerify": "false"}
    assert sink_of(None, "here:9876", source, None) == {"nameServer": "here:9876", **tls}
    assert sink_of("here:9876", "here:9876", source, None) == {"nameServer": "here:9876", **tls}
    assert sink_of("there:9876", "here:9876", source, None) == {"nameServer": "there:9876"}
    own = sink_of(None, "here:9876", source, ["tls.client.certPath=/c", "delivery=exactly-once"])
    assert own == {"nameServer": "here:9876", "tlsCertificate": "/c", "delivery": "exactly-once"}
    assert sink_of(None, "x:1", {"store": "/s"}, ["nameServer=y:1"]) == {"nameServer": "y:1"}


def test_sink_options_that_cannot_be_are_told() -> None:
    with pytest.raises(ConfigError, match="unknown option 'delivry'"):
        sink_of(None, "here:9876", {}, ["delivry=auto"])
    with pytest.raises(ConfigError, match="where are the messages to be sent"):
        sink_of(None, None, {"store": "/s"}, None)
    with pytest.raises(ConfigError, match="--sink-option is for where messages are sent"):
        place_of(None, None, "/archive", ["tls=true"])


BLOCKED = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError("No module named 'pyspark'")

sys.meta_path.insert(0, Nothing())
from fusee.cli.main import main

main()
"""


@pytest.mark.parametrize("command", [("sql", "select 1"), ("pipeline", "replay", "orders", "--yes")])
def test_commands_without_spark_say_how_to_get_it(command: tuple[str, ...]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", BLOCKED, *command, "-n", "127.0.0.1:1"], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 2
    assert "pip install 'fusee[spark]'" in ran.stderr

"""kill -9 while streams copy a topic: every message is there once, in Parquet and in another topic.

On one machine driver, worker and broker are killed, on a standalone cluster executor, worker and driver. One of each in
the short form, more with FUSEE_LONG=1; what is killed when comes from a seed that a failure shows.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fusee.sync
from fusee.cluster import LocalCluster
from fusee.errors import FuseeError
from tests.cluster.test_local import SMALL
from tests.pipeline.kill.driver import (
    ROOT,
    driver,
    kill_executor,
    kill_python_worker,
    wait_for_a_moment,
    wait_for_batches,
)
from tests.pipeline.kill.streams import WAYS
from tests.pipeline.standalone import standalone_cluster
from tests.pipeline.written import bodies_in, messages_in

if TYPE_CHECKING:
    from fusee.sync import EmbeddedServer

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(3000)]

PROGRAM = "tests.pipeline.kill.archive_until_killed"
# Four tries of a task: a worker that is killed is no failure of the job.
HERE = "local[2,4]"
IS_LONG = bool(os.environ.get("FUSEE_LONG"))
ROUNDS = 10 if IS_LONG else 1
CLUSTER_ROUNDS = 4 if IS_LONG else 1
GROUPS = (1, 2) if IS_LONG else (2,)


class Producer:
    """Sends until it is told to end, and knows what was acknowledged."""

    def __init__(self, name_servers: str) -> None:
        self.sent: list[str] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(name_servers,))
        self._thread.start()

    def _run(self, name_servers: str) -> None:
        with fusee.sync.connect(name_servers) as mq:
            number = 0
            while not self._ending.wait(0.002):
                body = f"order {number}"
                number += 1
                try:
                    mq.send("orders", body)
                except FuseeError:
                    continue  # stored or not: nobody knows
                self.sent.append(body)

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


def read_the_rest(name_servers: str, folder: Path) -> list[str]:
    """Has a driver read what there is, and gives the rows in Parquet; again when Spark gave up its own planner, for
    which it has ten seconds.
    """
    program = [sys.executable, "-m", PROGRAM, name_servers, str(folder), HERE, "local", "--rest"]
    for _ in range(5):
        done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT)
        if "Python worker failed to connect back" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def check_copies(name_servers: str, producer: Producer, archived: list[str], told: str) -> None:
    """Every message of the topic is once in Parquet and once in the other topic; none that was acknowledged is lost."""
    wanted = Counter(
        f"{queue.broker_name} {queue.queue_id} {message.queue_offset} {message.body.decode()}"
        for queue, messages in messages_in(name_servers, "orders").items()
        for message in messages
    )
    assert set(wanted.values()) == {1}
    for found in (Counter(archived), Counter(body.decode() for body in bodies_in(name_servers, "copies"))):
        assert not found - wanted, told
        assert not wanted - found, told
    assert not set(producer.sent) - {row.split(" ", 3)[3] for row in wanted}, told


@pytest.mark.parametrize("groups", GROUPS)
def test_every_message_is_copied_once_whoever_is_killed(groups: int, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    chooser = random.Random(seed)
    folder = tmp_path / "archive"
    folder.mkdir()
    with LocalCluster(tmp_path / "cluster", groups=groups, replicas=1, name_servers=1, settings=SMALL) as cluster:
        with fusee.sync.connect(cluster.name_servers) as mq:
            for topic in ("orders", "copies"):
                mq.admin.create_topic(topic, read_queues=4, write_queues=4)
        brokers = [name for name in cluster.nodes if name.startswith("broker")]
        producer = Producer(cluster.name_servers)
        try:
            for number in range(ROUNDS):
                kinds = ["worker", "broker"]
                chooser.shuffle(kinds)
                with driver(PROGRAM, cluster.name_servers, folder, HERE, WAYS[(number + 1) % 2]) as running:
                    wait_for_batches(running, 1, folder)
                    for kind in kinds:
                        wait_for_a_moment(chooser)
                        if kind == "broker":
                            broker = chooser.choice(brokers)
                            cluster.kill(broker)
                            cluster.restart(broker)
                        else:
                            kill_python_worker(running, chooser)
                        wait_for_batches(running, chooser.randrange(1, 3), folder)
                    wait_for_a_moment(chooser)
                # Leaving kills the driver, in the middle of whatever it does.
        finally:
            producer.end()
        archived = read_the_rest(cluster.name_servers, folder)
        check_copies(cluster.name_servers, producer, archived, f"seed {seed}")


def test_every_message_is_copied_once_when_executors_and_a_worker_of_a_cluster_are_killed(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    chooser = random.Random(seed)
    folder = tmp_path / "archive"
    folder.mkdir()
    server.create_topics({"orders": 4, "copies": 4})
    producer = Producer(server.name_server)
    try:
        for number in range(CLUSTER_ROUNDS):
            spark = tmp_path / f"spark-{number}"
            spark.mkdir()
            with (
                standalone_cluster(spark) as cluster,
                driver(PROGRAM, server.name_server, folder, cluster.master, WAYS[number % 2]) as running,
            ):
                wait_for_batches(running, 1, folder)
                wait_for_a_moment(chooser)
                kill_executor(cluster.workers, chooser)
                wait_for_batches(running, chooser.randrange(1, 3), folder)
                wait_for_a_moment(chooser)
                # The executor of a worker that is gone ends by itself; the other worker has all to do.
                os.kill(chooser.choice(cluster.workers), signal.SIGKILL)
                wait_for_batches(running, chooser.randrange(1, 3), folder)
                wait_for_a_moment(chooser)
            # Leaving kills the driver, in the middle of whatever it does.
    finally:
        producer.end()
    check_copies(server.name_server, producer, read_the_rest(server.name_server, folder), f"seed {seed}")

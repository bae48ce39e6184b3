"""kill -9 of driver, worker and broker while a stream writes Parquet: every message is there once.

One of each in the short form, ten rounds with FUSEE_LONG=1; what is killed when comes from a seed that a failure shows.
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

import pytest

import fusee.sync
from fusee.cluster import LocalCluster
from fusee.errors import FuseeError
from tests.pipeline.kill.driver import ROOT, driver, wait_for_batches, workers_of

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(3000)]

PROGRAM = "tests.pipeline.kill.archive_until_killed"
ROUNDS = 10 if os.environ.get("FUSEE_LONG") else 1


class Producer:
    """Sends until it is told to end, tries again what was not acknowledged, and knows what was."""

    def __init__(self, name_servers: str) -> None:
        self.sent: list[str] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(name_servers,))
        self._thread.start()

    def _run(self, name_servers: str) -> None:
        with fusee.sync.connect(name_servers) as mq:
            number = 0
            while not self._ending.wait(0.005):
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


def read_the_rest(name_servers: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A driver that reads what there is; again when Spark gave up its own planner, for which it has ten seconds."""
    program = [sys.executable, "-m", PROGRAM, name_servers, str(folder), "--rest"]
    for _ in range(5):
        done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT)
        if "Python worker failed to connect back" not in done.stderr:
            break
    return done


def test_every_message_is_archived_once_whoever_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    chooser = random.Random(seed)
    folder = tmp_path / "archive"
    folder.mkdir()
    with LocalCluster(tmp_path / "cluster", groups=1, replicas=1, name_servers=1) as cluster:
        with fusee.sync.connect(cluster.name_servers) as mq:
            mq.admin.create_topic("orders", read_queues=4, write_queues=4)
        broker = next(name for name in cluster.nodes if name.startswith("broker"))
        producer = Producer(cluster.name_servers)
        try:
            for _ in range(ROUNDS):
                kinds = ["worker", "broker"]
                chooser.shuffle(kinds)
                with driver(PROGRAM, cluster.name_servers, folder) as running:
                    wait_for_batches(running, 2, folder)
                    for kind in kinds:
                        if kind == "broker":
                            cluster.kill(broker)
                            cluster.restart(broker)
                        else:
                            for pid in chooser.sample(found := workers_of(running.pid), min(1, len(found))):
                                os.kill(pid, signal.SIGKILL)
                        wait_for_batches(running, chooser.randrange(1, 4), folder)
                # Leaving kills the driver, in the middle of whatever it does.
        finally:
            producer.end()
        rest = read_the_rest(cluster.name_servers, folder)
        assert rest.returncode == 0, rest.stderr
    told = f"seed {seed}"
    places: Counter[tuple[int, int]] = Counter()
    bodies = set()
    for line in rest.stdout.splitlines():
        queue, place, body = line.split(" ", 2)
        places[int(queue), int(place)] += 1
        bodies.add(body)
    assert places.total() == len(places), told
    for queue_id in range(4):
        found = [queue_offset for number, queue_offset in places if number == queue_id]
        assert sorted(found) == list(range(len(found))), told
    assert not set(producer.sent) - bodies, told

"""kill -9 of driver, worker and broker while streams write to topics: each row once, or at least once with its key.

One of each in the short form, eight rounds with FUSEE_LONG=1; what is killed when comes from a seed that is shown.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fusee.sync
from fusee.cluster import LocalCluster
from tests.cluster.test_local import SMALL
from tests.pipeline.kill.write_until_killed import ROWS, TOPICS, done_batches
from tests.pipeline.written import messages_in

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(3000)]

ROOT = Path(__file__).parents[3]
ROUNDS = 8 if os.environ.get("FUSEE_LONG") else 1


@contextmanager
def driver(name_servers: str, folder: Path, batches: int) -> Iterator[subprocess.Popen[str]]:
    """A driver in a session of its own, so that Java and workers can be killed with it."""
    with (folder / "driver.log").open("a") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.kill.write_until_killed", name_servers, str(folder), str(batches)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            yield started
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
            started.communicate()


def wait_for_batches(running: subprocess.Popen[str], count: int, folder: Path) -> None:
    assert running.stdout is not None
    for _ in range(count):
        if not running.stdout.readline():
            pytest.fail((folder / "driver.log").read_text()[-5000:])


def workers_of(session: int) -> list[int]:
    """Python workers of this session: children of the daemon that Spark forks them from."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_text()
            parent = (folder.parent / fields[1] / "cmdline").read_text()
        except OSError:
            continue
        if int(fields[3]) == session and "pyspark.daemon" in command and "pyspark.daemon" in parent:
            found.append(int(folder.name))
    return found


def test_every_row_is_written_whoever_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    chooser = random.Random(seed)
    folder = tmp_path / "driver"
    folder.mkdir()
    with LocalCluster(tmp_path / "cluster", groups=1, replicas=1, name_servers=1, settings=SMALL) as cluster:
        with fusee.sync.connect(cluster.name_servers) as mq:
            for topic in TOPICS.values():
                mq.admin.create_topic(topic, read_queues=4, write_queues=4)
        for _ in range(ROUNDS):
            kinds = ["worker", "broker"]
            chooser.shuffle(kinds)
            with driver(cluster.name_servers, folder, 1_000_000) as running:
                wait_for_batches(running, 2, folder)
                for kind in kinds:
                    if kind == "broker":
                        cluster.kill("broker-a")
                        cluster.restart("broker-a")
                    else:
                        for pid in chooser.sample(found := workers_of(running.pid), min(1, len(found))):
                            os.kill(pid, signal.SIGKILL)
                    wait_for_batches(running, chooser.randrange(1, 4), folder)
            # Leaving kills the driver, in the middle of whatever it does.
        batches = 2 + max(done_batches(str(folder), topic) for topic in TOPICS.values())
        with driver(cluster.name_servers, folder, batches) as last:
            assert last.wait(600) == 0, (folder / "driver.log").read_text()[-5000:]
        told = f"seed {seed}"
        wanted = set(range(ROWS * batches))
        found_once = Counter(
            int(message.body) for each in messages_in(cluster.name_servers, "once").values() for message in each
        )
        twice = [number for number, count in found_once.items() if count > 1]
        assert not twice, told
        assert not wanted - found_once.keys(), told
        # Nothing of a batch that is not done: what is there is whole batches.
        assert found_once.total() % ROWS == 0, told
        keys: dict[str, set[int]] = {}
        for each in messages_in(cluster.name_servers, "often").values():
            for message in each:
                keys.setdefault(message.properties["IDEMPOTENCE_KEY"], set()).add(int(message.body))
        assert not wanted - {number for numbers in keys.values() for number in numbers}, told
        # A key tells a row, whatever attempt has written it: without the copies each row is there once.
        assert all(len(numbers) == 1 for numbers in keys.values()), told
        assert Counter(number for numbers in keys.values() for number in numbers).most_common(1)[0][1] == 1, told

"""kill -9 of driver, worker and broker while streams write to topics: each row once, or at least once with its key.

One of each in the short form, eight rounds with FUSEE_LONG=1; what is killed when comes from a seed that is shown.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

import fusee.sync
from fusee.cluster import LocalCluster
from tests.cluster.test_local import SMALL
from tests.pipeline.kill.driver import driver, kill_python_worker, said, wait_for_a_moment, wait_for_batches
from tests.pipeline.kill.streams import WAYS, done_batches
from tests.pipeline.kill.write_until_killed import ROWS, TOPICS
from tests.pipeline.written import messages_in

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(3000)]

PROGRAM = "tests.pipeline.kill.write_until_killed"
IS_LONG = bool(os.environ.get("FUSEE_LONG"))
ROUNDS = 8 if IS_LONG else 1
GROUPS = (1, 2) if IS_LONG else (1,)


@pytest.mark.parametrize("groups", GROUPS)
def test_every_row_is_written_whoever_is_killed(groups: int, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    chooser = random.Random(seed)
    folder = tmp_path / "driver"
    folder.mkdir()
    with LocalCluster(tmp_path / "cluster", groups=groups, replicas=1, name_servers=1, settings=SMALL) as cluster:
        with fusee.sync.connect(cluster.name_servers) as mq:
            for topic in TOPICS.values():
                mq.admin.create_topic(topic, read_queues=4, write_queues=4)
        brokers = [name for name in cluster.nodes if name.startswith("broker")]
        for number in range(ROUNDS):
            kinds = ["worker", "broker"]
            chooser.shuffle(kinds)
            with driver(PROGRAM, cluster.name_servers, folder, WAYS[number % 2], "1000000") as running:
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
        batches = 2 + max(done_batches(folder / topic) for topic in TOPICS.values())
        with driver(PROGRAM, cluster.name_servers, folder, "local", str(batches)) as last:
            assert last.wait(600) == 0, said(folder)
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

"""Reading from real broker processes that die: killed and started again in the middle, and a slave for its master."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import fusee.sync
from fusee.cluster import LocalCluster
from fusee.pipeline.fetch import FetchSettings, fetch
from fusee.pipeline.ranges import QueueRange

COUNT = 3000
# Small answers, so that many are still to come when a broker dies.
SETTINGS = {"bulkReadBytesMax": str(256 << 10)}


def fill(name_servers: str) -> list[QueueRange]:
    """A topic of two queues with numbered messages; its ranges."""
    with fusee.sync.connect(name_servers) as mq:
        mq.admin.create_topic("orders", queues=2)
        with mq.producer(group="filler") as producer:
            sent = [producer.send_soon("orders", b"%d." % number + b"x" * 1000) for number in range(COUNT)]
            results = [future.result() for future in sent]
    ends: dict[tuple[str, int], int] = {}
    for result in results:
        key = result.queue.broker_name, result.queue.queue_id
        ends[key] = max(ends.get(key, 0), result.queue_offset + 1)
    return [QueueRange("orders", broker, queue_id, 0, end) for (broker, queue_id), end in sorted(ends.items())]


def settings(name_servers: str) -> FetchSettings:
    return FetchSettings(
        name_servers=name_servers, group="readers", pull_timeout_ms=5000, retries=40, retry_delay_ms=50
    )


def numbers(batches: list[pa.RecordBatch]) -> list[int]:
    return sorted(int(body.split(b".")[0]) for batch in batches for body in batch.column(0).to_pylist())


def test_a_broker_that_is_killed_and_comes_back_is_read_to_the_end(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", groups=1, replicas=1, name_servers=1, settings=SETTINGS) as cluster:
        ranges = fill(cluster.name_servers)
        reading = fetch(settings(cluster.name_servers), ranges, ("body",), batch_size=1)
        batches = [next(reading)]
        cluster.kill("broker-a")
        cluster.restart("broker-a")
        batches.extend(reading)
        assert numbers(batches) == list(range(COUNT))


def test_a_slave_is_read_while_its_master_is_away(tmp_path: Path) -> None:
    with LocalCluster(
        tmp_path / "cluster", groups=1, replicas=2, name_servers=1, role="sync", settings=SETTINGS
    ) as cluster:
        ranges = fill(cluster.name_servers)
        cluster.wait_level()
        cluster.kill("broker-a")
        batches = list(fetch(settings(cluster.name_servers), ranges, ("body",)))
        assert numbers(batches) == list(range(COUNT))

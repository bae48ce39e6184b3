"""A batch that is staged at two brokers, committed as one whatever fails between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from fusee.cluster import LocalCluster
from fusee.errors import FuseeError
from fusee.pipeline.blocking_link import BlockingLink
from fusee.pipeline.delivery import Delivery, Staging
from fusee.pipeline.row_encoding import Columns, encode_rows
from fusee.pipeline.staged_commit import Staged, StagedCommit
from fusee.pipeline.write_routes import WriteSettings
from fusee.wire.bodies.staged import StagedPart, StagedParts
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.staged import CommitStagedBatch
from tests.cluster.test_local import SMALL
from tests.pipeline.written import bodies_in, messages_in

BODIES = sorted(b"%03d" % number for number in range(80))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder, groups=2, replicas=1, name_servers=1, settings=SMALL) as running:
        yield running


def settings(cluster: LocalCluster, **changes: Any) -> WriteSettings:
    given: dict[str, Any] = {"create_queues": 2, "batch_bytes": 100, "request_timeout_ms": 5_000, **changes}
    return WriteSettings(name_servers=cluster.name_servers, **given)


def staged(given: WriteSettings, topic: str, batch_id: int, transaction: str, *, first_queue: int = 0) -> Staged:
    delivery = Delivery(given, staging=Staging(topic, batch_id, transaction), first_queue=first_queue)
    delivery.write(topic, encode_rows(Columns(pa.array(BODIES, pa.binary())), first_row=0))
    parts = delivery.finish().parts
    assert set(parts) == {"broker-a", "broker-b"}
    return Staged(transaction, parts)


def test_batch_over_two_brokers_is_there_once_after_its_commit(cluster: LocalCluster) -> None:
    given = settings(cluster)
    work = staged(given, "both", 0, "t")
    assert bodies_in(cluster.name_servers, "both") == []
    assert StagedCommit(given, "both").commit(0, [work])
    assert bodies_in(cluster.name_servers, "both") == BODIES
    assert len({queue.broker_name for queue, found in messages_in(cluster.name_servers, "both").items() if found}) == 2
    assert not StagedCommit(given, "both").commit(0, [work])
    assert bodies_in(cluster.name_servers, "both") == BODIES


def test_commit_that_one_broker_did_not_hear_of_is_carried_on_by_whoever_does_the_batch_again(
    cluster: LocalCluster,
) -> None:
    given = settings(cluster)
    work = staged(given, "half", 0, "first")
    impatient = settings(cluster, retries=0, request_timeout_ms=2_000)
    cluster.pause("broker-b")
    try:
        # It is asked before anything is decided: nothing is.
        with pytest.raises(FuseeError):
            StagedCommit(impatient, "half").commit(0, [work])
    finally:
        cluster.resume("broker-b")
    assert bodies_in(cluster.name_servers, "half") == []
    # A driver that dies when the first broker has decided, and the second has not heard of it.
    parts = {name: [StagedPart(transaction="first", parts=work.parts[name])] for name in ("broker-a", "broker-b")}
    decision = StagedParts(transactions=parts["broker-a"], others={"broker-b": parts["broker-b"]})
    header = CommitStagedBatch(application="half", batch_id=0)
    link = BlockingLink(cluster.addresses["broker-a"], timeout_ms=5_000)
    answer = link.request(Command.request(RequestCode.COMMIT_STAGED_BATCH, header, body=msgspec.json.encode(decision)))
    assert answer.command.code == ResponseCode.SUCCESS
    link.close()
    cluster.kill("broker-b")
    cluster.restart("broker-b")
    assert 0 < len(bodies_in(cluster.name_servers, "half")) < len(BODIES)
    # Another attempt divides the rows otherwise; what was decided counts.
    again = staged_again(given)
    assert not StagedCommit(given, "half").commit(0, [again])
    assert bodies_in(cluster.name_servers, "half") == BODIES
    # And the next batch goes on as if nothing had been.
    assert StagedCommit(given, "half").commit(1, [staged(given, "half", 1, "next")])
    assert bodies_in(cluster.name_servers, "half") == sorted(BODIES * 2)


def staged_again(given: WriteSettings) -> Staged:
    delivery = Delivery(given, staging=Staging("half", 0, "second"), first_queue=1)
    delivery.write("half", encode_rows(Columns(pa.array(BODIES, pa.binary())), first_row=0))
    return Staged("second", delivery.finish().parts)

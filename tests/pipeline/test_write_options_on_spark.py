"""Options of writing on real Spark, proved by what the broker was asked."""

from __future__ import annotations

import shutil
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from fusee.wire.codes import RequestCode
from fusee.wire.headers.handover import OpenHandover, SendHandedBatch
from fusee.wire.headers.send import SendMessageV2
from fusee.wire.headers.staged import CommitStagedBatch
from tests.pipeline.requests_seen import Requests
from tests.pipeline.test_sink import run, save, stream
from tests.pipeline.test_sink import topic as topic
from tests.pipeline.written import bodies_in

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from fusee.sync import EmbeddedServer


def rows(spark: SparkSession, count: int = 3) -> DataFrame:
    """Rows of 100 bytes, in one task."""
    return spark.range(0, count, 1, 1).selectExpr("lpad(string(id), 100, '.') as body")


def bodies(count: int = 3) -> list[bytes]:
    return sorted(str(number).rjust(100, ".").encode() for number in range(count))


def test_bytes_are_sent_when_local_writes_are_off_under_the_group_that_is_named(
    spark: SparkSession, server: EmbeddedServer, topic: str
) -> None:
    opened = Requests(server, RequestCode.OPEN_HANDOVER, OpenHandover)
    handed = Requests(server, RequestCode.SEND_HANDED_BATCH, SendHandedBatch)
    sent = Requests(server, RequestCode.SEND_BATCH_MESSAGE, SendMessageV2)
    save(rows(spark), server, topic=topic)
    assert (len(opened.headers), len(sent.headers)) == (1, 0)
    assert [each.producer_group for each in handed.headers] == ["fusee-spark"]
    save(rows(spark), server, topic=topic, localWrites=False, producerGroup="billing")
    assert (len(opened.headers), len(handed.headers)) == (1, 1)
    assert [each.producer_group for each in sent.headers] == ["billing"]
    assert bodies_in(server.name_server, topic) == sorted(2 * bodies())


def test_no_more_is_under_way_than_in_flight_bytes(spark: SparkSession, server: EmbeddedServer, topic: str) -> None:
    """The broker answers no request before it has two: that is enough for whoever has two under way."""
    sent = Requests(server, RequestCode.SEND_BATCH_MESSAGE, SendMessageV2)
    sent.hold_until = 2
    told = {"topic": topic, "localWrites": False, "batchBytes": 300, "numRetries": 0}
    save(rows(spark, 4), server, **told)
    assert bodies_in(server.name_server, topic) == bodies(4)
    assert len(sent.headers) >= 2
    sent.headers.clear()
    with pytest.raises(PySparkException, match="did not answer within 1000 ms"):
        save(rows(spark, 4), server, inFlightBytes=300, requestTimeoutMs=1000, **told)
    assert len(sent.headers) == 1


def test_failed_writes_are_tried_again_as_the_options_say(
    spark: SparkSession, server: EmbeddedServer, topic: str
) -> None:
    sent = Requests(server, RequestCode.SEND_BATCH_MESSAGE, SendMessageV2)
    told = {"topic": topic, "localWrites": False, "retryIntervalMs": 250}
    sent.refused = 2
    save(rows(spark), server, numRetries=2, **told)
    waits = [later - sooner for sooner, later in pairwise(sent.times)]
    assert len(waits) == 2
    assert waits[0] >= 0.25
    assert waits[1] >= 0.5
    sent.refused = 2
    with pytest.raises(PySparkException, match="in 2 tries: .*refused by a test"):
        save(rows(spark), server, numRetries=1, **told)
    assert bodies_in(server.name_server, topic) == bodies()


def test_commit_that_is_not_answered_is_asked_for_again(
    spark: SparkSession, server: EmbeddedServer, topic: str
) -> None:
    commits = Requests(server, RequestCode.COMMIT_STAGED_BATCH, CommitStagedBatch)
    commits.unanswered = 1
    told = {"topic": topic, "delivery": "exactly-once", "commitTimeoutMs": 300}
    save(rows(spark), server, retryIntervalMs=1, **told)
    assert len(commits.headers) >= 2
    assert bodies_in(server.name_server, topic) == bodies()
    commits.unanswered = 1
    with pytest.raises(PySparkException, match="did not answer within 300 ms"):
        save(rows(spark), server, numRetries=0, **told)
    assert bodies_in(server.name_server, topic) == bodies()


def test_two_sinks_of_one_query_are_told_apart_by_their_names(
    spark: SparkSession, server: EmbeddedServer, topic: str, tmp_path: Path
) -> None:
    """A query is known by its checkpoint, and so is one whose checkpoint is a copy: brokers take them for the same."""
    told = {"delivery": "exactly-once", "createTopics": True}
    first = run(stream(spark, tmp_path / "in", batches=1), server, tmp_path / "first", topic=topic, **told)
    for name in ("same", "other"):
        (tmp_path / name).mkdir()
        shutil.copy(tmp_path / "first" / "metadata", tmp_path / name)
    lines = spark.readStream.format("text").load(str(tmp_path / "in"))
    same = run(lines, server, tmp_path / "same", topic=f"{topic}-same", **told)
    other = run(lines, server, tmp_path / "other", topic=f"{topic}-other", sinkName="other", **told)
    assert first.id == same.id == other.id
    wanted = sorted(f"0-{row}".encode() for row in range(50))
    assert bodies_in(server.name_server, topic) == wanted
    assert bodies_in(server.name_server, f"{topic}-same") == []
    assert bodies_in(server.name_server, f"{topic}-other") == wanted

"""Audits: what was lost, doubled, late or waits, from stores, traces and offsets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fusee.client.trace import TraceRecord, TraceType, encode_record
from fusee.errors import FuseeError
from fusee.message.topics import TRACE_TOPIC
from fusee.pipeline.jobs.audit import UNKNOWN, _reconcile, audit
from fusee.pipeline.jobs.tables import Place
from fusee.pipeline.jobs.traces import SCHEMA as TRACE_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fusee.pipeline.jobs.outcome import Outcome
    from fusee.sync import EmbeddedServer


def table(outcome: Outcome, title: str) -> list[dict[str, Any]]:
    found = next(one for one in outcome.tables if one.title == title)
    return [dict(zip(found.heads, row, strict=True)) for row in found.rows]


def tell(mq: Any, *records: TraceRecord) -> None:
    mq.send(TRACE_TOPIC, "".join(encode_record(one) for one in records).encode())


def test_audit_finds_what_is_lost_doubled_late_and_waiting(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    with server.connect() as mq:
        sent = [mq.send("orders", b"%d" % number) for number in range(5)]
        now = int(mq.admin.message_at(sent[0].queue, sent[0].queue_offset).store_timestamp_ms)
        ids = [one.message_id for one in sent]
        tell(
            mq,
            *(
                TraceRecord(kind=TraceType.PUB, timestamp_ms=now, group="shop", topic="orders", message_id=one)
                for one in [*ids, "NEVER-STORED"]
            ),
        )
        tell(
            mq,
            *(
                TraceRecord(
                    kind=TraceType.SUB_BEFORE,
                    timestamp_ms=now + (100_000 if number == 1 else 5),
                    group="billing",
                    request_id=f"r{number}",
                    message_id=ids[number],
                )
                for number in range(4)
            ),
            *(
                TraceRecord(
                    kind=TraceType.SUB_AFTER,
                    group="billing",
                    request_id=f"r{number}",
                    message_id=ids[number],
                    cost_ms=7,
                )
                for number in (0, 1, 2, 2)
            ),
        )
        with mq.pull_consumer("orders", group="billing") as consumer:
            consumer.poll()
            consumer.commit()
    report = tmp_path / "audit.html"
    outcome = audit(spark, place=Place({"nameServer": server.name_server}), topics=["orders"], report_path=report)
    assert not outcome.is_good
    assert table(outcome, "topics") == [{"topic": "orders", "produced": 6, "stored": 5, "lost": 1, "duplicates": 0}]
    assert [row["message id"] for row in table(outcome, "lost: some of them")] == ["NEVER-STORED"]
    group = next(row for row in table(outcome, "groups") if row["group"] == "billing")
    assert (group["delivered"], group["consumed"], group["consumed twice"], group["later than 60 s"]) == (4, 3, 1, 1)
    assert group["committed"] + group["waiting"] == 5
    latencies = {row["from - to"]: row for row in table(outcome, "milliseconds")}
    assert latencies["broker to consumer"]["most"] >= 99_000
    assert latencies["time in the listener"]["p50"] == 7
    assert "From broker to consumer" in report.read_text()


def test_reconcile_counts_records_with_one_id_and_leaves_out_what_may_have_expired(spark: SparkSession) -> None:
    stored = spark.createDataFrame(
        [
            ("orders", "A", "b", 0, 5, 900, 1000),
            ("orders", "A", "b", 1, 9, 900, 1001),
            ("orders", "B", "b", 0, 6, 900, 1002),
        ],
        "topic string, msgId string, brokerName string, queueId int, queueOffset bigint, bornMs long, storedMs long",
    )
    traces = spark.createDataFrame(
        [("Pub", said, "shop", "orders", msg_id, "", 0, True, 0) for said, msg_id in ((999, "OLD"), (1001, "GONE"))],
        TRACE_SCHEMA,
    )
    found = _reconcile(stored, traces, ["orders"], [], None, 60_000)
    assert found.topics == [("orders", 2, 3, 1, 1)]
    assert [row[1] for row in found.lost] == ["GONE"]
    assert found.doubled == [("orders", "A", 2)]
    assert found.latencies[0][1:] == (3, 101, 102, 102, 102, 102)


def test_audit_without_traces_says_unknown_and_never_nothing(spark: SparkSession, server: EmbeddedServer) -> None:
    with server.connect() as mq:
        mq.send("orders", b"x")
    outcome = audit(spark, place=Place({"nameServer": server.name_server}), topics=["orders"])
    assert table(outcome, "topics") == [
        {"topic": "orders", "produced": UNKNOWN, "stored": 1, "lost": UNKNOWN, "duplicates": 0}
    ]
    assert outcome.facts["lost"] == UNKNOWN
    assert outcome.is_good


def test_audit_of_a_topic_that_is_not_there_names_those_that_are(spark: SparkSession, server: EmbeddedServer) -> None:
    with server.connect() as mq:
        mq.send("orders", b"x")
    with pytest.raises(FuseeError, match="there are .*orders"):
        audit(spark, place=Place({"nameServer": server.name_server}), topics=["oders"])

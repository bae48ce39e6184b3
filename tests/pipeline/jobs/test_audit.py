"""Audits: what was lost, doubled, late or waits, from stores, traces and offsets."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fusee.sync
from fusee.client.hooks import MessageType, TransactionState
from fusee.client.trace import TraceRecord, TraceType, encode_record
from fusee.errors import FuseeError
from fusee.message.model import MessageQueue
from fusee.message.topics import TRACE_TOPIC
from fusee.pipeline.blocking_link import client_context
from fusee.pipeline.jobs.audit import UNKNOWN, _reconcile, audit
from fusee.pipeline.jobs.selection import Selection
from fusee.pipeline.jobs.standing import _timed
from fusee.pipeline.jobs.tables import Place
from fusee.pipeline.jobs.traces import SCHEMA as TRACE_SCHEMA
from fusee.sync import embedded
from tests.cli.scene import wait_for
from tests.pipeline.test_tls import name_server as name_server
from tests.transport.test_tcp import certificate as certificate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fusee.pipeline.jobs.outcome import Outcome
    from fusee.sync import EmbeddedServer


def table(outcome: Outcome, title: str) -> list[dict[str, Any]]:
    found = next(one for one in outcome.tables if one.title == title)
    return [dict(zip(found.heads, row, strict=True)) for row in found.rows]


def counts(**those: object) -> dict[str, Any]:
    """A row of the table of topics, with these counts."""
    usual = {"produced": 0, "stored": 0, "not yet due": 0, "withheld": 0, "lost": 0, "duplicates": 0}
    return {"topic": "orders", **usual, **{name.replace("_", " "): count for name, count in those.items()}}


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
    assert table(outcome, "topics") == [counts(produced=6, stored=5, lost=1)]
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
        [
            ("Pub", said, "shop", "orders", msg_id, "", 0, True, 0, "NORMAL", "UNKNOWN")
            for said, msg_id in ((999, "OLD"), (1001, "GONE"))
        ],
        TRACE_SCHEMA,
    )
    aside = spark.createDataFrame([], "topic string, msgId string, storedMs long, state string")
    found = _reconcile(stored, traces, ["orders"], [], None, 60_000, ids=stored, aside=aside, chosen=Selection())
    assert found.topics == [("orders", 2, 3, 0, 0, 1, 1)]
    assert [row[1] for row in found.lost] == ["GONE"]
    assert found.doubled == [("orders", "A", 2)]
    assert found.latencies[0][1:] == (3, 101, 102, 102, 102, 102)


def fill_of_every_kind(server: EmbeddedServer) -> None:
    """Traced sends that a consumer sees, sees later, or never sees, and none of them is lost."""

    def check(_: object) -> None:
        """Nothing is known yet."""

    server.create_topics({"orders": 1})
    with server.connect(enable_trace=True) as mq:
        mq.send("orders", b"plain")
        mq.send("orders", b"due soon", delay_level=1)
        mq.send("orders", b"due in two hours", delay_level=18)
        with mq.transaction("orders", b"committed", check=check):
            pass
        with mq.transaction("orders", b"rolled back", check=check) as transaction:
            transaction.rollback()
        with mq.transaction("orders", b"open", check=check) as transaction:
            transaction.leave_open()
        wait_for(lambda: b"due soon" in {message.body for message in mq.admin.browse("orders")})


def test_audit_of_delayed_messages_and_transactions_calls_none_of_them_lost(
    spark: SparkSession, server: EmbeddedServer
) -> None:
    fill_of_every_kind(server)
    place = Place({"nameServer": server.name_server})
    outcome = audit(spark, place=place, topics=["orders"])
    expected = counts(produced=6, stored=3, not_yet_due=1, withheld=2)
    assert table(outcome, "topics") == [expected]
    assert outcome.is_good

    with server.connect() as mq:
        now = int(max(message.store_timestamp_ms for message in mq.admin.browse("orders")))
        said: dict[str, Any] = {"timestamp_ms": now, "group": "shop", "topic": "orders"}
        tell(
            mq,
            TraceRecord(kind=TraceType.PUB, message_id="PLAIN", **said),
            TraceRecord(kind=TraceType.PUB, message_id="LATER", message_type=MessageType.DELAY, **said),
            TraceRecord(kind=TraceType.PUB, message_id="HALF", message_type=MessageType.HALF, **said),
            TraceRecord(
                kind=TraceType.END_TRANSACTION, message_id="HALF", transaction_state=TransactionState.COMMIT, **said
            ),
        )
    outcome = audit(spark, place=place, topics=["orders"])
    assert table(outcome, "topics") == [{**expected, "produced": 9, "lost": 3}]
    assert {row["message id"] for row in table(outcome, "lost: some of them")} == {"PLAIN", "LATER", "HALF"}
    assert not outcome.is_good


def test_audit_of_a_batch_of_a_java_client_takes_each_of_its_messages(
    spark: SparkSession, server: EmbeddedServer
) -> None:
    with server.connect() as mq:
        sent = [mq.send("orders", b"%d" % number) for number in range(3)]
        ids = ",".join([*(one.message_id for one in sent), "NEVER-STORED"])
        places = ",".join(one.offset_id for one in sent)
        now = int(mq.admin.message_at(sent[0].queue, sent[0].queue_offset).store_timestamp_ms)
        # As TraceDataEncoder of 5.5.0 writes it.
        fields = ("Pub", now, "DefaultRegion", "shop", "orders", ids, "null", "null", "127.0.0.1:10911", 300, 5, 0)
        mq.send(TRACE_TOPIC, ("\x01".join(map(str, (*fields, places, "true"))) + "\x02").encode())
    outcome = audit(spark, place=Place({"nameServer": server.name_server}), topics=["orders"])
    assert table(outcome, "topics") == [counts(produced=4, stored=3, lost=1)]
    assert [row["message id"] for row in table(outcome, "lost: some of them")] == ["NEVER-STORED"]


def test_audit_of_a_part_of_the_time_loses_nothing_at_its_ends(spark: SparkSession, server: EmbeddedServer) -> None:
    with server.connect(enable_trace=True) as mq:
        for number in range(4):
            mq.send("orders", b"%d" % number)
        last = max(message.store_timestamp_ms for message in mq.admin.browse("orders"))
    place = Place({"nameServer": server.name_server})
    for chosen in (
        Selection(since=datetime.fromtimestamp((last + 1) / 1000, UTC)),
        Selection(until=datetime.fromtimestamp(last / 1000 - 3600, UTC)),
    ):
        outcome = audit(spark, place=place, topics=["orders"], selection=chosen)
        assert table(outcome, "topics") == [counts()]
        assert outcome.is_good


def test_messages_on_the_timer_wheel_wait_until_they_are_due_or_taken_back(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [
            ("orders", "DUE", 1_000, 1_500, None),
            ("orders", "LATER", 1_000, 9_000, None),
            ("orders", "RECALLED", 1_000, 9_000, None),
            ("orders", "OTHER", 2_000, 9_000, "RECALLED"),
        ],
        "topic string, msgId string, storedMs long, dueMs long, takenBack string",
    )
    for now_ms in (2_000, None):
        found = {row.msgId: row.state for row in _timed(rows, now_ms).collect()}
        assert found == {"LATER": "waiting", "RECALLED": "recalled"}


def kept_store(folder: Path) -> Path:
    """A store that a broker left: messages of every kind, and a group that has consumed two of three."""
    with embedded(store=folder) as server:
        fill_of_every_kind(server)
        with server.connect() as mq, mq.pull_consumer(group="billing") as consumer:
            queue = MessageQueue("orders", "embedded", 0)
            consumer.assign([queue])
            consumer.commit({queue: 2})
    return folder


def test_audit_of_a_store_directory_tells_what_its_broker_would(spark: SparkSession, tmp_path: Path) -> None:
    folder = kept_store(tmp_path / "kept")
    for given in (str(folder), f"broker-a={folder}"):
        outcome = audit(spark, place=Place({"store": given}), topics=["orders"])
        assert table(outcome, "topics") == [counts(produced=6, stored=3, not_yet_due=1, withheld=2)]
        assert outcome.is_good
        (group,) = table(outcome, "groups")
        assert (group["group"], group["committed"], group["waiting"]) == ("billing", 2, 1)


def test_audit_without_traces_says_unknown_and_never_nothing(spark: SparkSession, server: EmbeddedServer) -> None:
    with server.connect() as mq:
        mq.send("orders", b"x")
    outcome = audit(spark, place=Place({"nameServer": server.name_server}), topics=["orders"])
    assert table(outcome, "topics") == [counts(produced=UNKNOWN, stored=1, withheld=UNKNOWN, lost=UNKNOWN)]
    assert outcome.facts["lost"] == UNKNOWN
    assert outcome.is_good


def test_audit_of_a_topic_that_is_not_there_names_those_that_are(spark: SparkSession, server: EmbeddedServer) -> None:
    with server.connect() as mq:
        mq.send("orders", b"x")
    with pytest.raises(FuseeError, match="there are .*orders"):
        audit(spark, place=Place({"nameServer": server.name_server}), topics=["oders"])


def test_audit_of_a_cluster_under_tls_asks_its_brokers_by_tls(
    spark: SparkSession, name_server: str, certificate: tuple[Path, Path]
) -> None:
    trusted = str(certificate[0])
    with fusee.sync.connect(name_server, tls=client_context(ca_file=trusted)) as mq:
        mq.admin.create_topic("payments")
        mq.send("payments", b"x")
        with mq.pull_consumer("payments", group="billing") as consumer:
            consumer.poll()
            consumer.commit()
    place = Place({"nameServer": name_server, "tlsCaFile": trusted})
    outcome = audit(spark, place=place, topics=["payments"])
    assert outcome.facts["stored"] == 1
    (group,) = table(outcome, "groups")
    assert (group["group"], group["committed"], group["waiting"]) == ("billing", 1, 0)

"""Replays: chosen messages once, in order, at a rate, resumable, and never in circles."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fusee.errors import ConfigError
from fusee.message.model import MessageQueue
from fusee.pipeline.jobs.archive import archive, compact
from fusee.pipeline.jobs.catalog import Catalog
from fusee.pipeline.jobs.folders import Folder
from fusee.pipeline.jobs.replay import ORIGIN, REPLAYS, replay
from fusee.pipeline.jobs.selection import Selection
from fusee.pipeline.jobs.tables import Place
from tests.cli.scene import wait_for
from tests.pipeline.written import messages_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fusee.client.received import ReceivedMessage
    from fusee.sync import EmbeddedServer


def resumable(server: EmbeddedServer, state: Path) -> dict[str, Any]:
    """Of a replay of orders to the topic `again` of the same cluster, which its state remembers."""
    here = {"nameServer": server.name_server}
    return {"place": Place(here), "topics": ["orders"], "sink": here, "to_topic": "again", "state_path": state}


def fill(server: EmbeddedServer, count: int) -> None:
    server.create_topics({"orders": 2, "again": 2})
    with server.connect() as mq:
        for number in range(count):
            mq.send("orders", b"%d" % number, tag="ab"[number % 2], key=f"k{number}", properties={"region": "eu"})


def read(server: EmbeddedServer, topic: str) -> list[ReceivedMessage]:
    with server.connect() as mq:
        return list(mq.admin.browse(topic))


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)


def test_replay_sends_what_is_chosen_once_in_order_with_its_origin(spark: SparkSession, server: EmbeddedServer) -> None:
    fill(server, 20)
    here = {"nameServer": server.name_server}
    outcome = replay(
        spark,
        place=Place(here),
        topics=["orders"],
        sink=here,
        to_topic="again",
        selection=Selection(tags=("a",)),
        chunk_rows=6,
    )
    assert outcome.facts["sent"] == 10
    found = read(server, "again")
    assert numbers(found) == list(range(0, 20, 2))
    for queue_id in (0, 1):
        in_queue = [
            int(one.body) for one in sorted(found, key=lambda one: one.queue_offset) if one.queue_id == queue_id
        ]
        assert in_queue == sorted(in_queue)
    one = next(message for message in found if message.body == b"4")
    assert (one.tag, one.keys, one.properties["region"], one.properties[REPLAYS]) == ("a", ("k4",), "eu", "1")
    assert one.properties[ORIGIN].startswith("orders/")


def test_replay_into_its_own_topic_goes_round_once(spark: SparkSession, server: EmbeddedServer) -> None:
    fill(server, 6)
    here = {"nameServer": server.name_server}
    first = replay(spark, place=Place(here), topics=["orders"], sink=here)
    assert first.facts["sent"] == 6
    second = replay(spark, place=Place(here), topics=["orders"], sink=here)
    assert (second.facts["sent"], second.facts["held back by the loop guard"]) == (6, 6)
    assert len(read(server, "orders")) == 18
    third = replay(spark, place=Place(here), topics=["orders"], sink=here, generations_max=2, dry_run=True)
    assert third.facts["would be sent"] == 18
    assert len(read(server, "orders")) == 18


def test_replay_that_is_stopped_goes_on_where_it_was(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    fill(server, 12)
    state = tmp_path / "state.json"
    arguments = resumable(server, state)
    stops = iter([False, True])
    first = replay(spark, **arguments, chunk_rows=4, is_stopped=lambda: next(stops, True))
    assert not first.is_good
    assert 0 < len(read(server, "again")) < 12
    second = replay(spark, **arguments)
    assert second.is_good
    assert numbers(read(server, "again")) == list(range(12))
    with pytest.raises(ConfigError, match="another replay"):
        replay(spark, **{**arguments, "to_topic": "orders"})


def test_replay_of_a_chunk_that_was_sent_already_sends_nothing_twice(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    """As when the program dies between the sink's commit and the state file."""
    fill(server, 8)
    state = tmp_path / "state.json"
    arguments = resumable(server, state)
    stops = iter([False, True])
    replay(spark, **arguments, chunk_rows=4, is_stopped=lambda: next(stops, True))
    text = state.read_text()
    replay(spark, **arguments)
    state.write_text(text)
    replay(spark, **arguments)
    assert numbers(read(server, "again")) == list(range(8))


def test_replay_of_an_archive(spark: SparkSession, server: EmbeddedServer, tmp_path: Path) -> None:
    fill(server, 10)
    here = {"nameServer": server.name_server}
    archive(spark, to=str(tmp_path / "a"), topics=["orders"], source=here)
    outcome = replay(
        spark,
        place=Place({}, str(tmp_path / "a")),
        topics=["orders"],
        sink=here,
        to_topic="again",
        selection=Selection(where="cast(cast(body as string) as int) >= 4", keys=("k4", "k5", "k1")),
    )
    assert outcome.facts["sent"] == 2
    assert numbers(read(server, "again")) == [4, 5]


def test_replay_keeps_its_rate(spark: SparkSession, server: EmbeddedServer) -> None:
    fill(server, 9)
    here = {"nameServer": server.name_server}
    began = time.monotonic()
    replay(spark, place=Place(here), topics=["orders"], sink=here, to_topic="again", rate=3)
    assert time.monotonic() - began >= 3.0
    assert numbers(read(server, "again")) == list(range(9))
    with pytest.raises(ConfigError, match="sends nothing"):
        replay(spark, place=Place(here), topics=["orders"], sink=here, rate=0)


def test_replay_of_an_archive_keeps_its_rate_within_a_large_file(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    server.create_topics({"orders": 1, "again": 1})
    with server.connect() as mq:
        for number in range(12):
            mq.send("orders", b"%d" % number)
    here, to = {"nameServer": server.name_server}, str(tmp_path / "a")
    archive(spark, to=to, topics=["orders"], source=here)
    assert max(one.rows for one in Catalog(Folder(spark, to)).files()) > 4
    began = time.monotonic()
    outcome = replay(spark, place=Place({}, to), topics=["orders"], sink=here, to_topic="again", rate=4)
    assert time.monotonic() - began >= 3.0
    assert [row[1] for row in outcome.tables[0].rows] == [4, 4, 4]
    assert [int(message.body) for message in read(server, "again")] == list(range(12))


def test_replay_planned_without_a_rate_is_not_resumed_at_one_that_it_cannot_keep(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    fill(server, 8)
    state = tmp_path / "state.json"
    arguments = resumable(server, state)
    looked = replay(spark, **arguments, dry_run=True)
    assert looked.facts["would be sent"] == 8
    assert not state.exists()
    replay(spark, **arguments, is_stopped=lambda: True)
    with pytest.raises(ConfigError, match="or without a rate"):
        replay(spark, **arguments, rate=4)
    assert read(server, "again") == []
    assert replay(spark, **arguments).facts["sent"] == 8
    assert replay(spark, **arguments, dry_run=True).facts["would be sent"] == 0


@pytest.mark.parametrize("chunk_rows", [7, 100])
def test_replay_of_an_archive_whose_older_files_were_put_together_keeps_the_order_of_queues(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path, chunk_rows: int
) -> None:
    here, to = {"nameServer": server.name_server}, str(tmp_path / "a")
    server.create_topics({"orders": 2, "again": 3})
    for turn in range(4):
        with server.connect() as mq:
            for number in range(turn * 10, turn * 10 + 10):
                mq.send("orders", b"%d" % number, queue=MessageQueue("orders", "embedded", number % 2))
        archive(spark, to=to, topics=["orders"], source=here, compact_after=turn == 2)
    names = {one.path.rpartition("/")[2][0] for one in Catalog(Folder(spark, to)).files()}
    assert names == {"b", "c"}
    replay(spark, place=Place({}, to), topics=["orders"], sink=here, to_topic="again", chunk_rows=chunk_rows)
    arrived: dict[int, list[int]] = {0: [], 1: []}
    for found in messages_in(server.name_server, "again").values():
        for message in found:
            arrived[int(message.body) % 2].append(int(message.body))
    assert arrived == {0: list(range(0, 40, 2)), 1: list(range(1, 40, 2))}


def test_replay_that_goes_on_when_files_were_put_together_meanwhile_sends_the_rest_once(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    here, to = {"nameServer": server.name_server}, str(tmp_path / "a")
    fill(server, 10)
    archive(spark, to=to, topics=["orders"], source=here, compact_after=False)
    with server.connect() as mq:
        for number in range(10, 20):
            mq.send("orders", b"%d" % number)
    archive(spark, to=to, topics=["orders"], source=here, compact_after=False)
    arguments: dict[str, Any] = {
        "place": Place({}, to),
        "topics": ["orders"],
        "sink": here,
        "to_topic": "again",
        "state_path": tmp_path / "state.json",
        "chunk_rows": 6,
    }
    stops = iter([False, True])
    replay(spark, **arguments, is_stopped=lambda: next(stops, True))
    assert 0 < len(read(server, "again")) < 20
    assert compact(spark, archive_path=to).facts["changes"] == 1
    assert replay(spark, **arguments).facts["sent"] == 20
    assert numbers(read(server, "again")) == list(range(20))


@pytest.mark.parametrize("is_archived", [False, True])
def test_replay_by_time_takes_what_was_stored_then(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path, is_archived: bool
) -> None:
    server.create_topics({"orders": 2, "again": 2})
    moments = []
    for start in (0, 3, 7):
        # Whole milliseconds, as messages have, between what was sent and what will be.
        soon = server.now + timedelta(milliseconds=2)
        moments.append(soon.replace(microsecond=soon.microsecond // 1000 * 1000))
        wait_for(lambda: server.now >= moments[-1])
        with server.connect() as mq:
            for number in range(start, start + 4 if start else 3):
                mq.send("orders", b"%d" % number)
    here = {"nameServer": server.name_server}
    place = Place(here)
    if is_archived:
        archive(spark, to=str(tmp_path / "a"), topics=["orders"], source=here)
        place = Place({}, str(tmp_path / "a"))
    selection = Selection(since=moments[1], until=moments[2])
    arguments: dict[str, Any] = {
        "place": place,
        "topics": ["orders"],
        "sink": here,
        "to_topic": "again",
        "selection": selection,
    }
    assert replay(spark, **arguments, dry_run=True).facts["would be sent"] == 4
    assert replay(spark, **arguments).facts["sent"] == 4
    assert numbers(read(server, "again")) == [3, 4, 5, 6]

"""Replays: chosen messages once, in order, at a rate, resumable, and never in circles."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fusee.errors import ConfigError
from fusee.pipeline.jobs.archive import archive
from fusee.pipeline.jobs.replay import ORIGIN, REPLAYS, replay
from fusee.pipeline.jobs.selection import Selection
from fusee.pipeline.jobs.tables import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fusee.client.received import ReceivedMessage
    from fusee.sync import EmbeddedServer


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
    here, state = {"nameServer": server.name_server}, tmp_path / "state.json"
    stops = iter([False, True])
    arguments = {"place": Place(here), "topics": ["orders"], "sink": here, "to_topic": "again", "state_path": state}
    first = replay(spark, **arguments, chunk_rows=4, is_stopped=lambda: next(stops, True))  # type: ignore[arg-type]
    assert not first.is_good
    assert 0 < len(read(server, "again")) < 12
    second = replay(spark, **arguments)  # type: ignore[arg-type]
    assert second.is_good
    assert numbers(read(server, "again")) == list(range(12))
    with pytest.raises(ConfigError, match="another replay"):
        replay(spark, **{**arguments, "to_topic": "orders"})  # type: ignore[arg-type]


def test_replay_of_a_chunk_that_was_sent_already_sends_nothing_twice(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    """As when the program dies between the sink's commit and the state file."""
    fill(server, 8)
    here, state = {"nameServer": server.name_server}, tmp_path / "state.json"
    arguments = {"place": Place(here), "topics": ["orders"], "sink": here, "to_topic": "again", "state_path": state}
    stops = iter([False, True])
    replay(spark, **arguments, chunk_rows=4, is_stopped=lambda: next(stops, True))  # type: ignore[arg-type]
    text = state.read_text()
    replay(spark, **arguments)  # type: ignore[arg-type]
    state.write_text(text)
    replay(spark, **arguments)  # type: ignore[arg-type]
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

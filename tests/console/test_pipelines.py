"""Spark streams by their checkpoints: which batch is done, and how many messages are still to come."""

from __future__ import annotations

from pathlib import Path

from fusee.admin.stream_groups import NAMESPACE, StreamMark
from tests.console.world import World, browsing, checkpoint


def test_a_stream_tells_its_batches_and_how_far_it_is_behind(world: World, tmp_path: Path) -> None:
    checkpoint(tmp_path / "jobs" / "archive", "embedded")
    foreign = tmp_path / "kafka"
    for part in ("offsets", "commits"):
        (foreign / part).mkdir(parents=True)
        (foreign / part / "0").write_text('v1\n{}\n{"orders":{"0":5}}\n')
    (foreign / "metadata").write_text("{}")
    (tmp_path / "empty").mkdir()
    with browsing(world.name_server, pipelines=tmp_path) as browser:
        streams = {line["name"]: line for line in browser.api("/pipelines")["streams"]["value"]}
        archive = streams["jobs/archive"]
        assert (archive["planned_batch"], archive["done_batch"], archive["batch_lag"]) == (4, 3, 1)
        assert archive["topics"] == ["orders"]
        ends = {
            queue["queue"]["queue_id"]: queue["max_offset"]
            for queue in browser.api("/topics/orders")["state"]["value"]["queues"]
        }
        assert archive["lag"]["value"] == (ends[0] - 1) + (ends[1] - 2)
        assert streams["kafka"]["lag"]["value"] is None
        assert "not of Fusee" in streams["kafka"]["lag"]["cause"]
        assert set(streams) == {"jobs/archive", "kafka"}


def test_groups_of_streams_are_shown_by_their_marks_whatever_their_names(world: World) -> None:
    admin = world.mq.admin
    admin.mark_stream_group("billing", StreamMark(engine="spark", since_ms=1_767_225_600_000))
    admin.mark_stream_group("deleted-since", StreamMark(engine="spark", since_ms=1))
    admin.put_kv(NAMESPACE, "not-a-mark", "5")
    with browsing(world.name_server) as browser:
        while browser.console.context.history.figures is None:
            browser.get("/ready")
        (line,) = browser.api("/pipelines")["groups"]["value"]
        group = browser.api("/groups/billing")
        assert (line["group"], line["engine"], line["since_ms"]) == ("billing", "spark", 1_767_225_600_000)
        assert "orders" in line["topics"]
        assert line["lag"]["value"] == group["lag"]
        assert 'href="/groups/billing"' in browser.get("/pipelines")


def test_groups_are_unknown_while_no_name_server_answers() -> None:
    with browsing("127.0.0.1:1") as browser:
        page = browser.api("/pipelines")
        assert page["groups"]["value"] is None
        assert "127.0.0.1:1" in page["groups"]["cause"]


def test_a_folder_that_is_not_there_is_unknown(world: World, tmp_path: Path) -> None:
    with browsing(world.name_server, pipelines=tmp_path / "missing") as browser:
        page = browser.api("/pipelines")
        assert page["streams"]["value"] is None
        assert "cannot be read" in page["streams"]["cause"]
    with browsing(world.name_server) as browser:
        assert "--pipelines" in browser.get("/pipelines")

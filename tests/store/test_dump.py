"""`dump` finds records by queue, topic, key and time, and says where it could not read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fusee.errors import StoreError
from fusee.message.model import StoredMessage
from fusee.store.offline.dump import Selection, Unreadable, select
from fusee.store.offline.files import OfflineStore
from tests.golden.store import lines, unpack
from tests.store.offline_stores import TIME_MS, HandmadeStore, fill, flip, patch


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("clean", tmp_path_factory.mktemp("dump"))


def dump(root: Path, **wanted: object) -> list[StoredMessage]:
    found, unreadable = dump_all(root, **wanted)
    assert unreadable == []
    return found


def dump_all(root: Path, **wanted: object) -> tuple[list[StoredMessage], list[Unreadable]]:
    with OfflineStore(root) as store:
        everything = list(select(store, Selection(**wanted)))  # type: ignore[arg-type]
    found = [item for item in everything if isinstance(item, StoredMessage)]
    return found, [item for item in everything if isinstance(item, Unreadable)]


def test_everything_comes_in_log_order_as_java_reads_it(clean: Path) -> None:
    found = [(message.log_offset, message.topic, message.body.hex()) for message in dump(clean)]
    assert found == [(line["commitLogOffset"], line["topic"], line["body"]) for line in lines("clean", "record")]


def test_every_queue_gives_the_messages_that_java_pulls(clean: Path) -> None:
    for line in lines("clean", "queue"):
        if not line["messages"] or line["topic"] == "StoreBcq":
            continue
        found = dump(clean, topic=line["topic"], queue_id=line["queueId"])
        assert [[each.queue_offset, each.log_offset, each.store_size] for each in found] == line["messages"]


def test_queue_of_batches_gives_each_batch_once(clean: Path) -> None:
    found = dump(clean, topic="StoreBcq", queue_id=0)
    assert len(found) == 4
    second = found[1].queue_offset
    assert [each.log_offset for each in dump(clean, topic="StoreBcq", queue_id=0, start=second + 1)] == [
        each.log_offset for each in found[1:]
    ]


def test_every_index_look_up_gives_what_java_answers(clean: Path) -> None:
    for line in lines("clean", "index"):
        if len(line["commitLogOffsets"]) >= 64:
            continue  # Java stops there
        found = dump(clean, topic=line["topic"], key=line["key"])
        assert [message.log_offset for message in found] == line["commitLogOffsets"]


def test_key_without_topic_or_index_is_searched_in_the_log(clean: Path, tmp_path: Path) -> None:
    line = next(line for line in lines("clean", "index") if len(line["commitLogOffsets"]) == 1)
    assert line["commitLogOffsets"][0] in [message.log_offset for message in dump(clean, key=line["key"])]
    bare = tmp_path / "bare"
    shutil.copytree(clean, bare)
    shutil.rmtree(bare / "index")
    for scan in (False, True):
        found = dump(bare, topic=line["topic"], key=line["key"], scan=scan)
        assert [message.log_offset for message in found] == line["commitLogOffsets"]


@pytest.mark.parametrize("scan", [False, True])
def test_topic_comes_in_log_order_from_all_its_queues(clean: Path, scan: bool) -> None:
    expected = [line["commitLogOffset"] for line in lines("clean", "record") if line["topic"] == "StoreNormal"]
    assert [message.log_offset for message in dump(clean, topic="StoreNormal", scan=scan)] == expected
    middle = expected[70]
    assert [message.log_offset for message in dump(clean, topic="StoreNormal", start=middle, scan=scan)] == expected[
        70:
    ]


@pytest.mark.parametrize("scan", [False, True])
def test_start_is_a_queue_offset_when_there_is_a_queue(clean: Path, scan: bool) -> None:
    found = dump(clean, topic="StoreNormal", queue_id=2, start=40, scan=scan)
    assert [message.queue_offset for message in found] == list(range(40, 46))


@pytest.mark.parametrize(
    "place",
    [{}, {"topic": "StoreNormal"}, {"topic": "StoreNormal", "queue_id": 1}, {"topic": "StoreNormal", "scan": True}],
)
def test_times_bound_what_comes(clean: Path, place: dict[str, object]) -> None:
    everything = dump(clean, **place)
    since, until = (everything[len(everything) * part // 3].store_timestamp_ms for part in (1, 2))
    found = dump(clean, **place, since_ms=since, until_ms=until)
    expected = [each.log_offset for each in everything if since <= each.store_timestamp_ms <= until]
    assert [message.log_offset for message in found] == expected
    assert dump(clean, **place, since_ms=everything[-1].store_timestamp_ms + 10**6) == []


def test_log_begins_at_the_file_of_the_time(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path, log_size=4096)
    for number in range(100):
        made.put(queue_offset=number)
    root = made.write()
    found = dump(root, since_ms=TIME_MS + 90)
    assert [message.queue_offset for message in found] == list(range(89, 100))
    patch(root / "commitlog" / f"{0:020d}", 300, bytes(200))  # the first file is not even looked at
    assert len(dump(root, since_ms=TIME_MS + 90)) == 11


def test_damage_is_told_and_passed_over(tmp_path: Path) -> None:
    made = fill(HandmadeStore(tmp_path), 20)
    root = made.write()
    bad = made.places[7][0]
    flip(root / "commitlog" / f"{0:020d}", bad + 4)
    for wanted in ({}, {"topic": "orders"}, {"topic": "orders", "queue_id": 1}, {"topic": "orders", "scan": True}):
        found, unreadable = dump_all(root, **wanted)
        assert [place.log_offset for place in unreadable] == [bad]
        assert (unreadable[0].file, unreadable[0].position) == (f"commitlog/{0:020d}", bad)
        assert len(found) == (9 if "queue_id" in wanted else 19)


def test_start_that_is_no_record_names_the_next_one(tmp_path: Path) -> None:
    made = fill(HandmadeStore(tmp_path), 5)
    root = made.write()
    with pytest.raises(StoreError, match=f"the next one is at {made.places[2][0]}"):
        dump(root, start=made.places[1][0] + 3)
    assert len(dump(root, start=made.places[3][0])) == 2


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"topic": "nothing"}, "there are .*orders"),
        ({"topic": "nothing", "queue_id": 0}, "no consume queue of topic nothing"),
        ({"topic": "orders", "queue_id": 9}, "it has 0, 1"),
        ({"queue_id": 1}, "give the topic too"),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, wanted: dict[str, object], says: str) -> None:
    root = fill(HandmadeStore(tmp_path), 4).write()
    with pytest.raises(StoreError, match=says):
        dump(root, **wanted)


def test_blanks_and_expired_entries_of_a_queue_are_passed_over(tmp_path: Path) -> None:
    made = HandmadeStore(tmp_path)
    made.base = made.log_size
    made.entry("orders", 0, 0, 0, 0x7FFFFFFF)
    for number in range(1, 4):
        made.entry("orders", 0, number, number * 100, 100)
    for number in range(4, 8):
        made.put(queue_offset=number)
    assert [message.queue_offset for message in dump(made.write(), topic="orders", queue_id=0, start=0)] == [4, 5, 6, 7]

"""Changes: done, written down, put back; refused without the token; what fails is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusee.clock import SystemClock
from fusee.console.audit import Audit
from fusee.console.changes import CHANGES
from tests.console.world import ORDERS, Browser, World, browsing, furnished


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Browser, Path]]:
    folder = tmp_path_factory.mktemp("console")
    with furnished() as world, browsing(world.name_server, folder) as browser:
        yield world, browser, folder


def test_a_topic_is_made_changed_used_and_deleted(place: tuple[World, Browser, Path]) -> None:
    world, browser, _ = place
    browser.change("create-topic", topic="letters", queues=2)
    assert browser.api("/topics/letters")["state"]["value"]["queues"][1]["queue"]["queue_id"] == 1
    browser.change("update-topic", topic="letters", queues=3)
    assert browser.api("/topics/letters")["settings"]["value"][0]["write_queues"] == 3
    sent = browser.change("send", topic="letters", body="00ff", encoding="hex", tag="t")
    message = browser.api("/topics/letters/messages")["messages"]["value"][0]
    assert message["message_id"] == sent["figures"]["message_id"]
    assert message["body"]["size"] == 2
    assert "once more" in browser.change("delete-topic", 400, topic="letters", confirm="letter")["error"]
    browser.change("delete-topic", topic="letters", confirm="letters")
    assert "letters" not in world.mq.admin.list_topics()


def test_offsets_are_moved_and_put_back(place: tuple[World, Browser, Path]) -> None:
    world, browser, _ = place

    def committed() -> dict[int, int | None]:
        return {
            each.queue.queue_id: each.committed_offset for each in world.mq.admin.committed_offsets("billing", "orders")
        }

    before = committed()
    preview = browser.api("/groups/billing/reset?topic=orders&to=last")
    assert committed() == before, "a preview changes nothing"
    done = browser.change("reset-offsets", group="billing", topic="orders", to="last")
    planned = {each["queue"]["queue_id"]: each["after"] for each in preview["changes"]["value"]["changes"]}
    assert committed() == planned
    browser.change("undo", number=done["audit"])
    assert {queue: at for queue, at in committed().items() if before[queue] is not None} == {
        queue: at for queue, at in before.items() if at is not None
    }
    assert "put back already" in browser.change("undo", 400, number=done["audit"])["error"]
    entry = next(each for each in browser.api("/audit")["entries"] if each["number"] == done["audit"])
    assert entry["undone_by"]


def test_one_queue_is_moved_within_its_bounds(place: tuple[World, Browser, Path]) -> None:
    _, browser, _ = place
    values: dict[str, Any] = {"group": "billing", "topic": "orders", "broker_name": "embedded", "queue_id": 0}
    browser.change("set-offset", queue_offset=1, **values)
    queues = browser.api("/groups/billing")["queues"]["value"]
    assert (
        next(
            each["queue"]["committed_offset"]
            for each in queues
            if each["queue"]["queue"] == {"topic": "orders", "broker_name": "embedded", "queue_id": 0}
        )
        == 1
    )
    assert "offsets 0 to" in browser.change("set-offset", 400, queue_offset=ORDERS * 9, **values)["error"]


def test_dead_letters_are_given_again(place: tuple[World, Browser, Path]) -> None:
    world, browser, _ = place
    letter = browser.api("/dead-letters/billing")["letters"]["value"][0]
    dry = browser.change("replay", group="billing", dry_run=True)
    assert dry["figures"] == {"would be replayed": 1}
    assert browser.change("replay", group="billing", offset_id=letter["offset_id"])["figures"] == {"replayed": 1}
    assert world.mq.admin.topic_stats("%RETRY%billing").count == 1
    assert browser.change("replay", 404, group="billing", offset_id="7F" * 16)["error"]


def test_a_transaction_is_decided_in_place_of_its_producer(place: tuple[World, Browser, Path]) -> None:
    _, browser, _ = place
    waiting = browser.api("/pending")["transactions"]["value"][0]
    browser.change("end-transaction", transaction_id=waiting["transaction_id"], verdict="commit")


def test_a_setting_is_changed_and_put_back(place: tuple[World, Browser, Path]) -> None:
    world, browser, _ = place
    done = browser.change("change-setting", name="defaultTopicQueueNums", value="7")
    assert world.mq.admin.broker_config("embedded")["defaultTopicQueueNums"] == "7"
    browser.change("undo", number=done["audit"])
    assert world.mq.admin.broker_config("embedded")["defaultTopicQueueNums"] != "7"
    assert "no broker has a setting" in browser.change("change-setting", 400, name="nonsense", value="1")["error"]


def test_a_form_leads_back_with_what_was_done_or_why_not(place: tuple[World, Browser, Path]) -> None:
    _, browser, _ = place
    answer = browser.submit("send", topic="orders", body="by form", back="/topics/orders")
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics/orders")
    assert "sent: SEND_OK" in browser.get("/topics/orders")
    assert "sent: SEND_OK" not in browser.get("/topics/orders"), "a note is shown once"
    browser.submit("send", topic="orders", body="x", encoding="hex", back="/topics/orders")
    assert "is no hex" in browser.get("/topics/orders")
    assert browser.submit("send", topic="orders", body="x", back="//elsewhere").headers["location"] == "/topics/orders"


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_nothing_is_changed_without_the_token(place: tuple[World, Browser, Path], change: object) -> None:
    _, browser, _ = place
    name = change.name  # type: ignore[attr-defined]
    entries = len(browser.api("/audit")["entries"])
    assert browser.client.post(f"/changes/{name}", data={}).status_code == 403
    assert browser.client.post(f"/api/changes/{name}", json={}).status_code == 403
    wrong = {"X-CSRF-Token": "wrong"}
    assert browser.client.post(f"/api/changes/{name}", json={}, headers=wrong).status_code == 403
    elsewhere = {"X-CSRF-Token": browser.csrf, "Sec-Fetch-Site": "cross-site"}
    assert browser.client.post(f"/api/changes/{name}", json={}, headers=elsewhere).status_code == 403
    assert len(browser.api("/audit")["entries"]) == entries
    assert browser.change(name, 400)["error"]


def test_the_log_outlives_the_console_and_has_failures(place: tuple[World, Browser, Path]) -> None:
    _, browser, folder = place
    browser.change("reset-offsets", 404, group="billing", topic="nowhere", to="last")
    audit = Audit(folder, SystemClock())
    audit.load()
    newest = audit.newest(1)[0]
    assert newest.action == "reset-offsets"
    assert newest.outcome.startswith("failed: ")
    assert newest.who.startswith("anybody at ")

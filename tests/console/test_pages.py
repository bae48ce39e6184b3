"""Every page and its JSON, with data; and what they say when nothing answers."""

from __future__ import annotations

import re

import pytest

from fusee.console.pages import PAGES
from tests.console.world import ORDERS, Browser, World, browsing

PATHS = [
    "/",
    "/cluster",
    "/topics",
    "/topics?kinds=all",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages?key=order-3",
    "/topics/payments/messages?form=hex",
    "/groups",
    "/groups/billing",
    "/groups/billing/reset?topic=orders&to=first",
    "/groups/billing/members/nobody",
    "/messages",
    "/dead-letters",
    "/dead-letters/billing",
    "/pending",
    "/pipelines",
    "/configuration",
    "/audit",
]


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_shown_without_anything_inline(browser: Browser, path: str) -> None:
    text = browser.get(path)
    assert "<title>" in text
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|javascript:", text)
    assert not re.search(r"(src|href|action)=\"(https?:)?//", text), "everything comes from this server"


def test_every_page_of_the_table_is_among_them() -> None:
    for page in PAGES:
        if page.template and "{message_id}" not in page.path:
            pattern = re.sub(r"\\\{\w+\\\}", "[^/?]+", re.escape(page.path))
            assert any(re.fullmatch(pattern, path.partition("?")[0]) for path in PATHS), page.path


def test_overview_counts_and_samples(browser: Browser) -> None:
    found = browser.api("/overview")
    assert found["topics"]["value"] >= 3
    assert found["dead_letter_topics"]["value"] == 1
    assert found["brokers"]["value"][0]["role"] == "master"
    assert found["put_today"] >= ORDERS
    assert found["samples"], "the first sample is taken at the start"


def test_topics_are_searched_and_paged_and_counted(browser: Browser) -> None:
    page = browser.api("/topics?search=ORD")
    assert [line["topic"] for line in page["topics"]["value"]] == ["orders"]
    assert browser.api("/topics?search=nothing-like-it")["total"] == 0
    counts = {each["topic"]: each for each in browser.api("/topic-counts?topics=orders,nowhere")["counts"]}
    assert counts["orders"]["count"] == ORDERS
    assert counts["nowhere"]["count"] is None
    assert "nowhere" in counts["nowhere"]["cause"]
    kinds = {line["topic"]: line["kind"] for line in browser.api("/topics?kinds=all")["topics"]["value"]}
    assert kinds["%DLQ%billing"] == "dead letters"
    assert kinds["RMQ_SYS_TRANS_HALF_TOPIC"] == "system"


def test_bodies_are_decoded_as_what_they_are(browser: Browser) -> None:
    forms = {
        message["body"]["text"]: message["body"]["form"]
        for message in browser.api("/topics/payments/messages")["messages"]["value"]
    }
    assert forms.pop("grüße, 1 €") == "text"
    assert list(forms.values()) == ["hex"]
    message = browser.api("/topics/orders/messages?key=order-3")["messages"]["value"][0]
    assert message["body"]["form"] == "json"
    assert '"order": 3' in message["body"]["text"]


def test_browse_by_time_and_queue(browser: Browser) -> None:
    everything = browser.api("/topics/orders/messages?begin=2020-01-01&limit=5")
    assert len(everything["messages"]["value"]) == 5
    assert everything["is_more"]
    one = browser.api("/topics/orders/messages?queue=embedded/1")["messages"]["value"]
    assert {message["queue"]["queue_id"] for message in one} == {1}
    assert browser.api("/topics/orders/messages?begin=yesterday", 200)["messages"]["cause"]
    assert "one of auto" in browser.api("/topics/orders/messages?form=xml", 400)["error"]


def test_group_shows_lag_of_each_queue_and_where_it_goes(browser: Browser) -> None:
    page = browser.api("/groups/billing")
    of_orders = [line for line in page["queues"]["value"] if line["queue"]["queue"]["topic"] == "orders"]
    assert len(of_orders) == 4
    assert page["lag"] == sum(line["lag"] for line in page["queues"]["value"]) > 0
    listed = {line["group"]: line for line in browser.api("/groups")["groups"]["value"]}
    assert listed["billing"]["lag"] == page["lag"]
    preview = browser.api("/groups/billing/reset?topic=orders&to=first")
    assert preview["changes"]["value"]["is_dry_run"]
    assert "name a topic" in browser.api("/groups/billing/reset", 400)["error"]


def test_life_of_a_dead_letter_is_told_from_birth(browser: Browser) -> None:
    letter = browser.api("/dead-letters/billing")["letters"]["value"][0]
    page = browser.api(f"/messages/{letter['message_id']}?topic=orders")
    what = [event["what"] for event in page["events"]]
    assert what[:2] == ["born", "stored"]
    assert "dead" in what
    text = browser.get(f"/messages/{letter['offset_id']}?topic=%25DLQ%25billing")
    assert "Life" in text
    missing = browser.api("/messages/7F0000010000000000000000000000FF?topic=orders")
    assert missing["message"]["value"] is None
    assert missing["message"]["cause"]


def test_pending_has_transactions_and_delays(browser: Browser) -> None:
    page = browser.api("/pending")
    assert [each["topic"] for each in page["transactions"]["value"]] == ["orders"]
    assert [each["topic"] for each in page["waiting"]["value"]] == ["reminders"]
    assert sum(level["waiting"] for level in page["delays"]["value"]["levels"]) == 1


def test_configuration_is_side_by_side(browser: Browser) -> None:
    page = browser.api("/configuration?search=queueNums")
    assert page["brokers"]["value"] == ["embedded"]
    assert {line["name"] for line in page["settings"]} == {"defaultTopicQueueNums"}


def test_openapi_describes_every_path(browser: Browser) -> None:
    found = browser.api("/openapi.json")
    assert found["openapi"].startswith("3.1")
    assert "/api/overview" in found["paths"]
    assert "/api/changes/reset-offsets" in found["paths"]
    names = set(re.findall(r"#/components/schemas/([\w\[\], .]+)", str(found["paths"])))
    assert names <= set(found["components"]["schemas"])


def test_what_does_not_answer_is_unknown_and_never_nothing() -> None:
    with browsing("127.0.0.1:1") as alone:
        page = alone.api("/overview")
        assert page["put_tps"] is None
        assert page["lag"] is None
        assert page["topics"]["value"] is None
        assert "127.0.0.1:1" in page["topics"]["cause"]
        for path in ("/", "/cluster", "/topics", "/groups", "/groups/x", "/topics/x", "/dead-letters", "/pending"):
            text = alone.get(path)
            assert "unknown" in text, path
            assert not re.search(r"<strong[^>]*>0", text), path


def test_a_broker_that_stopped_is_unknown_while_the_rest_is_told(world: World) -> None:
    import fusee.sync

    with fusee.sync.embedded(topics=["orders"]) as server, browsing(server.name_server) as browser:
        assert browser.api("/overview")["put_tps"] is not None
        server.stop_broker()
        browser.console.context.link._kept.clear()
        page = browser.api("/overview")
        assert page["put_tps"] is None
        assert browser.api("/topic-counts?topics=orders")["counts"][0]["count"] is None


def test_pages_that_are_not_there_say_so(browser: Browser) -> None:
    assert "404" in browser.get("/nonsense", 404)
    assert browser.api("/nonsense", 404)["error"]


def test_metrics_are_of_servers_beside_it(browser: Browser) -> None:
    assert browser.get("/health") == "ok\n"
    assert "beside no server" in browser.get("/metrics", 404)

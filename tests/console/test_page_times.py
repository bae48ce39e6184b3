"""How long a page takes when there are a thousand topics."""

from __future__ import annotations

import statistics
import time

import pytest

import fusee.sync
from fusee.admin.views import GroupSettings
from tests.console.world import browsing

TOPICS = 1_000
GROUPS = 100
# The promise is 200 ms on an idle machine; tests run beside others, and a median shrugs off a neighbour's burst.
LIMIT_S = 1.0


@pytest.mark.timeout(300)
def test_pages_are_quick_with_a_thousand_topics() -> None:
    with fusee.sync.embedded() as server:
        for first in range(0, TOPICS, 50):
            server.create_topics({f"topic-{number:04}": 4 for number in range(first, first + 50)})
        with server.connect() as mq:
            for first in range(0, GROUPS, 10):
                mq.admin.create_groups(
                    [GroupSettings(group=f"group-{number:04}") for number in range(first, first + 10)]
                )
            mq.send("topic-0500", b"one")
        with browsing(server.name_server) as browser:
            for path in ("/", "/topics", "/topics?search=05&page=2", "/topics/topic-0500", "/groups", "/cluster"):
                browser.get(path)  # the first one loads its template
                times = []
                for _ in range(5):
                    browser.console.context.link._kept.clear()
                    begin = time.perf_counter()
                    browser.get(path)
                    times.append(time.perf_counter() - begin)
                took_s = statistics.median(times)
                assert took_s < LIMIT_S, f"{path} took {took_s * 1000:.0f} ms"
            assert browser.api("/topics")["total"] == TOPICS
            assert browser.api("/topics")["pages"] == TOPICS / 100

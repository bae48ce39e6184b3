from __future__ import annotations

import pytest

from fusee.admin.views import Consumption
from fusee.errors import NotFoundError
from tests.admin.scene import Scene, play, queue

UNIQUE = "7F00000100002A139A46000000000001"


def test_life_of_a_message_that_was_tried_again_and_died() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await on.do(on.admin.create_group("billing"))
        await on.do(on.admin.create_topic("%RETRY%billing", queues=1))
        await on.do(on.admin.create_topic("%DLQ%billing", queues=1))
        offset_id = await on.send("orders", b"poison", UNIQ_KEY=UNIQUE)
        await on.commit("billing", queue(), 1)
        await on.world.advance(1)
        await on.send("%RETRY%billing", b"poison", UNIQ_KEY=UNIQUE, RETRY_TOPIC="orders")
        await on.world.advance(1)
        await on.send("%DLQ%billing", b"poison", UNIQ_KEY=UNIQUE, RETRY_TOPIC="orders")
        await on.world.advance(1)
        life = await on.do(on.admin.message_life(await on.do(on.admin.message(offset_id))))
        assert sorted(event.what for event in life.events) == ["born", "dead", "stored", "tried again"]
        assert [event.what for event in life.events][-2:] == ["tried again", "dead"]
        assert life.events[-1].group == "billing"
        assert [(status.group, status.consumption) for status in life.groups] == [("billing", Consumption.CONSUMED)]
        assert not life.is_traced
        assert not life.failures

    play(scene)


def test_life_of_a_delayed_message_tells_when_it_was_due() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await on.send("orders", b"later", DELAY="1", UNIQ_KEY=UNIQUE)
        await on.world.advance(3)
        message = await on.do(on.admin.find_message(UNIQUE, "orders"))
        life = await on.do(on.admin.message_life(message))
        assert [event.what for event in life.events if event.what != "born"] == ["put aside", "due", "stored"]

    play(scene)


def test_a_message_that_still_waits_is_found_and_has_no_groups_yet() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await on.do(on.admin.create_topic("other"))
        await on.send("orders", b"later", DELAY="4", UNIQ_KEY=UNIQUE)
        await on.world.advance(3)
        message = await on.do(on.admin.find_message(UNIQUE, "orders"))
        life = await on.do(on.admin.message_life(message))
        aside, due = [event for event in life.events if event.what != "born"]
        assert (aside.what, due.what, due.at_ms - aside.at_ms) == ("put aside", "due", 30_000)
        assert life.groups == ()
        with pytest.raises(NotFoundError):
            await on.do(on.admin.find_message(UNIQUE, "other"))

    play(scene)

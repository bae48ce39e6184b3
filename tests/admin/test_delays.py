from __future__ import annotations

from fusee.admin.delays import level_delays_ms
from tests.admin.scene import Scene, play


def test_delays_tell_what_waits_by_level_and_when_it_is_due() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        now_ms = on.world.clock.time_ms()
        await on.send("orders", b"soon", DELAY="2")
        await on.send("orders", b"later", DELAY="4")
        await on.send("orders", b"later still", DELAY="4")
        await on.world.advance(0.2)
        found = await on.do(on.admin.delays(broker="broker-a"))
        waiting = {each.level: each for each in found.levels if each.waiting}
        assert {level: each.waiting for level, each in waiting.items()} == {2: 1, 4: 2}
        assert found.waiting == 3
        assert waiting[4].delay_ms == 30_000
        assert 29_000 < (waiting[4].next_due_ms or 0) - now_ms < 31_000
        messages, failures = await on.do(on.admin.waiting_messages())
        assert not failures
        assert [(each.topic, each.message.body, each.level) for each in messages] == [
            ("orders", b"soon", 2),
            ("orders", b"later", 4),
            ("orders", b"later still", 4),
        ]
        assert len((await on.do(on.admin.waiting_messages(level=4, limit=1)))[0]) == 1
        assert (await on.do(on.admin.waiting_messages(topic="other")))[0] == ()
        await on.world.advance(8)
        found = await on.do(on.admin.delays(broker="broker-a"))
        assert {each.level for each in found.levels if each.waiting} == {4}

    play(scene)


def test_level_delays_of_the_brokers_setting() -> None:
    assert list(level_delays_ms("1s 5s 2m 1h 1d nonsense")) == [1_000, 5_000, 120_000, 3_600_000, 86_400_000]

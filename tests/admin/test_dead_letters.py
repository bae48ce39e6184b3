from __future__ import annotations

import pytest

from fusee.admin.dead_letters import REPLAYS_PROPERTY, replay_count
from fusee.admin.views import ReplayOutcome, ReplayResult, ReplayState
from fusee.errors import ConfigError, RemoteError, TopicNotFoundError, TransportError
from tests.admin.scene import Scene, play

GIVEN = ReplayOutcome.REPLAYED


async def bury(on: Scene, *bodies: bytes, **properties: str) -> None:
    for body in bodies:
        await on.send("%DLQ%billing", body, RETRY_TOPIC="orders", **properties)  # type: ignore[arg-type]


async def replay(on: Scene, **options: object) -> list[ReplayResult]:
    async def collect() -> list[ReplayResult]:
        return [result async for result in on.admin.replay_dead_letters("billing", **options)]  # type: ignore[arg-type]

    return await on.do(collect())


async def open_scene(on: Scene) -> None:
    await on.do(on.admin.create_topic("orders"))
    await on.do(on.admin.create_group("billing"))
    await on.do(on.admin.create_topic("%DLQ%billing", queues=1))


def test_queues_of_dead_letters_are_counted_by_group() -> None:
    async def scene(on: Scene) -> None:
        await open_scene(on)
        await bury(on, b"one", b"two")
        await on.world.advance(0.1)
        (found,) = await on.do(on.admin.dead_letter_queues())
        assert (found.group, found.count) == ("billing", 2)
        assert found.last_ms

    play(scene)


def test_causes_tell_what_dead_letters_have_in_common_most_first() -> None:
    async def scene(on: Scene) -> None:
        await open_scene(on)
        await bury(on, b"one", TAGS="a", RECONSUME_TIME="16", customer="7")
        await bury(on, b"two", b"three", TAGS="b", customer="7")
        found = await on.do(on.admin.dead_letter_causes("billing"))
        assert [(cause.count, cause.values["topic"], cause.values["tag"]) for cause in found] == [
            (2, "orders", "b"),
            (1, "orders", "a"),
        ]
        assert found[0].values["why"].startswith("given up by its consumer")
        assert found[0].sample.body == b"two"
        (of_customer,) = await on.do(on.admin.dead_letter_causes("billing", by=["customer"]))
        assert (of_customer.values, of_customer.count) == ({"customer": "7"}, 3)
        with pytest.raises(ConfigError, match="grouped by nothing"):
            await on.do(on.admin.dead_letter_causes("billing", by=[]))
        with pytest.raises(TopicNotFoundError):
            await on.do(on.admin.dead_letter_causes("nobody"))

    play(scene)


def test_replay_gives_each_letter_once_and_goes_on_where_its_state_says() -> None:
    async def scene(on: Scene) -> None:
        await open_scene(on)
        await bury(on, b"one", b"two", b"three")
        state = ReplayState(group="billing")
        dry = await replay(on, state=state, dry_run=True)
        assert [result.outcome for result in dry] == [ReplayOutcome.WOULD_REPLAY] * 3
        assert state.next_offsets == {}
        first = await replay(on, state=state, limit=2)
        assert [result.outcome for result in first] == [GIVEN, GIVEN]
        rest = await replay(on, state=state)
        assert [result.queue_offset for result in rest] == [2]
        assert await replay(on, state=state) == []
        await on.world.advance(0.1)
        given = on.world.stored("%RETRY%billing")
        assert [message.body for message in given] == [b"one", b"two", b"three"]
        assert {message.properties[REPLAYS_PROPERTY] for message in given} == {"1"}
        assert state.counts["replayed"] == 3
        with pytest.raises(ConfigError, match="of a replay for group 'other'"):
            await replay(on, state=ReplayState(group="other"))

    play(scene)


def test_replay_passes_over_what_was_given_again_too_often() -> None:
    async def scene(on: Scene) -> None:
        await open_scene(on)
        await bury(on, b"round again", **{REPLAYS_PROPERTY: "3"})
        await bury(on, b"second chance", **{REPLAYS_PROPERTY: "2"})
        await bury(on, b"no number", **{REPLAYS_PROPERTY: "often"})
        found = await replay(on)
        assert [result.outcome for result in found] == [ReplayOutcome.LOOPED, GIVEN, GIVEN]
        await on.world.advance(0.1)
        assert [m.properties[REPLAYS_PROPERTY] for m in on.world.stored("%RETRY%billing")] == ["3", "1"]
        (letter, *_) = await on.do(on.admin.dead_letters("billing"))
        assert replay_count(letter) == 3

    play(scene)


def test_replay_chooses_and_keeps_to_its_rate() -> None:
    async def scene(on: Scene) -> None:
        await open_scene(on)
        await bury(on, b"a", b"b", b"c", TAGS="x")
        await bury(on, b"other", TAGS="y")
        began = on.world.clock.monotonic()
        found = await replay(on, choose=lambda letter: letter.tag == "x", rate=2.0)
        assert len(found) == 3
        assert on.world.clock.monotonic() - began >= 1.0
        with pytest.raises(ConfigError, match="positive"):
            await replay(on, rate=0.0)

    play(scene)


def test_replay_ends_with_the_error_when_the_broker_is_away_and_its_state_stays() -> None:
    async def scene(on: Scene) -> None:
        await open_scene(on)
        await bury(on, b"one", b"two")
        state = ReplayState(group="billing")
        results: list[ReplayResult] = []

        async def collect() -> None:
            async for result in on.admin.replay_dead_letters("billing", state=state):
                results.append(result)
                await on.lose("broker-a")

        with pytest.raises((TransportError, RemoteError)):
            await on.do(collect(), 300)
        assert len(results) == 1
        assert list(state.next_offsets.values()) == [1]

    play(scene)

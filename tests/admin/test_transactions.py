from __future__ import annotations

import pytest

from fusee.errors import ConfigError, InvalidRequestError, NotFoundError
from tests.admin.scene import Scene, play

ID = "7F00000100002A139A460000000000{:02d}"


async def begin(on: Scene, number: int, body: bytes = b"half") -> str:
    unique = ID.format(number)
    await on.send("orders", body, TRAN_MSG="true", PGROUP="shop", UNIQ_KEY=unique)
    return unique


def test_pending_transactions_are_those_without_a_decision() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        assert (await on.do(on.admin.pending_transactions())).transactions == ()
        first, second, third = [await begin(on, number) for number in (1, 2, 3)]
        found = await on.do(on.admin.pending_transactions())
        assert [each.transaction_id for each in found.transactions] == [first, second, third]
        assert {(each.topic, each.producer_group, each.check_times) for each in found.transactions} == {
            ("orders", "shop", 0)
        }
        assert found.is_all
        few = await on.do(on.admin.pending_transactions(limit=2))
        assert (len(few.transactions), few.is_all) == (2, False)

        await on.do(on.admin.end_transaction(found.transactions[0], "commit"))
        await on.do(on.admin.end_transaction(found.transactions[1], "rollback"))
        await on.world.advance(5)  # op records are gathered for three seconds
        assert [message.body for message in on.world.stored("orders")] == [b"half"]
        left = await on.do(on.admin.pending_transactions())
        assert [each.transaction_id for each in left.transactions] == [third]
        assert (await on.do(on.admin.pending_transaction(third))).transaction_id == third
        with pytest.raises(NotFoundError, match="committed, rolled back or given up"):
            await on.do(on.admin.pending_transaction(first))

    play(scene)


def test_a_transaction_that_was_asked_about_is_listed_once() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        unique = await begin(on, 1)
        await on.world.advance(100)
        (found,) = (await on.do(on.admin.pending_transactions())).transactions
        assert found.transaction_id == unique
        await on.do(on.admin.end_transaction(found, "commit"))
        await on.world.advance(1)
        assert len(on.world.stored("orders")) == 1

    play(scene)


def test_end_transaction_refuses_what_is_no_verdict_and_tells_what_the_broker_said() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await begin(on, 1)
        (found,) = (await on.do(on.admin.pending_transactions())).transactions
        with pytest.raises(ConfigError, match="no verdict"):
            await on.do(on.admin.end_transaction(found, "maybe"))  # type: ignore[arg-type]
        import msgspec

        wrong = msgspec.structs.replace(found, producer_group="another")
        with pytest.raises(InvalidRequestError, match="producer group wrong"):
            await on.do(on.admin.end_transaction(wrong, "commit"))
        assert await on.do(on.admin.abandoned_transactions()) == ()

    play(scene)

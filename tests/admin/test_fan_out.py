from __future__ import annotations

import asyncio

import pytest

from fusee.admin.fan_out import AdminError, ask_all
from fusee.admin.views import BrokerAddress
from fusee.errors import ConnectError, GroupNotFoundError, NoPermissionError

BROKERS = [BrokerAddress(broker_name=f"broker-{name}", address=f"10.0.0.{name}:10911") for name in range(5)]


def test_ask_all_keeps_order_and_asks_so_many_at_once() -> None:
    at_work = most = 0

    async def ask(broker: BrokerAddress) -> str:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        for _ in range(5 - int(broker.broker_name[-1])):
            await asyncio.sleep(0)
        at_work -= 1
        return broker.broker_name

    found = asyncio.run(ask_all(BROKERS, ask, at_once=2))
    assert found.values == [f"broker-{number}" for number in range(5)]
    assert most == 2


def test_change_that_fails_at_some_names_each_and_what_was_done() -> None:
    async def ask(broker: BrokerAddress) -> None:
        if broker.broker_name == "broker-1":
            raise ConnectError("no way", address=broker.address)
        if broker.broker_name == "broker-3":
            raise NoPermissionError("not you", code=16, address=broker.address)

    found = asyncio.run(ask_all(BROKERS, ask))
    with pytest.raises(
        AdminError, match="could not make it at 2 of 5 servers; broker-1: no way; broker-3: not you"
    ) as e:
        found.complete("make it", topic="orders")
    assert [broker.broker_name for broker in e.value.done] == ["broker-0", "broker-2", "broker-4"]
    assert [(failure.address, failure.code) for failure in e.value.failures] == [
        ("10.0.0.1:10911", None),
        ("10.0.0.3:10911", 16),
    ]
    assert (e.value.retryable, e.value.topic, e.value.address) == (True, "orders", "10.0.0.1:10911")


def test_question_is_answered_by_those_who_tell() -> None:
    async def ask(broker: BrokerAddress) -> int:
        if broker.broker_name == "broker-1":
            raise ConnectError("no way", address=broker.address)
        return 1

    found = asyncio.run(ask_all(BROKERS, ask)).some("tell")
    assert sum(found.values) == 4
    assert [failure.cause for failure in found.failures] == ["no way"]


def test_when_all_fail_alike_their_own_error_is_raised() -> None:
    async def ask(broker: BrokerAddress) -> int:
        raise GroupNotFoundError("no such group", code=26, address=broker.address)

    found = asyncio.run(ask_all(BROKERS, ask))
    for finish in (found.some, found.complete):
        with pytest.raises(GroupNotFoundError):
            finish("tell")
    with pytest.raises(GroupNotFoundError):
        found.without(GroupNotFoundError).some("tell")


def test_without_drops_errors_that_mean_nothing_here_when_others_answered() -> None:
    async def ask(broker: BrokerAddress) -> int:
        if broker.broker_name != "broker-0":
            raise GroupNotFoundError("no such group", code=26, address=broker.address)
        return 1

    found = asyncio.run(ask_all(BROKERS, ask)).without(GroupNotFoundError)
    assert (found.values, found.failures, found.errors) == ([1], (), ())


def test_error_over_many_servers_stays_short() -> None:
    brokers = [BrokerAddress(address=f"10.0.0.{number}:1") for number in range(30)]

    async def ask(broker: BrokerAddress) -> int:
        if broker.address == "10.0.0.0:1":
            return 1
        raise ConnectError("no way", address=broker.address)

    with pytest.raises(AdminError, match="and 19 more"):
        asyncio.run(ask_all(brokers, ask)).complete("tell")


def test_ask_all_when_cancelled_leaves_no_task() -> None:
    async def main() -> None:
        async def ask(broker: BrokerAddress) -> None:
            await asyncio.get_running_loop().create_future()

        task = asyncio.ensure_future(ask_all(BROKERS, ask))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(3):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_error_that_is_not_ours_ends_the_call() -> None:
    async def ask(broker: BrokerAddress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(ask_all(BROKERS, ask))

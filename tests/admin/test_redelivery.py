from __future__ import annotations

import msgspec
import pytest

from fusee.admin.redelivery import origin_topic
from fusee.client.received import ReceivedMessage
from fusee.client.results import STATUS_OF_CODE
from fusee.errors import ConfigError, ConsumerOfflineError, NotFoundError, TopicNotFoundError
from fusee.wire.codes import RequestCode
from tests.admin.scene import Scene, play
from tests.broker.world import send_header


def test_consume_directly_by_message_id_or_message_and_member() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        offset_id = await on.send("orders", b"once more", UNIQ_KEY="7F00000100002A139A46000000000001")
        with pytest.raises(ConsumerOfflineError):
            await on.do(on.admin.consume_directly("billing", offset_id))
        member, client_id = await on.member("billing", {"orders": "*"})
        result = await on.do(on.admin.consume_directly("billing", offset_id))
        assert (result.client_id, result.result, result.spent_ms, result.is_success) == (
            client_id,
            "CR_SUCCESS",
            4,
            True,
        )
        await on.do(
            on.admin.consume_directly(
                "billing", "7F00000100002A139A46000000000001", topic="orders", client_id=client_id
            )
        )
        await on.do(on.admin.consume_directly("billing", await on.do(on.admin.message(offset_id))))
        assert [message.body for message in member.consumed] == [b"once more"] * 3
        with pytest.raises(ConsumerOfflineError, match="not online"):
            await on.do(on.admin.consume_directly("billing", offset_id, client_id="nobody"))

    play(scene)


def test_dead_letters_are_shown_and_given_again_to_their_group_only() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await on.member("billing", {"orders": "*"})
        with pytest.raises(TopicNotFoundError):
            await on.do(on.admin.dead_letters("billing"))
        await on.do(on.admin.create_topic("%DLQ%billing", queues=1))
        await on.send(
            "%DLQ%billing",
            b"poison",
            RETRY_TOPIC="orders",
            TAGS="a",
            colour="red",
            RECONSUME_TIME="3",
            MAX_RECONSUME_TIMES="2",
        )
        (letter,) = await on.do(on.admin.dead_letters("billing"))
        assert (letter.body, origin_topic(letter)) == (b"poison", "orders")
        await on.do(on.admin.redeliver(letter, "billing"))
        await on.world.advance(0.1)
        (given,) = on.world.stored("%RETRY%billing")
        assert (given.body, given.reconsume_times) == (b"poison", 0)
        assert given.properties["RETRY_TOPIC"] == "orders"
        assert (given.tag, given.properties["colour"], given.unique_id) == ("a", "red", letter.message_id)
        assert not {"RECONSUME_TIME", "MAX_RECONSUME_TIMES"} & set(given.properties)
        assert on.world.stored("orders") == []
        await on.do(on.admin.redeliver(letter, "billing", topic="orders"))
        await on.world.advance(0.1)
        (given,) = on.world.stored("orders")
        assert "RETRY_TOPIC" not in given.properties
        assert len(await on.do(on.admin.dead_letters("billing"))) == 1

    play(scene)


def test_origin_topic_of_a_message_that_is_no_dead_letter_is_its_own() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        assert origin_topic(await on.do(on.admin.message(await on.send("orders")))) == "orders"

    play(scene)


def test_resume_half_message_takes_only_those_that_were_given_up() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        message = await on.do(on.admin.message(await on.send("orders")))
        with pytest.raises(ConfigError, match="given up are in TRANS_CHECK_MAX_TIME_TOPIC"):
            await on.do(on.admin.resume_half_message(message))
        stored = msgspec.structs.replace(message.stored(), topic="TRANS_CHECK_MAX_TIME_TOPIC")
        with pytest.raises(NotFoundError):
            await on.do(on.admin.resume_half_message(ReceivedMessage.of(stored, "broker-a")))

    play(scene)


def test_redeliver_when_the_copy_is_stored_but_not_as_safely_as_it_should_be_succeeds() -> None:
    """An error would make an operator give the message again, and double it."""

    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await on.do(on.admin.create_topic("%DLQ%billing", queues=1))
        header = send_header("%DLQ%billing", properties={"RETRY_TOPIC": "orders"})
        await on.do(
            on.session.calls.request(
                on.world.address(), RequestCode.SEND_MESSAGE_V2, header, body=b"poison", accept=STATUS_OF_CODE
            )
        )
        (letter,) = await on.do(on.admin.dead_letters("billing"))
        await on.do(on.admin.redeliver(letter, "billing", topic="orders"))
        await on.world.advance(0.1)
        assert len(on.world.stored("orders")) == 1

    play(scene, broker_role="SYNC_MASTER")

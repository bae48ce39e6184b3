"""The broker put together: start, stop, restart, what survives, and what a stop owes to those who wait."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from fusee.broker import Broker, BrokerConfig
from fusee.clock import SystemClock
from fusee.errors import ConfigError, ConnectError, ConnectionLostError, StoreError, StoreFullError
from fusee.message.flags import TransactionType
from fusee.message.ids import decode_offset_id
from fusee.service import run as run_on_uvloop
from fusee.store.config import FlushDiskType, StoreConfig
from fusee.transport import Client, TcpNetwork
from fusee.wire.bodies.group import SubscriptionGroupConfig
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.admin import CreateTopic, DeleteTopic
from fusee.wire.headers.offset import UpdateConsumerOffset
from fusee.wire.headers.send import ConsumerSendMessageBack
from fusee.wire.headers.transaction import EndTransaction
from fusee.wire.lenient_json import dumps_fastjson
from tests.broker.log_world import messages_of, small_store
from tests.broker.test_registration import FIRST, Registrar
from tests.broker.world import (
    ADDRESS,
    FAST_ADDRESS,
    HOST,
    OLD_VERSION,
    ROOT,
    BrokerWorld,
    bodies_in,
    messages_in,
    play,
    pull_header,
    run,
    send_header,
)

SYNC = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}


def create(topic: str = "orders", queues: int = 3) -> CreateTopic:
    return CreateTopic(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )


# Start


def test_start_opens_two_doors_and_says_what_clients_are_told() -> None:
    async def scene(world: BrokerWorld) -> None:
        assert world.broker.listening == (ADDRESS, FAST_ADDRESS)
        assert world.broker.address == ADDRESS
        for address in (ADDRESS, FAST_ADDRESS):
            assert (await world.peer(address=address).send()).code == 0

    play(scene)


@pytest.mark.parametrize(("fast_port", "expected"), [(-1, 10909), (20000, 20000)])
def test_fast_port_is_two_below_unless_it_is_set(fast_port: int, expected: int) -> None:
    async def scene(world: BrokerWorld) -> None:
        assert world.broker.listening[1] == f"{HOST}:{expected}"

    play(scene, fast_listen_port=fast_port)


def test_any_free_port_is_told_as_it_was_found() -> None:
    async def scene(world: BrokerWorld) -> None:
        first, second = world.broker.listening
        assert world.broker.address == first != second
        answer = await world.peer(address=first).send()
        assert decode_offset_id(answer.all_fields()["msgId"]).address == first

    play(scene, listen_port=0)


def test_connections_over_the_limit_are_closed_as_they_come() -> None:
    async def scene(world: BrokerWorld) -> None:
        assert (await world.peer("10.0.0.8").send()).code == 0
        refused = world.peer("10.0.0.9").begin_send()
        await world.settle()
        assert isinstance(refused.exception(), ConnectionLostError)
        assert (await world.peer("10.0.0.9", address=FAST_ADDRESS).send()).code == 0, "each door counts for itself"

    play(scene, connections_max=1)


def test_silent_connection_is_closed_and_its_client_forgotten() -> None:
    async def scene(world: BrokerWorld) -> None:
        silent = world.peer("10.0.0.8")
        await silent.beat(group="consumers", wants={"orders": "*"}, producer_group="p")
        assert world.broker.consumers.group("consumers") is not None
        await world.advance(26.0)
        assert world.broker.consumers.group("consumers") is None
        assert world.broker.producers.all() == {}

    play(scene, server_channel_max_idle_time_seconds=20)


def test_client_without_heartbeats_is_forgotten_though_it_is_connected() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await peer.beat(group="consumers", wants={"orders": "*"})
        await world.advance(8.0)
        assert (await peer.send()).code == 0
        assert world.broker.consumers.group("consumers") is not None
        await world.advance(14.0)
        assert world.broker.consumers.group("consumers") is None

    play(scene, channel_expired_timeout=5000)


# A start that fails


class Machine:
    """A broker on this machine: real sockets, real files, real threads."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        store = small_store(mapped_file_size_commit_log=1024 * 1024, **settings.pop("store", {}))
        values: dict[str, Any] = {"bind_address": "127.0.0.1", "listen_port": 0, "broker_name": "b", **settings}
        self.broker = Broker(BrokerConfig(**values), store, store_path=folder)

    async def ask(self, code: RequestCode, header: Any, body: bytes = b"") -> Command:
        client = Client(network=TcpNetwork(), clock=SystemClock(), timers=asyncio.get_running_loop())
        try:
            return await client.request(self.broker.address, Command.request(code, header, body=body), timeout=20)
        finally:
            await client.close()


@pytest.mark.parametrize("door", ["listen_port", "fast_listen_port"])
def test_port_in_use_is_named_and_everything_is_released(tmp_path: Path, door: str) -> None:
    async def scene() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            machine = Machine(tmp_path, **{"fast_listen_port": 0, door: port})
            with pytest.raises(ConnectError, match=f"cannot listen on 127.0.0.1:{port}.*is another server running"):
                await machine.broker.start()
            await machine.broker.stop()
        again = Machine(tmp_path)
        await again.broker.start()
        assert again.broker.recovery is not None
        assert not again.broker.recovery.unclean
        await again.broker.stop()

    asyncio.run(scene())


def test_store_in_use_is_named_and_the_other_broker_goes_on() -> None:
    async def scene(world: BrokerWorld) -> None:
        second = BrokerWorld(disk=world.disk, clock=world.clock)
        with pytest.raises(StoreError, match="another process"):
            await second.broker.start()
        await second.broker.stop()
        assert (await world.peer().send()).code == 0

    play(scene)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tls_server_mode": "enforcing"}, "tls_server_cert_path"),
        ({"broker_ip1": "no.such.host.invalid"}, "brokerIP1=no.such.host.invalid: .*write an address"),
        ({"namesrv_addr": "nowhere"}, "'nowhere' is no address"),
    ],
)
def test_wrong_setting_is_named_and_everything_is_released(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    async def scene() -> None:
        machine = Machine(tmp_path, **({"bind_address": "0.0.0.0"} if "namesrv_addr" in settings else {}), **settings)
        with pytest.raises(ConfigError, match=message):
            await machine.broker.start()
        again = Machine(tmp_path)
        await again.broker.start()
        await again.broker.stop()

    asyncio.run(scene())


def test_damaged_table_is_named_and_everything_is_released() -> None:
    async def scene() -> None:
        world = await BrokerWorld().start()
        world.broker.topics.put(TopicConfig(topic_name="orders"))
        await world.stop()
        config = ROOT / "config"
        for name in ("topics.json", "topics.json.bak"):
            if world.disk.exists(config / name):
                file = world.disk.open(config / name)
                file.write(b"garbage", 0)
                file.close()
        broken = BrokerWorld(disk=world.disk)
        with pytest.raises(StoreError, match="topics.json"):
            await broken.broker.start()
        for name in ("topics.json", "topics.json.bak"):
            world.disk.remove(config / name)
        mended = await BrokerWorld(disk=world.disk).start()
        await mended.stop()

    run(scene)


# Stop


def test_stop_before_a_start_and_after_a_stop_is_harmless() -> None:
    async def scene() -> None:
        world = BrokerWorld()
        await world.start()
        await world.stop()
        steps = world.disk.steps
        await world.stop()
        assert world.disk.steps == steps

    run(scene)
    asyncio.run(Broker(BrokerConfig(), StoreConfig(), store_path=Path("/nowhere")).stop())


def test_stop_is_clean_and_leaves_nothing_behind() -> None:
    async def scene() -> None:
        world = await BrokerWorld().start()
        assert (await world.peer().send(b"kept")).code == 0
        await world.stop()
        assert not world.disk.exists(ROOT / "abort")
        steps = world.disk.steps
        await world.advance(120.0)
        assert world.disk.steps == steps, "no job goes on"
        again = await BrokerWorld(disk=world.disk).start()
        assert again.broker.recovery is not None
        assert not again.broker.recovery.unclean
        assert bodies_in(await again.peer().pull()) == [b"kept"]
        await again.stop()

    run(scene)


@pytest.mark.parametrize("address", [ADDRESS, FAST_ADDRESS])
def test_stop_waits_for_the_disk_that_senders_wait_for(address: str) -> None:
    async def scene(world: BrokerWorld) -> None:
        world.log_thread.is_held = True
        sending = world.peer(address=address).begin_send()
        await world.settle()
        stopping = asyncio.ensure_future(world.broker.stop())
        await world.advance(1.0)
        assert not sending.done()
        assert not stopping.done()
        world.log_thread.release()
        await world.advance(1.0)
        assert sending.result().code == 0
        assert stopping.done()

    play(scene, store=SYNC)


def test_stop_is_bounded_when_the_disk_does_not_answer() -> None:
    async def scene(world: BrokerWorld) -> None:
        world.log_thread.is_held = True
        sending = world.peer().begin_send()
        await world.settle()
        began = world.clock.monotonic()
        await world.within(20.0, asyncio.ensure_future(world.broker.stop()))
        assert world.clock.monotonic() - began < 6.0
        assert sending.result().code == ResponseCode.FLUSH_DISK_TIMEOUT

    play(scene, store=SYNC)


def test_stopping_broker_sends_new_clients_away_and_serves_old_ones() -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders"))
        peer = world.peer()
        world.log_thread.is_held = True
        first = peer.begin_send()
        await world.settle()
        stopping = asyncio.ensure_future(world.broker.stop())
        await world.advance(0.1)
        link = await peer.client.link(ADDRESS)
        new = asyncio.ensure_future(
            link.request(Command.request(RequestCode.SEND_MESSAGE_V2, send_header(), body=b"x"), 10)
        )
        held = Command.request(RequestCode.PULL_MESSAGE, pull_header(hold_ms=60_000, queue_id=1))
        held.version = OLD_VERSION
        old = asyncio.ensure_future(link.request(held, 100))
        await world.settle()
        assert new.result().code == ResponseCode.GO_AWAY
        assert old.result().code == ResponseCode.PULL_NOT_FOUND, "nothing is held any more"
        world.log_thread.release()
        await world.advance(1.0)
        assert first.result().code == 0
        assert stopping.done()

    play(scene, store=SYNC)


def test_full_disk_is_told_by_the_stop_which_releases_everything() -> None:
    async def scene() -> None:
        world = await BrokerWorld().start()
        assert (await world.peer().send(b"kept")).code == 0
        await world.advance(1.0)
        world.disk.capacity = world.disk.used
        world.broker.topics.put(TopicConfig(topic_name="x" * 100))
        stopping = asyncio.ensure_future(world.broker.stop())
        await world.advance(20.0)
        with pytest.raises(StoreFullError, match="no space left"):
            stopping.result()
        world.disk.capacity *= 100
        again = await BrokerWorld(disk=world.disk).start()
        assert bodies_in(await again.peer().pull()) == [b"kept"]
        await again.stop()

    run(scene)


def test_broker_whose_disk_failed_stops_without_touching_it() -> None:
    async def scene() -> None:
        world = await BrokerWorld(store=SYNC).start()
        peer = world.peer()
        assert (await peer.send(b"kept")).code == 0
        world.disk.fail_sync(under=ROOT / "commitlog")
        assert (await peer.send(b"unsure")).code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert world.broker.failure is not None
        await world.stop()
        assert world.disk.exists(ROOT / "abort"), "the next start recovers"
        again = await BrokerWorld(disk=world.disk, store=SYNC).start()
        assert bodies_in(await again.peer().pull())[0] == b"kept"
        await again.stop()

    run(scene)


# What survives


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_topics_groups_and_offsets_are_there_after_a_restart(end: str) -> None:
    async def scene() -> None:
        world = await BrokerWorld().start()
        peer = world.peer()
        assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create(queues=3))).code == 0
        group = SubscriptionGroupConfig(group_name="consumers", retry_max_times=5)
        answer = await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps_fastjson(group))
        assert answer.code == 0
        for body in (b"a", b"b"):
            assert (await peer.send(body)).code == 0
        commit = UpdateConsumerOffset(consumer_group="consumers", topic="orders", queue_id=0, commit_offset=1)
        assert (await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
        await world.advance(5.1)
        world = await (world.stopped() if end == "stopped" else world.killed())
        assert world.broker.recovery is not None
        assert world.broker.recovery.unclean == (end == "killed")
        topic, known = world.broker.topics.get("orders"), world.broker.groups.get("consumers")
        assert topic is not None
        assert known is not None
        assert (topic.write_queue_nums, known.retry_max_times) == (3, 5)
        assert world.broker.offsets.query("consumers", "orders", 0) == 1
        assert bodies_in(await world.peer().pull(queue_offset=1)) == [b"b"]
        assert (await world.peer().send(b"c")).all_fields()["queueOffset"] == "2"
        await world.stop()

    run(scene)


def test_offsets_of_a_killed_broker_are_at_most_an_interval_old() -> None:
    async def scene() -> None:
        world = await BrokerWorld(flush_consumer_offset_interval=5000).start()
        peer = world.peer()
        await peer.send()
        await peer.pull(group="g")
        for number in range(1, 8):
            commit = UpdateConsumerOffset(consumer_group="g", topic="orders", queue_id=0, commit_offset=number)
            assert (await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
            await world.advance(1.0)
        world = await world.killed()
        assert world.broker.offsets.query("g", "orders", 0) == 5
        await world.stop()

    run(scene)


def test_topic_whose_configuration_was_lost_is_taken_up_from_its_messages(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        world = await BrokerWorld().start()
        peer = world.peer()
        world.file_thread.is_held = True
        assert (await peer.send(b"kept", queue_id=2)).code == 0
        assert (await peer.send(b"half", sys_flag=4, properties={"TRAN_MSG": "true", "PGROUP": "p"})).code == 0
        # The process dies before its table of topics is saved.
        world = await world.killed()
        adopted = world.broker.topics.get("orders")
        assert adopted is not None
        assert adopted.read_queue_nums == adopted.write_queue_nums == 3
        assert bodies_in(await world.peer().pull(queue_id=2)) == [b"kept"]
        await world.advance(1.0)
        world = await world.killed()
        assert world.broker.topics.get("orders") is not None
        await world.stop()

    with caplog.at_level(logging.WARNING):
        run(scene)
    assert "topic orders has messages but no configuration" in caplog.text
    assert "RMQ_SYS_TRANS" not in caplog.text


@pytest.mark.parametrize("seed", range(4))
def test_what_was_acknowledged_after_a_flush_survives_the_loss_of_power(seed: int) -> None:
    async def scene() -> None:
        world = await BrokerWorld(store=SYNC).start()
        peer = world.peer()
        for number in range(5):
            assert (await peer.send(b"%d" % number, queue_id=number % 2)).code == 0
            await world.advance(0.3)
        world = await world.crashed(seed)
        found = [bodies_in(await world.peer().pull(queue_id=queue_id)) for queue_id in (0, 1)]
        assert found == [[b"0", b"2", b"4"], [b"1", b"3"]]
        assert (await world.peer().send()).all_fields()["queueOffset"] == "3"
        await world.stop()

    run(scene)


def test_delayed_message_is_delivered_once_by_the_next_process() -> None:
    async def scene() -> None:
        world = await BrokerWorld().start()
        assert (await world.peer().send(b"later", properties={"DELAY": "2"})).code == 0
        await world.advance(2.0)
        world = await world.killed()
        pulling = world.peer().begin_pull(hold_ms=60_000)
        await world.advance(2.8)
        assert not pulling.done()
        await world.advance(0.3)
        assert bodies_in(pulling.result()) == [b"later"]
        world = await world.killed()
        await world.advance(10.0)
        assert bodies_in(await world.peer().pull()) == [b"later"]
        await world.stop()

    run(scene)


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_open_transaction_is_asked_about_by_the_next_process(end: str) -> None:
    async def scene() -> None:
        world = await BrokerWorld(transaction_check_interval=5000).start()
        answer = await world.peer().send(
            b"maybe",
            sys_flag=TransactionType.PREPARED,
            properties={"TRAN_MSG": "true", "PGROUP": "producers"},
            born_timestamp_ms=world.clock.time_ms(),
        )
        assert answer.code == 0
        world = await (world.stopped() if end == "stopped" else world.killed())
        peer = world.peer()
        await peer.beat(producer_group="producers")
        await world.advance(12.0)
        assert peer.asked
        fields = peer.asked[0].all_fields()
        decision = EndTransaction(
            producer_group="producers",
            half_queue_offset=int(fields["tranStateTableOffset"]),
            log_offset=int(fields["commitLogOffset"]),
            commit_or_rollback=TransactionType.COMMIT,
            from_transaction_check=True,
            msg_id="ID1",
        )
        assert (await peer.ask(RequestCode.END_TRANSACTION, decision)).code == 0
        assert bodies_in(await peer.pull()) == [b"maybe"]
        await world.stop()

    run(scene)


def test_message_given_back_too_often_ends_among_the_dead_letters() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        assert (await peer.send(b"poison")).code == 0
        answer = await peer.pull()
        for tries in range(3):
            [message] = messages_in(answer)
            assert message.reconsume_times == tries
            back = ConsumerSendMessageBack(
                log_offset=message.log_offset, group="consumers", delay_level=1, max_reconsume_times=2
            )
            assert (await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0
            if tries < 2:
                await world.advance(1.2)
                answer = await peer.pull(topic="%RETRY%consumers", queue_offset=tries)
        dead = await peer.pull(topic="%DLQ%consumers")
        [message] = messages_in(dead)
        assert (message.body, message.properties["RETRY_TOPIC"]) == (b"poison", "orders")
        assert len(messages_of(world.broker.store)) > 3

    play(scene)


# Promises of administration


def test_answer_that_promises_a_topic_waits_until_it_is_saved() -> None:
    async def scene() -> None:
        world = await BrokerWorld().start()
        peer = world.peer()
        world.file_thread.is_held = True
        creating = peer.begin(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        group = SubscriptionGroupConfig(group_name="g")
        grouping = peer.begin(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps_fastjson(group))
        await world.advance(3.0)
        assert not creating.done()
        assert not grouping.done()
        assert (await peer.send()).code == 0, "nobody else waits"
        while world.file_thread.release():
            await world.settle()
        assert creating.result().code == grouping.result().code == 0
        for seed in range(4):
            survivor = await world.crashed(seed)
            topic = survivor.broker.topics.get("orders")
            assert topic is not None
            assert topic.write_queue_nums == 3
            assert survivor.broker.groups.get("g") is not None
            await survivor.stop()
        await world.stop()

    run(scene)


def test_answer_that_promises_a_deletion_waits_until_it_is_saved() -> None:
    async def scene() -> None:
        world = await BrokerWorld().start()
        peer = world.peer()
        assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create())).code == 0
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic(topic="orders"))).code == 0
        world = await world.crashed(3)
        assert world.broker.topics.get("orders") is None
        await world.stop()

    run(scene)


def test_answer_that_promises_a_topic_waits_until_name_servers_know_it() -> None:
    async def scene() -> None:
        world = BrokerWorld(namesrv_addr=f"{FIRST}:9876")
        registrar = await Registrar().listen(world, FIRST)
        await world.start()
        registrar.held = []
        peer = world.peer()
        creating = peer.begin(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await world.advance(0.5)
        assert not creating.done()
        assert registrar.topics() == {"orders"}
        [request], registrar.held = registrar.held, None
        registrar.links[-1].send(registrar.answer(request))
        await world.settle()
        assert creating.result().code == 0
        await world.stop()

    run(scene)


def test_refusal_of_administration_is_answered_as_such() -> None:
    async def scene(world: BrokerWorld) -> None:
        answer = await world.peer().ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("bad topic!"))
        assert answer.code != 0
        assert world.broker.topics.get("bad topic!") is None
        assert (await world.peer().ask(RequestCode.UPDATE_AND_CREATE_TOPIC)).code == ResponseCode.SYSTEM_ERROR

    play(scene)


def test_table_that_cannot_be_saved_is_saved_when_there_is_space() -> None:
    async def scene() -> None:
        world = await BrokerWorld().start()
        peer = world.peer()
        assert (await peer.send()).code == 0
        await world.advance(1.0)
        world.disk.capacity = world.disk.used
        world.broker.topics.put(TopicConfig(topic_name="y" * 100))
        await world.advance(1.0)
        world.disk.capacity *= 100
        await world.advance(5.1)
        world = await world.killed()
        assert world.broker.topics.get("y" * 100) is not None
        await world.stop()

    run(scene)


# On a real machine


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_real_broker_keeps_what_it_took(tmp_path: Path, loop: str) -> None:
    async def scene() -> None:
        machine = Machine(tmp_path, store=SYNC)
        await machine.broker.start()
        try:
            for number in range(20):
                answer = await machine.ask(
                    RequestCode.SEND_MESSAGE_V2, send_header(queue_id=number % 2), b"%d" % number
                )
                assert answer.code == 0
            assert (await machine.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("made", 2))).code == 0
        finally:
            await machine.broker.stop()
        again = Machine(tmp_path, store=SYNC)
        await again.broker.start()
        try:
            assert again.broker.recovery is not None
            assert not again.broker.recovery.unclean
            found = await again.ask(RequestCode.PULL_MESSAGE, pull_header(queue_id=1))
            assert bodies_in(found) == [b"%d" % number for number in range(1, 20, 2)]
            made = again.broker.topics.get("made")
            assert made is not None
            assert made.write_queue_nums == 2
        finally:
            await again.broker.stop()

    if loop == "uvloop":
        run_on_uvloop(scene())
    else:
        asyncio.run(scene())

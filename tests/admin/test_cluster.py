from __future__ import annotations

import pytest

from fusee.admin.cluster import broker_state
from fusee.admin.views import BrokerAddress, SlaveView
from fusee.errors import FuseeError, NotFoundError
from fusee.wire.bodies.replication import EpochEntries, EpochEntry, HaConnectionInfo, HaRuntimeInfo
from fusee.wire.codes import RequestCode
from fusee.wire.headers.admin import CheckRocksDbProgress, ExportRocksDbConfig
from fusee.wire.headers.controller import AddBroker, RemoveBroker
from fusee.wire.headers.replication import ResetMasterFlushOffset
from fusee.wire.lenient_json import dumps_fastjson
from tests.admin.scene import Scene, play, scripted


def test_clusters_show_brokers_with_numbers_and_those_that_do_not_tell() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await on.send("orders")
        (cluster,) = await on.do(on.admin.clusters())
        assert cluster.cluster == "C"
        assert [entry.broker.broker_name for entry in cluster.brokers] == ["broker-a", "broker-b"]
        state = cluster.brokers[0].state
        assert state is not None
        assert (state.put_total, state.is_active, state.boot_ms > 0) == (1, True, True)
        assert state.version
        await on.lose("broker-b")
        (cluster,) = await on.do(on.admin.clusters(cluster="C"))
        gone = cluster.brokers[1]
        assert gone.state is None
        assert gone.failure is not None
        assert cluster.put_tps == 0.0

    play(scene, brokers=2)


def test_broker_state_reads_what_is_there() -> None:
    place = BrokerAddress(address="10.0.0.1:10911")
    state = broker_state(
        place,
        {
            "brokerVersionDesc": "V5_5_0",
            "putTps": "1.5 2.5 3.5",
            "getTransferedTps": "4.0 0.0 0.0",
            "msgPutTotalTodayNow": "12",
            "msgPutTotalTodayMorning": "5",
            "msgPutTotalYesterdayMorning": "1",
            "earliestMessageTimeStamp": "-1",
            "commitLogDiskRatio": "nonsense",
        },
    )
    assert (state.version, state.put_tps, state.get_tps) == ("V5_5_0", 1.5, 4.0)
    assert (state.put_today, state.put_yesterday) == (7, 4)
    assert (state.earliest_message_ms, state.disk_used_ratio, state.log_max_offset) == (0, 0.0, 0)


def test_broker_state_and_group_by_name_and_address() -> None:
    async def scene(on: Scene) -> None:
        for name in ("broker-a", on.world.address()):
            assert (await on.do(on.admin.broker_state(name))).broker.broker_name == "broker-a"
        (member,) = await on.do(on.admin.broker_group("broker-a"))
        assert (member.address, member.is_master, str(member)) == ("10.0.0.1:10911", True, "broker-a (10.0.0.1:10911)")

    play(scene)


def test_write_permission_is_taken_and_given_at_every_name_server() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        assert await on.do(on.admin.wipe_write_permission("broker-a")) > 0
        for _ in range(2):  # whichever name server is asked
            route = await on.do(on.admin.topic_route("orders"))
            assert route.groups[0].permission == "R--"
        assert await on.do(on.admin.add_write_permission("broker-a")) > 0
        assert (await on.do(on.admin.topic_route("orders"))).groups[0].permission == "RW-"
        for call in (on.admin.wipe_write_permission, on.admin.add_write_permission):
            with pytest.raises(NotFoundError, match="no broker 'broker-z'"):
                await on.do(call("broker-z"))

    play(scene, name_servers=2)


def test_cleaning_is_done_at_all_or_one() -> None:
    async def scene(on: Scene) -> None:
        for call in (on.admin.clean_unused_topics, on.admin.clean_expired_queues, on.admin.delete_expired_log):
            assert [place.broker_name for place in await on.do(call())] == ["broker-a", "broker-b"]
            assert [place.broker_name for place in await on.do(call(broker="broker-b"))] == ["broker-b"]

    play(scene, brokers=2)


def test_replication_of_a_master() -> None:
    async def scene(on: Scene) -> None:
        view = await on.do(on.admin.replication("broker-a"))
        assert (view.is_master, view.slaves, view.is_active) == (True, (), True)
        with pytest.raises(FuseeError):
            await on.do(on.admin.epochs("broker-a"))

    play(scene)


def test_replication_and_epochs_as_told() -> None:
    async def scene(on: Scene) -> None:
        codes = (
            RequestCode.GET_BROKER_HA_STATUS,
            RequestCode.GET_BROKER_EPOCH_CACHE,
            RequestCode.RESET_MASTER_FLUSH_OFFSET,
        )
        server = await scripted(on, codes)
        info = HaRuntimeInfo(
            master=True,
            master_commit_log_max_offset=100,
            in_sync_slave_nums=1,
            ha_connection_info=[HaConnectionInfo(address="10.0.0.7:1", diff=5, in_sync=True, slave_ack_offset=95)],
        )
        server.answer(RequestCode.GET_BROKER_HA_STATUS, lambda ask: ask.reply(body=dumps_fastjson(info)))
        entries = EpochEntries(epoch_list=[EpochEntry(epoch=2, start_offset=10, end_offset=20)])
        server.answer(RequestCode.GET_BROKER_EPOCH_CACHE, lambda ask: ask.reply(body=dumps_fastjson(entries)))
        server.answer(RequestCode.RESET_MASTER_FLUSH_OFFSET, lambda ask: ask.reply())
        view = await on.do(on.admin.replication(server.address))
        assert view.log_max_offset == 100
        assert view.slaves == (
            SlaveView(address="10.0.0.7:1", acked_log_offset=95, behind_bytes=5, is_in_sync=True, bytes_per_second=0),
        )
        (epoch,) = await on.do(on.admin.epochs(server.address))
        assert (epoch.epoch, epoch.start_log_offset, epoch.end_log_offset) == (2, 10, 20)
        await on.do(on.admin.reset_master_flush_offset(server.address, 77))
        assert server.last().read(ResetMasterFlushOffset).master_flush_offset == 77

    play(scene)


def test_cold_data_limits_and_read_ahead() -> None:
    async def scene(on: Scene) -> None:
        codes = (
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
            RequestCode.SET_COMMITLOG_READ_MODE,
            RequestCode.POP_ROLLBACK,
        )
        server = await scripted(on, codes)
        for code in codes:
            server.answer(code, lambda ask: ask.reply(body=b'{"runtimeTable":{}}'))
        at = server.address
        assert await on.do(on.admin.cold_data_limits(at)) == '{"runtimeTable":{}}'
        await on.do(on.admin.set_cold_data_limits({"billing": 1048576}, broker=at))
        assert server.last().body == b"billing=1048576\n"
        await on.do(on.admin.remove_cold_data_limit("billing", broker=at))
        assert server.last().body == b"billing"
        await on.do(on.admin.set_read_ahead("random", broker=at))
        assert server.last().all_fields() == {"READ_AHEAD_MODE": "1"}
        await on.do(on.admin.export_pop_records(broker=at))
        assert server.last().code == RequestCode.POP_ROLLBACK

    play(scene)


def test_rocksdb_and_containers() -> None:
    async def scene(on: Scene) -> None:
        codes = (
            RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
            RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
            RequestCode.ADD_BROKER,
            RequestCode.REMOVE_BROKER,
        )
        server = await scripted(on, codes)
        for code in codes:
            server.answer(code, lambda ask: ask.reply(body=b"fine"))
        at = server.address
        assert await on.do(on.admin.check_rocksdb_queues(at, "orders", since=5)) == "fine"
        assert server.last().read(CheckRocksDbProgress).check_store_timestamp_ms == 5
        await on.do(on.admin.export_rocksdb_config(at, ("topics", "consumerOffsets")))
        assert server.last().read(ExportRocksDbConfig).config_type == "topics;consumerOffsets"
        await on.do(on.admin.add_broker(at, settings={"brokerName": "broker-c"}))
        assert (server.last().body, server.last().read(AddBroker).config_path) == (b"brokerName=broker-c\n", None)
        await on.do(on.admin.remove_broker(at, cluster="C", broker_name="broker-c", broker_id=1))
        assert server.last().read(RemoveBroker) == RemoveBroker(broker_name="broker-c", cluster_name="C", broker_id=1)

    play(scene)


def test_no_broker_at_all_is_said() -> None:
    async def scene(on: Scene) -> None:
        await on.world.stop_broker("broker-a")
        with pytest.raises(NotFoundError, match="knows no broker; is one running"):
            await on.do(on.admin.create_topic("orders"))

    play(scene)

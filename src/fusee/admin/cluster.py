"""Clusters and brokers: which there are, how they are, and work to be done at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fusee.admin.fan_out import ask_all
from fusee.admin.reach import Reach, to_ms
from fusee.admin.settings import settings_body
from fusee.admin.views import (
    BrokerAddress,
    BrokerEntry,
    BrokerState,
    ClusterView,
    Epoch,
    ReplicationView,
    SlaveView,
)
from fusee.wire.bodies.kv import decode_kv_table
from fusee.wire.bodies.replication import EpochEntries, HaRuntimeInfo
from fusee.wire.bodies.route import decode_member_group
from fusee.wire.codes import RequestCode
from fusee.wire.headers.admin import CheckRocksDbProgress, ExportRocksDbConfig, SetCommitLogReadMode
from fusee.wire.headers.controller import AddBroker, RemoveBroker
from fusee.wire.headers.namesrv import (
    AddWritePermission,
    AddWritePermissionResponse,
    GetBrokerMemberGroup,
    WipeWritePermission,
    WipeWritePermissionResponse,
)
from fusee.wire.headers.replication import ResetMasterFlushOffset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

_READ_AHEAD = {"normal": 0, "random": 1}


class ClusterCalls(Reach):
    """Brokers, one by one and as clusters."""

    async def clusters(self, *, cluster: str | None = None) -> tuple[ClusterView, ...]:
        """Every cluster with its brokers and their numbers (mqadmin clusterList).

        A broker that does not answer is there too, with its failure.
        """
        brokers = await self.brokers(cluster=cluster, slaves=True)
        answers = await ask_all(brokers, self._state)
        states = dict(answers.answers)
        failures = {failure.address: failure for failure in answers.failures}
        by_cluster: dict[str, list[BrokerEntry]] = {}
        for place in brokers:
            entry = BrokerEntry(broker=place, state=states.get(place), failure=failures.get(place.address))
            by_cluster.setdefault(place.cluster, []).append(entry)
        return tuple(ClusterView(cluster=name, brokers=tuple(entries)) for name, entries in sorted(by_cluster.items()))

    async def broker_state(self, broker: str) -> BrokerState:
        """A broker in numbers (mqadmin brokerStatus)."""
        return await self._state(await self._one_broker(broker))

    async def broker_group(self, broker_name: str) -> tuple[BrokerAddress, ...]:
        """The live brokers of one name: master and slaves. Raises NotFoundError."""
        place = await self._one_broker(broker_name)
        header = GetBrokerMemberGroup(cluster_name=place.cluster, broker_name=place.broker_name)
        answer = await self._ask_name_server(RequestCode.GET_BROKER_MEMBER_GROUP, header)
        group = decode_member_group(answer.body)
        return tuple(
            BrokerAddress(cluster=place.cluster, broker_name=place.broker_name, broker_id=broker_id, address=address)
            for broker_id, address in sorted(group.broker_addrs.items())
        )

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Let no client send to a broker any more, until it registers anew (mqadmin wipeWritePerm).

        Every name server is told; how many topics that were. The broker itself still takes what is sent.
        """
        await self._one_broker(broker_name)  # a name server does not say that it knows no such broker
        answers = await self._ask_name_servers(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePermission(broker_name=broker_name)
        )
        answers.complete(f"take the write permission of broker {broker_name!r}")
        return max(answer.read(WipeWritePermissionResponse).topics for answer in answers.values)

    async def add_write_permission(self, broker_name: str) -> int:
        """Let clients send to a broker again (mqadmin addWritePerm); how many topics that were."""
        await self._one_broker(broker_name)
        answers = await self._ask_name_servers(
            RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePermission(broker_name=broker_name)
        )
        answers.complete(f"give write permission to broker {broker_name!r}")
        return max(answer.read(AddWritePermissionResponse).topics for answer in answers.values)

    # Cleaning

    async def clean_unused_topics(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Delete the queues of topics that are gone (mqadmin cleanUnusedTopic), at one broker or all."""
        return await self._everywhere(RequestCode.CLEAN_UNUSED_TOPIC, "clean unused topics", cluster, broker)

    async def clean_expired_queues(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Delete what consume queues hold of messages that have expired (mqadmin cleanExpiredCQ)."""
        return await self._everywhere(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, "clean queues", cluster, broker)

    async def delete_expired_log(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Delete expired files of the log soon, whatever the hour (mqadmin deleteExpiredCommitLog)."""
        return await self._everywhere(RequestCode.DELETE_EXPIRED_COMMITLOG, "delete expired files", cluster, broker)

    # Replication

    async def replication(self, broker: str) -> ReplicationView:
        """How replication is at one broker (mqadmin haStatus)."""
        place = await self._one_broker(broker)
        info = await self._ask_json(place.address, RequestCode.GET_BROKER_HA_STATUS, HaRuntimeInfo)
        own = info.ha_client_runtime_info
        return ReplicationView(
            broker=place,
            is_master=info.master,
            log_max_offset=info.master_commit_log_max_offset if info.master else own.max_log_offset,
            in_sync_slaves=info.in_sync_slave_nums,
            slaves=tuple(
                SlaveView(
                    address=slave.address or "",
                    acked_log_offset=slave.slave_ack_offset,
                    behind_bytes=slave.diff,
                    is_in_sync=slave.in_sync,
                    bytes_per_second=slave.transferred_bytes_per_second,
                )
                for slave in info.ha_connection_info
            ),
            master_address=own.master_address or "",
            bytes_per_second=own.transferred_bytes_per_second,
            last_read_ms=own.last_read_timestamp,
            is_active=info.master or own.activated,
        )

    async def epochs(self, broker: str) -> tuple[Epoch, ...]:
        """Which master wrote which part of a broker's log (mqadmin getBrokerEpoch). Raises without a controller."""
        place = await self._one_broker(broker)
        found = await self._ask_json(place.address, RequestCode.GET_BROKER_EPOCH_CACHE, EpochEntries)
        return tuple(
            Epoch(epoch=each.epoch, start_log_offset=each.start_offset, end_log_offset=each.end_offset)
            for each in found.epoch_list
        )

    async def reset_master_flush_offset(self, broker: str, log_offset: int) -> None:
        """Set how far a slave believes its master has flushed (mqadmin resetMasterFlushOffset)."""
        place = await self._one_broker(broker)
        header = ResetMasterFlushOffset(master_flush_offset=log_offset)
        await self._ask(place.address, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)

    # Reading of old data

    async def cold_data_limits(self, broker: str) -> str:
        """Limits on reading old data and what was read, in the broker's own words (mqadmin getColdDataFlowCtrInfo)."""
        place = await self._one_broker(broker)
        answer = await self._ask(place.address, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        return answer.body.decode("utf-8", "replace")

    async def set_cold_data_limits(
        self, limits: Mapping[str, int], *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Limit how many bytes of old data groups may read (mqadmin updateColdDataFlowCtrGroupConfig)."""
        brokers = await self.brokers(cluster=cluster, broker=broker)
        answers = await self._ask_brokers(
            brokers, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=settings_body(limits)
        )
        return answers.complete("set the limits")

    async def remove_cold_data_limit(
        self, group: str, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Remove such a limit (mqadmin removeColdDataFlowCtrGroupConfig)."""
        brokers = await self.brokers(cluster=cluster, broker=broker)
        answers = await self._ask_brokers(brokers, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=group.encode())
        return answers.complete("remove the limit")

    async def set_read_ahead(
        self, mode: Literal["normal", "random"], *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Let the system read ahead in log files, or not (mqadmin setCommitLogReadAheadMode)."""
        brokers = await self.brokers(cluster=cluster, broker=broker)
        answers = await self._ask_brokers(
            brokers, RequestCode.SET_COMMITLOG_READ_MODE, SetCommitLogReadMode(read_ahead_mode=_READ_AHEAD[mode])
        )
        return answers.complete("set the mode")

    async def export_pop_records(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Move check points of pops from the key-value store to files (mqadmin exportPopRecord)."""
        return await self._everywhere(RequestCode.POP_ROLLBACK, "move pop records", cluster, broker)

    # Stores in RocksDB

    async def check_rocksdb_queues(self, broker: str, topic: str, *, since: datetime | int = 0) -> str:
        """Let a broker compare consume queues in files and in RocksDB; its words.

        (mqadmin checkRocksdbCqWriteProgress.)
        """
        place = await self._one_broker(broker)
        header = CheckRocksDbProgress(topic=topic, check_store_timestamp_ms=to_ms(since))
        answer = await self._ask(
            place.address, RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, header, timeout_ms=self._timeout_ms * 3
        )
        return answer.body.decode("utf-8", "replace")

    async def export_rocksdb_config(
        self,
        broker: str,
        kinds: Sequence[Literal["topics", "subscriptionGroups", "consumerOffsets"]] = (
            "topics",
            "subscriptionGroups",
            "consumerOffsets",
        ),
    ) -> None:
        """Let a broker write what it keeps in RocksDB to its JSON files (mqadmin rocksDBConfigToJson)."""
        place = await self._one_broker(broker)
        header = ExportRocksDbConfig(config_type=";".join(kinds))
        await self._ask(place.address, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, header)

    # Containers

    async def add_broker(
        self, container: str, *, config_path: str = "", settings: Mapping[str, object] | None = None
    ) -> None:
        """Start a broker in a container, by a file at its side or by settings (mqadmin addBroker)."""
        await self._ask(
            container,
            RequestCode.ADD_BROKER,
            AddBroker(config_path=config_path or None),
            body=settings_body(settings) if settings else b"",
            timeout_ms=self._timeout_ms * 4,
        )

    async def remove_broker(self, container: str, *, cluster: str, broker_name: str, broker_id: int = 0) -> None:
        """Stop a broker in a container (mqadmin removeBroker)."""
        header = RemoveBroker(broker_name=broker_name, cluster_name=cluster, broker_id=broker_id)
        await self._ask(container, RequestCode.REMOVE_BROKER, header, timeout_ms=self._timeout_ms * 4)

    # Within

    async def _everywhere(
        self, code: RequestCode, what: str, cluster: str | None, broker: str | None
    ) -> tuple[BrokerAddress, ...]:
        brokers = await self.brokers(cluster=cluster, broker=broker, slaves=True)
        return (await self._ask_brokers(brokers, code, timeout_ms=self._timeout_ms * 3)).complete(what)

    async def _state(self, place: BrokerAddress) -> BrokerState:
        answer = await self._ask(place.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return broker_state(place, dict(decode_kv_table(answer.body).table))


def broker_state(place: BrokerAddress, table: dict[str, str]) -> BrokerState:
    """A broker's table of numbers, read; what is missing or no number is 0."""

    def whole(name: str) -> int:
        return int(_number(table.get(name, "")))

    return BrokerState(
        broker=place,
        version=table.get("brokerVersionDesc", ""),
        boot_ms=whole("bootTimestamp"),
        put_tps=_number(table.get("putTps", "")),
        get_tps=_number(table.get("getTransferredTps") or table.get("getTransferedTps", "")),
        put_total=whole("putMessageTimesTotal"),
        put_today=whole("msgPutTotalTodayNow") - whole("msgPutTotalTodayMorning"),
        put_yesterday=whole("msgPutTotalTodayMorning") - whole("msgPutTotalYesterdayMorning"),
        get_today=whole("msgGetTotalTodayNow") - whole("msgGetTotalTodayMorning"),
        get_yesterday=whole("msgGetTotalTodayMorning") - whole("msgGetTotalYesterdayMorning"),
        log_min_offset=whole("commitLogMinOffset"),
        log_max_offset=whole("commitLogMaxOffset"),
        disk_used_ratio=_number(table.get("commitLogDiskRatio", "")),
        dispatch_behind_bytes=whole("dispatchBehindBytes"),
        earliest_message_ms=max(whole("earliestMessageTimeStamp"), 0),
        send_queue_size=whole("sendThreadPoolQueueSize"),
        pull_queue_size=whole("pullThreadPoolQueueSize"),
        page_cache_lock_ms=whole("pageCacheLockTimeMills"),
        timer_behind=whole("timerOffsetBehind"),
        is_active=table.get("brokerActive", "true") == "true",
        table=dict(sorted(table.items())),
    )


def _number(text: str) -> float:
    """The first number of a text: rates come as three, of ten seconds, one minute and ten."""
    try:
        return float(text.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return 0.0

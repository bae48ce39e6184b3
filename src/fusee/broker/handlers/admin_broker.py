"""A broker as a whole: settings, runtime figures, statistics, and what it has none of (Java: AdminBrokerProcessor).

Topics, groups, offsets and cleaning are asked of their own handlers. Codes of features that this broker does not have
are answered with an explanation where tools ask for them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.broker.settings_update import SettingsFile, UpdateRefusedError
from fusee.config import parse_properties
from fusee.errors import ConfigError
from fusee.transport.router import Reply
from fusee.wire.bodies.kv import encode_kv_table
from fusee.wire.bodies.replication import HaClientInfo, HaConnectionInfo, HaRuntimeInfo
from fusee.wire.bodies.stats import BrokerStatsData, BrokerStatsItem
from fusee.wire.bodies.topic import encode_data_version
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.admin import ExportRocksDbConfig, GetBrokerConfigResponse
from fusee.wire.lenient_json import dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.broker.runtime_info import RuntimeInfo
    from fusee.broker.sampled_counts import Window
    from fusee.broker.settings_update import LiveSettings
    from fusee.broker.statistics import Statistics
    from fusee.broker.worker import Worker
    from fusee.replication import Primary, Replica
    from fusee.store.engine import MessageStore
    from fusee.store.filesystem import FileSystem
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.command import Command

_log = logging.getLogger(__name__)

_EXPORTS: Final = frozenset({"topics", "subscriptiongroups", "consumeroffsets"})
_CHECK_ERROR: Final = 3
_COLD_READ_DEFAULTS: Final = {"cgColdReadThreshold": 3 * 1024 * 1024, "globalColdReadThreshold": 100 * 1024 * 1024}
_NO_COLD_LIMITS: Final = "this broker does not limit how much a group reads from disk, so there is no limit to change"
_NO_READ_MODE: Final = "this broker leaves it to the operating system how far to read ahead"


class BrokerHandlers:
    """Codes about the broker itself."""

    def __init__(
        self,
        *,
        settings: LiveSettings,
        statistics: Statistics,
        runtime: RuntimeInfo,
        store: MessageStore,
        worker: Worker,
        files: FileSystem,
        primary: Callable[[], Primary | None] = lambda: None,
        replica: Callable[[], Replica | None] = lambda: None,
    ) -> None:
        """`primary` and `replica` give the two ends of the log stream, of which a broker has one."""
        self._settings = settings
        self._statistics = statistics
        self._runtime = runtime
        self._store = store
        self._worker = worker
        self._primary = primary
        self._replica = replica
        path = settings.broker.broker_config_path
        self._file = SettingsFile(path, files) if path else None

    def routes(self) -> dict[RequestCode, Handler]:
        """Codes and who answers them."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.get_runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view_stats,
            RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: self.check_rocksdb_queues,
            RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: self.export_to_json,
            RequestCode.GET_BROKER_HA_STATUS: self.get_ha_status,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.get_epochs,
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: self.refuse_cold_read_limit,
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: self.refuse_cold_read_limit,
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: self.get_cold_reads,
            RequestCode.SET_COMMITLOG_READ_MODE: self.refuse_read_mode,
        }

    # Settings

    def get_config(self, request: Command, link: Link) -> Command:
        """26: all settings as properties text, and how often they were changed."""
        header = GetBrokerConfigResponse(version=encode_data_version(self._settings.version).decode())
        return request.reply(header=header, body=self._settings.to_properties().encode())

    def update_config(self, request: Command, link: Link) -> Command | Reply:
        """25: change settings that are on the allow-list; answered when they are saved, if there is a file for it."""
        if not request.body:
            return request.reply()
        try:
            changes = self._settings.update(parse_properties(request.body.decode()))
        except UpdateRefusedError as error:
            return request.reply(ResponseCode.NO_PERMISSION, remark=str(error))
        except ConfigError as error:
            return request.reply(ResponseCode.INVALID_PARAMETER, remark=f"nothing was changed: {error}")
        except UnicodeDecodeError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"the settings are not UTF-8: {error}")
        _log.info("%s changed settings: %s", link.remote_address, changes)
        file = self._file
        if file is None:
            return request.reply()
        reply = Reply(request, link)

        def failed(error: Exception) -> None:
            _log.error("settings were not saved: %s", error)
            reply.send(
                request.reply(
                    ResponseCode.SYSTEM_ERROR,
                    remark=f"the settings are changed, but were not saved and end with this run of the broker: {error}",
                )
            )

        self._worker.run(lambda: file.save(changes), lambda _: reply.send(request.reply()), failed)
        return reply

    # Figures

    def get_runtime_info(self, request: Command, link: Link) -> Command:
        """28: how the broker is doing."""
        return request.reply(body=encode_kv_table(self._runtime.table()))

    def view_stats(self, request: Command, link: Link) -> Command:
        """315: one count in the last minute, hour and day."""
        fields = request.all_fields()
        name, key = fields.get("statsName", "null"), fields.get("statsKey", "null")
        windows = self._statistics.windows(name, key)
        if windows is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"The stats <{name}> <{key}> not exist")
        data = BrokerStatsData(
            stats_minute=_item(windows.minute), stats_hour=_item(windows.hour), stats_day=_item(windows.day)
        )
        return request.reply(body=dumps_fastjson(data))

    def get_ha_status(self, request: Command, link: Link) -> Command:
        """907: a master and how far its slaves are, or a slave and how it follows."""
        info = self._ha_master() if self._settings.broker.is_master else self._ha_slave()
        shown = msgspec.to_builtins(info)
        # The reference keeps this to itself.
        del shown["haClientRuntimeInfo"]["activated"]
        return request.reply(body=dumps_fastjson(shown))

    def _ha_master(self) -> HaRuntimeInfo:
        end_offset = self._store.end_offset
        info = HaRuntimeInfo(master=True, master_commit_log_max_offset=end_offset)
        primary = self._primary()
        if primary is not None:
            progress = primary.progress
            in_sync = {slave.address for slave in progress.in_sync(end_offset)}
            info.in_sync_slave_nums = len(in_sync)
            info.ha_connection_info = [
                HaConnectionInfo(
                    address=slave.address,
                    diff=end_offset - slave.acknowledged_offset,
                    in_sync=slave.address in in_sync,
                    slave_ack_offset=slave.acknowledged_offset,
                    transfer_from_where=slave.next_offset,
                    transferred_bytes_per_second=slave.bytes_per_second,
                )
                for slave in progress.slaves.values()
            ]
        return info

    def _ha_slave(self) -> HaRuntimeInfo:
        client = HaClientInfo(max_log_offset=self._store.end_offset)
        replica = self._replica()
        if replica is not None:
            client.master_address = replica.ha_address
            client.last_read_timestamp = replica.last_read_ms
            client.last_write_timestamp = replica.last_write_ms
            client.transferred_bytes_per_second = replica.bytes_per_second
            client.master_flush_offset = self._store.checkpoint.master_flushed_offset
        return HaRuntimeInfo(ha_client_runtime_info=client)

    # What this broker has none of

    def get_epochs(self, request: Command, link: Link) -> Command:
        """1007: only a broker under a controller has epochs."""
        return request.reply(ResponseCode.SYSTEM_ERROR, remark="this request only for controllerMode ")

    def export_to_json(self, request: Command, link: Link) -> Command:
        """355: topics, groups and offsets are in JSON files already."""
        header = request.read(ExportRocksDbConfig)
        for name in header.config_type.split(";"):
            if name and name.strip().lower() not in _EXPORTS:
                return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"Unknown config type: {name}")
        return request.reply(remark="export done.")

    def check_rocksdb_queues(self, request: Command, link: Link) -> Command:
        """354: there are no consume queues in RocksDB to compare with."""
        result = {
            "checkResult": "consume queues of this broker are files only; there is nothing to compare",
            "checkStatus": _CHECK_ERROR,
        }
        return request.reply(body=dumps_fastjson(result))

    def get_cold_reads(self, request: Command, link: Link) -> Command:
        """2003: reads from disk are not limited, so nothing is counted against a limit."""
        info = {"runtimeTable": {}, "configTable": {}, **_COLD_READ_DEFAULTS, "globalAcc": 0}
        return request.reply(body=dumps_fastjson(info))

    def refuse_cold_read_limit(self, request: Command, link: Link) -> Command:
        """2001 and 2002."""
        return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=_NO_COLD_LIMITS)

    def refuse_read_mode(self, request: Command, link: Link) -> Command:
        """2004."""
        return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=_NO_READ_MODE)


def _item(window: Window) -> BrokerStatsItem:
    return BrokerStatsItem(avgpt=window.average, sum=window.sum, tps=window.per_second)

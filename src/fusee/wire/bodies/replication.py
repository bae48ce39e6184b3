"""Bodies of brokers that copy each other, and of the controller that decides among them.

Fields are declared in the alphabetical order of their wire names: the order in which Java writes them.
"""

from __future__ import annotations

import msgspec

from fusee.wire.bodies.route import BrokerMemberGroup
from fusee.wire.fields import Int32, Int64


class SyncStateSet(msgspec.Struct, rename="camel", kw_only=True):
    """Ids of the replicas in step, and the number of that set."""

    sync_state_set: list[Int64] = []
    sync_state_set_epoch: Int32 = 0


class ElectMasterResponseBody(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 1002."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[Int64] = []


class ReplicaIdentity(msgspec.Struct, rename="camel", kw_only=True):
    """One replica as the controller knows it (Java: BrokerReplicasInfo.ReplicaIdentity)."""

    alive: bool | None = None
    broker_address: str | None = None
    broker_id: Int64 | None = None
    broker_name: str | None = None


class ReplicasInfo(msgspec.Struct, rename="camel", kw_only=True):
    """One broker group as the controller knows it (Java: BrokerReplicasInfo.ReplicasInfo)."""

    in_sync_replicas: list[ReplicaIdentity] = []
    master_address: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 = 0
    not_in_sync_replicas: list[ReplicaIdentity] = []
    sync_state_set_epoch: Int32 = 0


class BrokerReplicasInfo(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 1006: by broker name."""

    replicas_info_table: dict[str, ReplicasInfo] = {}


class HaConnectionInfo(msgspec.Struct, rename="camel", kw_only=True):
    """A slave as its master sees it (Java: HARuntimeInfo.HAConnectionRuntimeInfo)."""

    address: str | None = msgspec.field(default=None, name="addr")
    diff: Int64 = 0
    in_sync: bool = False
    slave_ack_offset: Int64 = 0
    transfer_from_where: Int64 = 0
    transferred_bytes_per_second: Int64 = msgspec.field(default=0, name="transferredByteInSecond")


class HaClientInfo(msgspec.Struct, rename="camel", kw_only=True):
    """A slave as it sees itself (Java: HARuntimeInfo.HAClientRuntimeInfo)."""

    activated: bool = False
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_address: str | None = msgspec.field(default=None, name="masterAddr")
    master_flush_offset: Int64 = 0
    max_log_offset: Int64 = msgspec.field(default=0, name="maxOffset")
    transferred_bytes_per_second: Int64 = msgspec.field(default=0, name="transferredByteInSecond")


class HaRuntimeInfo(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 907 (Java: HARuntimeInfo)."""

    ha_client_runtime_info: HaClientInfo = msgspec.field(default_factory=HaClientInfo)
    ha_connection_info: list[HaConnectionInfo] = []
    in_sync_slave_nums: Int32 = 0
    master: bool = False
    master_commit_log_max_offset: Int64 = 0


class EpochEntry(msgspec.Struct, rename="camel", kw_only=True):
    """The part of the log that one master wrote."""

    end_offset: Int64 = 0
    epoch: Int32 = 0
    start_offset: Int64 = 0


class EpochEntries(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 1007 (Java: EpochEntryCache)."""

    broker_id: Int64 = 0
    broker_name: str | None = None
    cluster_name: str | None = None
    epoch_list: list[EpochEntry] = []
    max_log_offset: Int64 = msgspec.field(default=0, name="maxOffset")

"""Headers of the controller, which elects masters, and of the container, which runs several brokers."""

from __future__ import annotations

import msgspec

from fusee.wire.fields import Header, Int32, Int64


class AlterSyncStateSet(Header, kw_only=True):
    """Code 1001 (Java: AlterSyncStateSetRequestHeader)."""

    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    invoke_timestamp_ms: Int64 | None = msgspec.field(default=None, name="invokeTime")


class AlterSyncStateSetResponse(Header, kw_only=True):
    """Java: AlterSyncStateSetResponseHeader."""

    new_sync_state_set_epoch: Int32 = 0


class ElectMaster(Header, kw_only=True):
    """Code 1002 (Java: ElectMasterRequestHeader)."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Int64 = -1
    designate_elect: bool = False
    invoke_timestamp_ms: Int64 | None = msgspec.field(default=None, name="invokeTime")


class ElectMasterResponse(Header, kw_only=True):
    """Java: ElectMasterResponseHeader."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class RegisterBrokerToController(Header, kw_only=True):
    """Code 1003 (Java: RegisterBrokerToControllerRequestHeader)."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    invoke_timestamp_ms: Int64 | None = msgspec.field(default=None, name="invokeTime")


class RegisterBrokerToControllerResponse(Header, kw_only=True):
    """Java: RegisterBrokerToControllerResponseHeader."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class GetReplicaInfo(Header, kw_only=True):
    """Code 1004 (Java: GetReplicaInfoRequestHeader)."""

    broker_name: str | None = None


class GetReplicaInfoResponse(Header, kw_only=True):
    """Java: GetReplicaInfoResponseHeader."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


class GetControllerMetadataResponse(Header, kw_only=True):
    """The answer to code 1005 (Java: GetMetaDataResponseHeader)."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class CleanBrokerData(Header, kw_only=True):
    """Code 1011 (Java: CleanControllerBrokerDataRequestHeader)."""

    cluster_name: str | None = None
    broker_name: str
    broker_ids: str | None = msgspec.field(default=None, name="brokerControllerIdsToClean")
    living_too: bool = msgspec.field(default=False, name="isCleanLivingBroker")
    invoke_timestamp_ms: Int64 | None = msgspec.field(default=None, name="invokeTime")


class GetNextBrokerId(Header, kw_only=True):
    """Code 1012 (Java: GetNextBrokerIdRequestHeader)."""

    cluster_name: str | None = None
    broker_name: str | None = None


class GetNextBrokerIdResponse(Header, kw_only=True):
    """Java: GetNextBrokerIdResponseHeader."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


class ApplyBrokerId(Header, kw_only=True):
    """Code 1013 (Java: ApplyBrokerIdRequestHeader)."""

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Int64 | None = None
    register_check_code: str | None = None


class ApplyBrokerIdResponse(Header, kw_only=True):
    """Java: ApplyBrokerIdResponseHeader."""

    cluster_name: str | None = None
    broker_name: str | None = None


class AddBroker(Header, kw_only=True):
    """Code 902, to a container (Java: AddBrokerRequestHeader)."""

    config_path: str | None = None


class RemoveBroker(Header, kw_only=True):
    """Code 903, to a container (Java: RemoveBrokerRequestHeader)."""

    broker_name: str
    cluster_name: str = msgspec.field(name="brokerClusterName")
    broker_id: Int64

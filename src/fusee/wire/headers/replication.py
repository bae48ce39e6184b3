"""Headers by which brokers of one group keep each other informed."""

from __future__ import annotations

from fusee.wire.fields import Header, Int32, Int64


class NotifyMinBrokerIdChange(Header, kw_only=True):
    """Code 905, name server to broker (Java: NotifyMinBrokerIdChangeRequestHeader)."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class ExchangeHaInfo(Header, kw_only=True):
    """Code 906; an address in it is told, an empty header asks (Java: ExchangeHAInfoRequestHeader)."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class ExchangeHaInfoResponse(Header, kw_only=True):
    """Java: ExchangeHAInfoResponseHeader."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class ResetMasterFlushOffset(Header, kw_only=True):
    """Code 908 (Java: ResetMasterFlushOffsetHeader)."""

    master_flush_offset: Int64


class NotifyBrokerRoleChanged(Header, kw_only=True):
    """Code 1008, controller to broker (Java: NotifyBrokerRoleChangedRequestHeader)."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None

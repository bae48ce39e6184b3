"""Headers of the name server: routes, brokers that announce themselves, topics, key-value configuration."""

from __future__ import annotations

import msgspec

from fusee.wire.fields import Header, Int32, Int64, TopicHeader


class GetRouteInfo(TopicHeader, kw_only=True):
    """Code 105 (Java: GetRouteInfoRequestHeader)."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBroker(Header, kw_only=True):
    """Code 103 (Java: RegisterBrokerRequestHeader)."""

    broker_name: str
    broker_address: str = msgspec.field(name="brokerAddr")
    cluster_name: str
    ha_server_address: str = msgspec.field(name="haServerAddr")
    broker_id: Int64
    heartbeat_timeout_ms: Int64 | None = msgspec.field(default=None, name="heartbeatTimeoutMillis")
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = msgspec.field(default=0, name="bodyCrc32")


class RegisterBrokerResponse(Header, kw_only=True):
    """Java: RegisterBrokerResponseHeader."""

    ha_server_address: str | None = msgspec.field(default=None, name="haServerAddr")
    master_address: str | None = msgspec.field(default=None, name="masterAddr")


class UnregisterBroker(Header, kw_only=True):
    """Code 104 (Java: UnRegisterBrokerRequestHeader)."""

    broker_name: str
    broker_address: str = msgspec.field(name="brokerAddr")
    cluster_name: str
    broker_id: Int64


class QueryDataVersion(Header, kw_only=True):
    """Code 322 (Java: QueryDataVersionRequestHeader)."""

    broker_name: str
    broker_address: str = msgspec.field(name="brokerAddr")
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponse(Header, kw_only=True):
    """Java: QueryDataVersionResponseHeader."""

    changed: bool


class BrokerHeartbeat(Header, kw_only=True):
    """Code 904, to name servers and controllers (Java: BrokerHeartbeatRequestHeader)."""

    cluster_name: str
    broker_address: str = msgspec.field(name="brokerAddr")
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_log_offset: Int64 | None = msgspec.field(default=None, name="maxOffset")
    confirmed_log_offset: Int64 | None = msgspec.field(default=None, name="confirmOffset")
    heartbeat_timeout_ms: Int64 | None = msgspec.field(default=None, name="heartbeatTimeoutMills")
    election_priority: Int32 | None = None


class GetBrokerMemberGroup(Header, kw_only=True):
    """Code 901 (Java: GetBrokerMemberGroupRequestHeader)."""

    cluster_name: str
    broker_name: str


class WipeWritePermission(Header, kw_only=True):
    """Code 205 (Java: WipeWritePermOfBrokerRequestHeader)."""

    broker_name: str


class WipeWritePermissionResponse(Header, kw_only=True):
    """Java: WipeWritePermOfBrokerResponseHeader."""

    topics: Int32 = msgspec.field(name="wipeTopicCount")


class AddWritePermission(Header, kw_only=True):
    """Code 327 (Java: AddWritePermOfBrokerRequestHeader)."""

    broker_name: str


class AddWritePermissionResponse(Header, kw_only=True):
    """Java: AddWritePermOfBrokerResponseHeader."""

    topics: Int32 = msgspec.field(name="addTopicCount")


class RegisterTopic(TopicHeader, kw_only=True):
    """Code 217 (Java: RegisterTopicRequestHeader)."""

    topic: str


class DeleteTopicFromNameServer(TopicHeader, kw_only=True):
    """Code 216 (Java: DeleteTopicFromNamesrvRequestHeader)."""

    topic: str
    cluster_name: str | None = None


class GetTopicsByCluster(Header, kw_only=True):
    """Code 224 (Java: GetTopicsByClusterRequestHeader)."""

    cluster: str


class PutKeyValue(Header, kw_only=True):
    """Code 100 (Java: PutKVConfigRequestHeader)."""

    namespace: str
    key: str
    value: str


class GetKeyValue(Header, kw_only=True):
    """Code 101 (Java: GetKVConfigRequestHeader)."""

    namespace: str
    key: str


class GetKeyValueResponse(Header, kw_only=True):
    """Java: GetKVConfigResponseHeader."""

    value: str | None = None


class DeleteKeyValue(Header, kw_only=True):
    """Code 102 (Java: DeleteKVConfigRequestHeader)."""

    namespace: str
    key: str


class GetKeyValuesByNamespace(Header, kw_only=True):
    """Code 219 (Java: GetKVListByNamespaceRequestHeader)."""

    namespace: str

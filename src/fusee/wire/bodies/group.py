"""Bodies about groups: configuration, subscriptions, connected members.

Fields are declared in the alphabetical order of their wire names: the order in which Java writes them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from fusee.wire.bodies.heartbeat import SubscriptionData
from fusee.wire.bodies.topic import DataVersion
from fusee.wire.fields import Int32, Int64


class ExponentialRetryPolicy(msgspec.Struct, rename="camel", kw_only=True):
    """Waits that grow by a factor up to a limit."""

    initial_ms: Int64 = msgspec.field(default=5_000, name="initial")
    max_ms: Int64 = msgspec.field(default=7_200_000, name="max")
    multiplier: Int64 = 2


class CustomizedRetryPolicy(msgspec.Struct, rename="camel", kw_only=True):
    """Waits one by one; the last holds for all that follow."""

    next_ms: list[Int64] = msgspec.field(default_factory=list, name="next")


class GroupRetryPolicy(msgspec.Struct, rename="camel", kw_only=True):
    """How long a failed message waits; without details, the delay levels from the third on."""

    customized_retry_policy: CustomizedRetryPolicy | None = None
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    type: Literal["CUSTOMIZED", "EXPONENTIAL"] = "CUSTOMIZED"


class SimpleSubscriptionData(msgspec.Struct, rename="camel", kw_only=True):
    """A subscription that the group has by configuration."""

    expression: str | None = None
    expression_type: str | None = None
    topic: str
    version: Int64 = 0


class SubscriptionGroupConfig(msgspec.Struct, rename="camel", kw_only=True):
    """One consumer group on one broker. Code 200, and the answer to 352."""

    attributes: dict[str, str] = {}
    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minutes: Int32 = msgspec.field(default=15, name="consumeTimeoutMinute")
    group_name: str
    group_retry_policy: GroupRetryPolicy = msgspec.field(default_factory=GroupRetryPolicy)
    group_sys_flag: Int32 = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    which_broker_when_consume_slowly: Int64 = 1


class SubscriptionGroupTable(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 201 (Java: SubscriptionGroupWrapper)."""

    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, Int32]] = {}
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}


class SubscriptionGroupList(msgspec.Struct, rename="camel", kw_only=True):
    """Code 225."""

    group_config_list: list[SubscriptionGroupConfig]


class GroupForbidden(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 353."""

    group: str | None = None
    readable: bool | None = None
    topic: str | None = None


class GroupList(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 300."""

    group_list: list[str] = []


class QuerySubscriptionResponse(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 345 (Java: QuerySubscriptionResponseBody)."""

    group: str | None = None
    subscription_data: SubscriptionData | None = None
    topic: str | None = None


class Connection(msgspec.Struct, rename="camel", kw_only=True):
    """One connected client."""

    client_address: str = msgspec.field(name="clientAddr")
    client_id: str
    language: str = "OTHER"
    version: Int32 = 0


class ConsumerConnection(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 203."""

    connection_set: list[Connection] = []
    consume_from_where: str | None = None
    consume_type: str | None = None
    message_model: str | None = None
    subscription_table: dict[str, SubscriptionData] = {}


class ProducerConnection(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 204."""

    connection_set: list[Connection] = []


class ProducerInfo(msgspec.Struct, rename="camel", kw_only=True):
    """One member of a producer group."""

    client_id: str
    language: str = "OTHER"
    last_update_timestamp: Int64 = 0
    remote_ip: str = msgspec.field(default="", name="remoteIP")
    version: Int32 = 0


class ProducerTable(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 328: members by group (Java: ProducerTableInfo)."""

    data: dict[str, list[ProducerInfo]] = {}

"""Routes: which brokers serve a topic and at which addresses, as bodies of the name server's answers.

The same values are written in two dialects. Clients before 4.9.4 get FastJSON's own, with bare integer
keys (`"brokerAddrs":{0:"10.0.0.1:10911"}`); later ones, and those that ask for standard JSON, get quoted
keys, sorted maps and everything outside ASCII escaped. Cluster and member-group bodies exist in the first
dialect only, as every client reads it there. Readers accept both.

Fields are declared in the alphabetical order of their wire names: the order in which Java writes them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from fusee.wire.bodies.topic import TopicQueueMappingInfo
from fusee.wire.fields import Int32
from fusee.wire.lenient_json import decode_json, dumps_browser, dumps_fastjson

MASTER_ID: Final = 0

STANDARD_JSON_VERSION: Final = 401
"""Requesters of this release (4.9.4) and later read standard JSON."""


class QueueData(msgspec.Struct, rename="camel", kw_only=True, frozen=True, gc=False):
    """The queues of a topic on one broker group."""

    broker_name: str = ""
    perm: Int32 = 0
    read_queue_nums: Int32 = 0
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 0


class BrokerData(msgspec.Struct, rename="camel", kw_only=True):
    """A broker group: one name, and per broker id an address; id 0 is the master."""

    broker_addrs: dict[int, str] = {}
    broker_name: str = ""
    cluster: str = ""
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRouteData(msgspec.Struct, rename="camel", kw_only=True):
    """Everything a client needs to reach a topic."""

    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(msgspec.Struct, rename="camel", kw_only=True):
    """All broker groups, and the names of those in each cluster."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class BrokerMemberGroup(msgspec.Struct, rename="camel", kw_only=True):
    """Who is alive in one broker group."""

    broker_addrs: dict[int, str] = {}
    broker_name: str = ""
    cluster: str = ""


class _MemberGroupBody(msgspec.Struct, rename="camel"):
    broker_member_group: BrokerMemberGroup


def decode_route(body: bytes) -> TopicRouteData:
    """The route in this body, in either dialect."""
    return decode_json(body, TopicRouteData)


def encode_route(route: TopicRouteData, *, standard_json: bool) -> bytes:
    """The bytes Java writes for this route; `standard_json` chooses the dialect."""
    return dumps_browser(route) if standard_json else dumps_fastjson(route)


def decode_cluster_info(body: bytes) -> ClusterInfo:
    """The clusters in this body."""
    return decode_json(body, ClusterInfo)


def encode_cluster_info(info: ClusterInfo) -> bytes:
    """The bytes Java writes for these clusters, in the order given."""
    return dumps_fastjson(info)


def decode_member_group(body: bytes) -> BrokerMemberGroup:
    """The broker group in this body."""
    return decode_json(body, _MemberGroupBody).broker_member_group


def encode_member_group(group: BrokerMemberGroup) -> bytes:
    """The bytes Java writes for this broker group."""
    return dumps_fastjson(_MemberGroupBody(group))

"""Headers of administration at a broker: topics, groups, statistics, configuration, users and rights."""

from __future__ import annotations

import msgspec

from fusee.wire.fields import Header, Int32, Int64, RpcHeader, TopicHeader

# Topics.


class CreateTopic(TopicHeader, kw_only=True):
    """Codes 17 and 513; `attributes` is `+key=value,-key` (Java: CreateTopicRequestHeader)."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class CreateTopicList(RpcHeader, kw_only=True):
    """Code 18 (Java: CreateTopicListRequestHeader)."""


class DeleteTopic(TopicHeader, kw_only=True):
    """Code 215 (Java: DeleteTopicRequestHeader)."""

    topic: str


class GetAllTopicConfig(Header, kw_only=True):
    """Code 21; no field at all asks for everything at once (Java: GetAllTopicConfigRequestHeader)."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topics: Int32 | None = msgspec.field(default=None, name="maxTopicNum")


class GetAllTopicConfigResponse(Header, kw_only=True):
    """Java: GetAllTopicConfigResponseHeader."""

    total_topics: Int32 | None = msgspec.field(default=None, name="totalTopicNum")


class GetTopicConfig(TopicHeader, kw_only=True):
    """Code 351 (Java: GetTopicConfigRequestHeader)."""

    topic: str


class GetTopicStats(TopicHeader, kw_only=True):
    """Code 202 (Java: GetTopicStatsInfoRequestHeader)."""

    topic: str


class QueryTopicConsumers(TopicHeader, kw_only=True):
    """Code 300 (Java: QueryTopicConsumeByWhoRequestHeader)."""

    topic: str


class QueryTopicsByConsumer(RpcHeader, kw_only=True):
    """Code 343 (Java: QueryTopicsByConsumerRequestHeader)."""

    group: str


class QuerySubscriptionByConsumer(TopicHeader, kw_only=True):
    """Code 345 (Java: QuerySubscriptionByConsumerRequestHeader)."""

    group: str
    topic: str | None = None


class QueryConsumeQueue(TopicHeader, kw_only=True):
    """Code 321 (Java: QueryConsumeQueueRequestHeader)."""

    topic: str | None = None
    queue_id: Int32 = 0
    queue_offset: Int64 = msgspec.field(default=0, name="index")
    count: Int32 = 0
    consumer_group: str | None = None


# Groups.


class GetAllSubscriptionGroups(Header, kw_only=True):
    """Code 201; no field at all asks for everything at once (Java: GetAllSubscriptionGroupRequestHeader)."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_groups: Int32 | None = msgspec.field(default=None, name="maxGroupNum")


class GetAllSubscriptionGroupsResponse(Header, kw_only=True):
    """Absent from the answer of a broker older than paging (Java: GetAllSubscriptionGroupResponseHeader)."""

    total_groups: Int32 | None = msgspec.field(default=None, name="totalGroupNum")


class GetSubscriptionGroup(RpcHeader, kw_only=True):
    """Code 352 (Java: GetSubscriptionGroupConfigRequestHeader)."""

    group: str


class DeleteSubscriptionGroup(RpcHeader, kw_only=True):
    """Code 207 (Java: DeleteSubscriptionGroupRequestHeader)."""

    group: str = msgspec.field(name="groupName")
    clean_offset: bool = False


class UpdateGroupForbidden(TopicHeader, kw_only=True):
    """Code 353; `readable` None only asks (Java: UpdateGroupForbiddenRequestHeader)."""

    group: str
    topic: str
    readable: bool | None = None


class GetConsumerConnections(RpcHeader, kw_only=True):
    """Code 203 (Java: GetConsumerConnectionListRequestHeader)."""

    consumer_group: str


class GetProducerConnections(RpcHeader, kw_only=True):
    """Code 204 (Java: GetProducerConnectionListRequestHeader)."""

    producer_group: str


class GetAllProducers(Header, kw_only=True):
    """Code 328 (Java: GetAllProducerInfoRequestHeader)."""


# Statistics.


class GetConsumeStats(TopicHeader, kw_only=True):
    """Code 208; `topics`, joined by `;`, overrides `topic` (Java: GetConsumeStatsRequestHeader)."""

    consumer_group: str
    topic: str | None = None
    topics: str | None = msgspec.field(default=None, name="topicList")


class GetBrokerConsumeStats(Header, kw_only=True):
    """Code 317 (Java: GetConsumeStatsInBrokerHeader)."""

    is_order: bool


class QueryConsumeTimeSpan(TopicHeader, kw_only=True):
    """Code 303 (Java: QueryConsumeTimeSpanRequestHeader)."""

    topic: str
    group: str


class ViewBrokerStats(Header, kw_only=True):
    """Code 315 (Java: ViewBrokerStatsDataRequestHeader)."""

    stats_name: str
    stats_key: str


# Configuration and store.


class GetBrokerConfigResponse(Header, kw_only=True):
    """The answer to code 26; `version` is a DataVersion as JSON (Java: GetBrokerConfigResponseHeader)."""

    version: str


class SetCommitLogReadMode(Header, kw_only=True):
    """Code 2004: 0 normal, 1 random."""

    read_ahead_mode: Int32 = msgspec.field(name="READ_AHEAD_MODE")


class SwitchTimerEngine(Header, kw_only=True):
    """Code 5001: F for the files of the timer wheel, R for RocksDB."""

    engine: str = msgspec.field(name="E_T")


class CheckRocksDbProgress(Header, kw_only=True):
    """Code 354 (Java: CheckRocksdbCqWriteProgressRequestHeader)."""

    topic: str
    check_store_timestamp_ms: Int64 = msgspec.field(default=0, name="checkStoreTime")


class ExportRocksDbConfig(Header, kw_only=True):
    """Code 355 (Java: ExportRocksDBConfigToJsonRequestHeader)."""

    config_type: str


# Users and rights.


class CreateUser(Header, kw_only=True):
    """Code 3001 (Java: CreateUserRequestHeader)."""

    username: str | None = None


class UpdateUser(Header, kw_only=True):
    """Code 3002 (Java: UpdateUserRequestHeader)."""

    username: str | None = None


class DeleteUser(Header, kw_only=True):
    """Code 3003 (Java: DeleteUserRequestHeader)."""

    username: str | None = None


class GetUser(Header, kw_only=True):
    """Code 3004 (Java: GetUserRequestHeader)."""

    username: str | None = None


class ListUsers(Header, kw_only=True):
    """Code 3005 (Java: ListUsersRequestHeader)."""

    filter: str | None = None


class CreateAcl(Header, kw_only=True):
    """Code 3006 (Java: CreateAclRequestHeader)."""

    subject: str | None = None


class UpdateAcl(Header, kw_only=True):
    """Code 3007 (Java: UpdateAclRequestHeader)."""

    subject: str | None = None


class DeleteAcl(Header, kw_only=True):
    """Code 3008; without resource, all of the subject (Java: DeleteAclRequestHeader)."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class GetAcl(Header, kw_only=True):
    """Code 3009 (Java: GetAclRequestHeader)."""

    subject: str | None = None


class ListAcls(Header, kw_only=True):
    """Code 3010 (Java: ListAclsRequestHeader)."""

    subject_filter: str | None = None
    resource_filter: str | None = None

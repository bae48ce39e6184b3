"""The whole protocol on a few pages: every request code with its headers, its bodies, and who serves it.

Handlers, tests and docs/compatibility.md derive from this table. `SERVED` is the only place that says what
Fusee serves today: a node that learns a request adds its code there. A code without a node is reserved: the
reference has the number and no handler for it either.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fusee.wire.bodies import (
    access,
    group,
    heartbeat,
    kv,
    locks,
    offsets,
    pop,
    replication,
    route,
    staged,
    stats,
    topic,
)
from fusee.wire.codes import RequestCode as Rq
from fusee.wire.headers import admin as ha
from fusee.wire.headers import bulk_read as hb
from fusee.wire.headers import client as hc
from fusee.wire.headers import controller as hk
from fusee.wire.headers import handover as hh
from fusee.wire.headers import namesrv as hn
from fusee.wire.headers import offset as ho
from fusee.wire.headers import pop as hp
from fusee.wire.headers import pull as hl
from fusee.wire.headers import replication as hr
from fusee.wire.headers import send as hs
from fusee.wire.headers import staged as hg
from fusee.wire.headers import transaction as ht

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fusee.wire.fields import Header


class Node(Enum):
    """A program that answers requests."""

    NAME_SERVER = "name server"
    BROKER = "broker"
    CLIENT = "client"
    CONTROLLER = "controller"
    CONTAINER = "broker container"


class Conversation(Enum):
    """What a request is about: the handler module it belongs to."""

    SEND = "send"
    PULL = "pull"
    POP = "pop"
    LITE = "lite topics"
    OFFSET = "offsets"
    TRANSACTION = "transactions"
    STAGED = "staged batches"
    CLIENT = "clients"
    ROUTE = "routes"
    REGISTRATION = "registration"
    KEY_VALUE = "key-value configuration"
    TOPIC = "topics"
    GROUP = "groups"
    STATS = "statistics"
    BROKER = "broker"
    ACCESS = "access control"
    REPLICATION = "replication"
    CONTROLLER = "controller"
    RESERVED = "reserved"


class Status(Enum):
    """Whether Fusee answers."""

    SERVED = "served"
    PLANNED = "planned"
    NOT_SERVED = "not served"


class BodyKind(Enum):
    """How the bytes after the header are to be read."""

    NONE = "none"
    JSON = "JSON"
    PAYLOAD = "message body"
    BATCH = "batch elements"
    RECORDS = "stored records"
    PROPERTIES = "properties text"
    TEXT = "text"
    BINARY = "binary"


EXTENSIONS: Final = range(60_000, 61_000)
"""Codes of Fusee's own, in a gap between those of the reference."""


@dataclass(frozen=True, slots=True)
class Body:
    """Kind of a body, and for JSON the type it decodes to, where it is declared."""

    kind: BodyKind
    type: Any = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One request code."""

    code: Rq
    nodes: tuple[Node, ...]
    conversation: Conversation
    meaning: str
    request_header: type[Header] | None
    request_body: Body
    response_header: type[Header] | None
    response_body: Body

    @property
    def name(self) -> str:
        return self.code.name

    @property
    def is_extension(self) -> bool:
        """Whether the code is Fusee's own, which the reference does not know."""
        return self.code in EXTENSIONS

    def status_at(self, node: Node) -> Status:
        """Whether our program of this kind answers."""
        if node not in self.nodes:
            return Status.NOT_SERVED
        return Status.SERVED if self.code in SERVED.get(node, ()) else Status.PLANNED

    @property
    def status(self) -> Status:
        """Served when some program of ours answers."""
        by_node = {self.status_at(node) for node in self.nodes}
        for status in (Status.SERVED, Status.PLANNED):
            if status in by_node:
                return status
        return Status.NOT_SERVED


SERVED: Final[Mapping[Node, frozenset[Rq]]] = {
    Node.NAME_SERVER: frozenset(
        {
            Rq.PUT_KV_CONFIG,
            Rq.GET_KV_CONFIG,
            Rq.DELETE_KV_CONFIG,
            Rq.REGISTER_BROKER,
            Rq.UNREGISTER_BROKER,
            Rq.GET_ROUTEINFO_BY_TOPIC,
            Rq.GET_BROKER_CLUSTER_INFO,
            Rq.WIPE_WRITE_PERM_OF_BROKER,
            Rq.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            Rq.DELETE_TOPIC_IN_NAMESRV,
            Rq.REGISTER_TOPIC_IN_NAMESRV,
            Rq.GET_KVLIST_BY_NAMESPACE,
            Rq.GET_TOPICS_BY_CLUSTER,
            Rq.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            Rq.GET_UNIT_TOPIC_LIST,
            Rq.GET_HAS_UNIT_SUB_TOPIC_LIST,
            Rq.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            Rq.UPDATE_NAMESRV_CONFIG,
            Rq.GET_NAMESRV_CONFIG,
            Rq.QUERY_DATA_VERSION,
            Rq.ADD_WRITE_PERM_OF_BROKER,
            Rq.GET_BROKER_MEMBER_GROUP,
            Rq.BROKER_HEARTBEAT,
        }
    ),
    Node.BROKER: frozenset(
        {
            Rq.STAGE_MESSAGES,
            Rq.COMMIT_STAGED_BATCH,
            Rq.DROP_STAGED_BATCH,
            Rq.GET_STAGED_BATCH,
            Rq.SEND_MESSAGE,
            Rq.PULL_MESSAGE,
            Rq.QUERY_MESSAGE,
            Rq.QUERY_CONSUMER_OFFSET,
            Rq.UPDATE_CONSUMER_OFFSET,
            Rq.UPDATE_AND_CREATE_TOPIC,
            Rq.UPDATE_AND_CREATE_TOPIC_LIST,
            Rq.GET_ALL_TOPIC_CONFIG,
            Rq.UPDATE_BROKER_CONFIG,
            Rq.GET_BROKER_CONFIG,
            Rq.GET_BROKER_RUNTIME_INFO,
            Rq.SEARCH_OFFSET_BY_TIMESTAMP,
            Rq.GET_MAX_OFFSET,
            Rq.GET_MIN_OFFSET,
            Rq.GET_EARLIEST_MSG_STORETIME,
            Rq.VIEW_MESSAGE_BY_ID,
            Rq.HEART_BEAT,
            Rq.UNREGISTER_CLIENT,
            Rq.CONSUMER_SEND_MSG_BACK,
            Rq.END_TRANSACTION,
            Rq.GET_CONSUMER_LIST_BY_GROUP,
            Rq.LOCK_BATCH_MQ,
            Rq.UNLOCK_BATCH_MQ,
            Rq.GET_ALL_CONSUMER_OFFSET,
            Rq.GET_ALL_DELAY_OFFSET,
            Rq.CHECK_CLIENT_CONFIG,
            Rq.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            Rq.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            Rq.GET_TOPIC_STATS_INFO,
            Rq.GET_CONSUMER_CONNECTION_LIST,
            Rq.GET_PRODUCER_CONNECTION_LIST,
            Rq.DELETE_SUBSCRIPTIONGROUP,
            Rq.GET_CONSUME_STATS,
            Rq.DELETE_TOPIC_IN_BROKER,
            Rq.INVOKE_BROKER_TO_RESET_OFFSET,
            Rq.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            Rq.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            Rq.QUERY_TOPIC_CONSUME_BY_WHO,
            Rq.QUERY_CONSUME_TIME_SPAN,
            Rq.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            Rq.CLEAN_EXPIRED_CONSUMEQUEUE,
            Rq.GET_CONSUMER_RUNNING_INFO,
            Rq.QUERY_CORRECTION_OFFSET,
            Rq.CONSUME_MESSAGE_DIRECTLY,
            Rq.SEND_MESSAGE_V2,
            Rq.CLONE_GROUP_OFFSET,
            Rq.VIEW_BROKER_STATS_DATA,
            Rq.CLEAN_UNUSED_TOPIC,
            Rq.GET_BROKER_CONSUME_STATS,
            Rq.SEND_BATCH_MESSAGE,
            Rq.QUERY_CONSUME_QUEUE,
            Rq.RESUME_CHECK_HALF_MESSAGE,
            Rq.SEND_REPLY_MESSAGE,
            Rq.SEND_REPLY_MESSAGE_V2,
            Rq.GET_ALL_PRODUCER_INFO,
            Rq.DELETE_EXPIRED_COMMITLOG,
            Rq.QUERY_TOPICS_BY_CONSUMER,
            Rq.QUERY_SUBSCRIPTION_BY_CONSUMER,
            Rq.GET_TOPIC_CONFIG,
            Rq.GET_SUBSCRIPTIONGROUP_CONFIG,
            Rq.UPDATE_AND_GET_GROUP_FORBIDDEN,
            Rq.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
            Rq.EXPORT_ROCKSDB_CONFIG_TO_JSON,
            Rq.LITE_PULL_MESSAGE,
            Rq.UPDATE_AND_CREATE_STATIC_TOPIC,
            Rq.GET_BROKER_HA_STATUS,
            Rq.EXCHANGE_BROKER_HA_INFO,
            Rq.NOTIFY_MIN_BROKER_ID_CHANGE,
            Rq.RESET_MASTER_FLUSH_OFFSET,
            Rq.GET_BROKER_EPOCH_CACHE,
            Rq.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            Rq.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
            Rq.GET_COLD_DATA_FLOW_CTR_INFO,
            Rq.SET_COMMITLOG_READ_MODE,
            Rq.PEEK_MESSAGE,
            Rq.BULK_READ,
            Rq.OPEN_HANDOVER,
            Rq.SEND_HANDED_BATCH,
        }
    ),
}

_EMPTY: Final = Body(BodyKind.NONE)
_PAYLOAD: Final = Body(BodyKind.PAYLOAD)
_BATCH: Final = Body(BodyKind.BATCH)
_RECORDS: Final = Body(BodyKind.RECORDS)
_PROPERTIES: Final = Body(BodyKind.PROPERTIES)
_TEXT: Final = Body(BodyKind.TEXT)
_BINARY: Final = Body(BodyKind.BINARY)


def _json(body_type: Any = None) -> Body:
    return Body(BodyKind.JSON, body_type)


if TYPE_CHECKING:
    _Side: TypeAlias = type[Header] | Body | tuple[type[Header], Body] | None


class _Section:
    """Entries of one conversation, most of them for the same node."""

    def __init__(self, conversation: Conversation, *nodes: Node) -> None:
        self.conversation = conversation
        self.nodes = nodes

    def __call__(
        self,
        code: Rq,
        meaning: str,
        asks: _Side = None,
        gives: _Side = None,
        nodes: tuple[Node, ...] | None = None,
    ) -> Entry:
        at = self.nodes if nodes is None else nodes
        return Entry(code, at, self.conversation, meaning, *_both(asks), *_both(gives))


def _both(side: _Side) -> tuple[type[Header] | None, Body]:
    if isinstance(side, tuple):
        return side
    if isinstance(side, Body):
        return None, side
    return side, _EMPTY


_send = _Section(Conversation.SEND, Node.BROKER)
_pull = _Section(Conversation.PULL, Node.BROKER)
_pop = _Section(Conversation.POP, Node.BROKER)
_lite = _Section(Conversation.LITE, Node.BROKER)
_offset = _Section(Conversation.OFFSET, Node.BROKER)
_transaction = _Section(Conversation.TRANSACTION, Node.BROKER)
_staged = _Section(Conversation.STAGED, Node.BROKER)
_client = _Section(Conversation.CLIENT, Node.BROKER)
_route = _Section(Conversation.ROUTE, Node.NAME_SERVER)
_registration = _Section(Conversation.REGISTRATION, Node.NAME_SERVER)
_key_value = _Section(Conversation.KEY_VALUE, Node.NAME_SERVER)
_ns_topic = _Section(Conversation.TOPIC, Node.NAME_SERVER)
_topic = _Section(Conversation.TOPIC, Node.BROKER)
_group = _Section(Conversation.GROUP, Node.BROKER)
_stats = _Section(Conversation.STATS, Node.BROKER)
_broker = _Section(Conversation.BROKER, Node.BROKER)
_access = _Section(Conversation.ACCESS, Node.BROKER)
_replication = _Section(Conversation.REPLICATION, Node.BROKER)
_controller = _Section(Conversation.CONTROLLER, Node.CONTROLLER)
_reserved = _Section(Conversation.RESERVED)

_TO_CLIENT: Final = (Node.CLIENT,)
_THROUGH_BROKER: Final = (Node.BROKER, Node.CLIENT)

_TOPICS: Final = _json(topic.TopicList)
_SYNC_STATE: Final = _json(replication.SyncStateSet)
_VERSION: Final = _json(topic.DataVersion)

# Code, meaning, what is asked, what is answered: a header, a body, or both.
# fmt: off
_ENTRIES: Final[Iterable[Entry]] = (
    _send(Rq.SEND_MESSAGE, "Store a message, long field names",
        (hs.SendMessageV1, _PAYLOAD), hs.SendMessageResponse),
    _send(Rq.SEND_MESSAGE_V2, "Store a message, short field names",
        (hs.SendMessageV2, _PAYLOAD), hs.SendMessageResponse),
    _send(Rq.SEND_BATCH_MESSAGE, "Store several messages of one topic",
        (hs.SendMessageV2, _BATCH), hs.SendMessageResponse),
    _send(Rq.OPEN_HANDOVER, "Share memory with this connection", hh.OpenHandover, hh.OpenHandoverResponse),
    _send(Rq.SEND_HANDED_BATCH, "Store several messages that lie in shared memory",
        hh.SendHandedBatch, hs.SendMessageResponse),
    _send(Rq.CONSUMER_SEND_MSG_BACK, "Deliver a failed message again, later", hs.ConsumerSendMessageBack),
    _send(Rq.SEND_REPLY_MESSAGE, "Answer a request message, long field names",
        (hs.SendMessageV1, _PAYLOAD), hs.SendMessageResponse),
    _send(Rq.SEND_REPLY_MESSAGE_V2, "Answer a request message, short field names",
        (hs.SendMessageV2, _PAYLOAD), hs.SendMessageResponse),
    _send(Rq.PUSH_REPLY_MESSAGE_TO_CLIENT, "Hand a reply to the requester",
        (hs.PushReplyMessage, _PAYLOAD), nodes=_TO_CLIENT),
    _send(Rq.RECALL_MESSAGE, "Take back a delayed message", hs.RecallMessage, hs.RecallMessageResponse),

    _pull(Rq.PULL_MESSAGE, "Read messages of a queue, or wait for them",
        hl.PullMessage, (hl.PullMessageResponse, _RECORDS)),
    _pull(Rq.LITE_PULL_MESSAGE, "The same for a lite pull consumer",
        hl.PullMessage, (hl.PullMessageResponse, _RECORDS)),
    _pull(Rq.BULK_READ, "Ranges of several queues of a topic, in log order",
        (hb.BulkReadRequest, _BINARY), (hb.BulkReadResponse, _RECORDS)),
    _pull(Rq.QUERY_MESSAGE, "Find messages by key", hl.QueryMessage, (hl.QueryMessageResponse, _RECORDS)),
    _pull(Rq.VIEW_MESSAGE_BY_ID, "Read one message by its offset id", hl.ViewMessage, _RECORDS),

    _pop(Rq.POP_MESSAGE, "Take messages for a while without owning a queue",
        hp.PopMessage, (hp.PopMessageResponse, _RECORDS)),
    _pop(Rq.ACK_MESSAGE, "One taken message is done", hp.AckMessage),
    _pop(Rq.BATCH_ACK_MESSAGE, "Several taken messages are done", _json(pop.BatchAckRequest)),
    _pop(Rq.PEEK_MESSAGE, "Read without taking", hp.PeekMessage, (hp.PopMessageResponse, _RECORDS)),
    _pop(Rq.CHANGE_MESSAGE_INVISIBLETIME, "Keep a taken message longer, or give it back",
        hp.ChangeInvisibleTime, hp.ChangeInvisibleTimeResponse),
    _pop(Rq.NOTIFICATION, "Wait until there is something to take", hp.Notification, hp.NotificationResponse),
    _pop(Rq.POLLING_INFO, "Count the pops that wait", hp.PollingInfo, hp.PollingInfoResponse),
    _pop(Rq.POP_ROLLBACK, "Move pop records from the key-value store back to files"),
    _pop(Rq.QUERY_ASSIGNMENT, "Let the broker assign queues to a consumer",
        _json(pop.QueryAssignmentRequest), _json(pop.QueryAssignmentResponse)),
    _pop(Rq.SET_MESSAGE_REQUEST_MODE, "Choose pull or pop for a group and topic",
        _json(pop.MessageRequestMode)),

    _lite(Rq.POP_LITE_MESSAGE, "Take messages of lite topics",
        hp.PopLiteMessage, (hp.PopLiteMessageResponse, _RECORDS)),
    _lite(Rq.LITE_SUBSCRIPTION_CTL, "Add or remove lite topics of a consumer",
        (hp.LiteSubscriptionControl, _json())),
    _lite(Rq.NOTIFY_UNSUBSCRIBE_LITE, "Tell a consumer that a lite topic was removed",
        hp.NotifyUnsubscribeLite, nodes=_TO_CLIENT),
    _lite(Rq.GET_BROKER_LITE_INFO, "Lite topics of the broker in numbers", None, _json()),
    _lite(Rq.GET_PARENT_TOPIC_INFO, "Lite topics of one topic", hp.GetParentTopicInfo, _json()),
    _lite(Rq.GET_LITE_TOPIC_INFO, "One lite topic", hp.GetLiteTopicInfo, _json()),
    _lite(Rq.GET_LITE_CLIENT_INFO, "Lite topics of one client", hp.GetLiteClientInfo, _json()),
    _lite(Rq.GET_LITE_GROUP_INFO, "Lag of a group in lite topics", hp.GetLiteGroupInfo, _json()),
    _lite(Rq.TRIGGER_LITE_DISPATCH, "Wake the consumers of lite topics", hp.TriggerLiteDispatch),

    _offset(Rq.QUERY_CONSUMER_OFFSET, "How far a group is in a queue",
        ho.QueryConsumerOffset, ho.QueryConsumerOffsetResponse),
    _offset(Rq.UPDATE_CONSUMER_OFFSET, "A group is that far in a queue", ho.UpdateConsumerOffset),
    _offset(Rq.SEARCH_OFFSET_BY_TIMESTAMP, "The offset stored at a time",
        ho.SearchOffset, ho.SearchOffsetResponse),
    _offset(Rq.GET_MAX_OFFSET, "The offset that will be written next",
        ho.GetMaxOffset, ho.GetMaxOffsetResponse),
    _offset(Rq.GET_MIN_OFFSET, "The first offset that is still there",
        ho.GetMinOffset, ho.GetMinOffsetResponse),
    _offset(Rq.GET_EARLIEST_MSG_STORETIME, "Store time of the first message of a queue",
        ho.GetEarliestStoreTime, ho.GetEarliestStoreTimeResponse),
    _offset(Rq.RESET_CONSUMER_CLIENT_OFFSET, "Tell a consumer to continue elsewhere",
        (ho.ResetOffset, _json(offsets.QueueOffsets)), nodes=_TO_CLIENT),
    _offset(Rq.GET_CONSUMER_STATUS_FROM_CLIENT, "Ask a consumer how far it is",
        ho.GetConsumerStatus, _json(offsets.ConsumerStatus), nodes=_TO_CLIENT),
    _offset(Rq.INVOKE_BROKER_TO_RESET_OFFSET, "Let a group continue elsewhere",
        ho.ResetOffset, _json(offsets.QueueOffsets)),
    _offset(Rq.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, "How far the members of a group are",
        ho.GetConsumerStatus, _json(offsets.ConsumerStatus)),
    _offset(Rq.CLONE_GROUP_OFFSET, "Copy the offsets of a group to another", ho.CloneGroupOffset),
    _offset(Rq.QUERY_CORRECTION_OFFSET, "The least offsets among groups",
        ho.QueryCorrectionOffset, _json(offsets.CorrectionOffsets)),

    _transaction(Rq.END_TRANSACTION, "Commit or roll back a half message", ht.EndTransaction),
    _transaction(Rq.CHECK_TRANSACTION_STATE, "Ask a producer what became of its transaction",
        (ht.CheckTransactionState, _RECORDS), nodes=_TO_CLIENT),
    _transaction(Rq.RESUME_CHECK_HALF_MESSAGE, "Ask again about a half message given up",
        ht.ResumeCheckHalfMessage),

    _staged(Rq.STAGE_MESSAGES, "Put messages aside for a commit",
        (hg.StageMessages, _BATCH), hg.StageMessagesResponse),
    _staged(Rq.COMMIT_STAGED_BATCH, "Publish a staged batch, once",
        (hg.CommitStagedBatch, _json(staged.StagedParts)), hg.CommitStagedBatchResponse),
    _staged(Rq.DROP_STAGED_BATCH, "Forget staged messages",
        (hg.DropStagedBatch, _json(staged.StagedTransactions)), hg.DropStagedBatchResponse),
    _staged(Rq.GET_STAGED_BATCH, "The last committed batch of an application",
        hg.GetStagedBatch, (hg.GetStagedBatchResponse, _json(staged.StagedParts))),

    _client(Rq.HEART_BEAT, "I am here, with these groups and subscriptions",
        (hc.Heartbeat, _json(heartbeat.HeartbeatData)), hc.HeartbeatResponse),
    _client(Rq.UNREGISTER_CLIENT, "I am leaving", hc.UnregisterClient),
    _client(Rq.CHECK_CLIENT_CONFIG, "Is this filter expression valid?", _json(heartbeat.CheckClientRequest)),
    _client(Rq.GET_CONSUMER_LIST_BY_GROUP, "Members of a consumer group",
        hc.GetConsumerListByGroup, _json(heartbeat.ConsumerIds)),
    _client(Rq.NOTIFY_CONSUMER_IDS_CHANGED, "The members of a group changed",
        hc.NotifyConsumerIdsChanged, nodes=_TO_CLIENT),
    _client(Rq.LOCK_BATCH_MQ, "Own queues for orderly consumption",
        (hc.LockBatch, _json(locks.LockBatchRequest)), _json(locks.LockBatchResponse)),
    _client(Rq.UNLOCK_BATCH_MQ, "Give queues back", (hc.UnlockBatch, _json(locks.LockBatchRequest))),
    _client(Rq.GET_CONSUMER_RUNNING_INFO, "What a consumer is doing",
        hc.GetConsumerRunningInfo, _json(stats.ConsumerRunningInfo), nodes=_THROUGH_BROKER),
    _client(Rq.CONSUME_MESSAGE_DIRECTLY, "Let a consumer consume one message now",
        (hc.ConsumeMessageDirectly, _RECORDS), _json(stats.ConsumeDirectlyResult), nodes=_THROUGH_BROKER),

    _route(Rq.GET_ROUTEINFO_BY_TOPIC, "Which brokers serve a topic",
        hn.GetRouteInfo, _json(route.TopicRouteData)),
    _route(Rq.GET_BROKER_CLUSTER_INFO, "All clusters and brokers", None, _json(route.ClusterInfo)),
    _route(Rq.GET_BROKER_MEMBER_GROUP, "Live brokers of one group", hn.GetBrokerMemberGroup, _json()),
    _route(Rq.WIPE_WRITE_PERM_OF_BROKER, "Stop sends to a broker",
        hn.WipeWritePermission, hn.WipeWritePermissionResponse),
    _route(Rq.ADD_WRITE_PERM_OF_BROKER, "Allow sends to a broker again",
        hn.AddWritePermission, hn.AddWritePermissionResponse),

    _registration(Rq.REGISTER_BROKER, "A broker announces itself and its topics",
        (hn.RegisterBroker, _json(topic.RegisterBrokerBody)), (hn.RegisterBrokerResponse, _json(kv.KvTable))),
    _registration(Rq.UNREGISTER_BROKER, "A broker leaves", hn.UnregisterBroker),
    _registration(Rq.QUERY_DATA_VERSION, "Are my topics known? Also a sign of life",
        (hn.QueryDataVersion, _VERSION), (hn.QueryDataVersionResponse, _VERSION)),
    _registration(Rq.BROKER_HEARTBEAT, "Sign of life of a broker",
        hn.BrokerHeartbeat, nodes=(Node.NAME_SERVER, Node.CONTROLLER)),

    _key_value(Rq.PUT_KV_CONFIG, "Set a value", hn.PutKeyValue),
    _key_value(Rq.GET_KV_CONFIG, "Get a value", hn.GetKeyValue, hn.GetKeyValueResponse),
    _key_value(Rq.DELETE_KV_CONFIG, "Delete a value", hn.DeleteKeyValue),
    _key_value(Rq.GET_KVLIST_BY_NAMESPACE, "All values of a namespace",
        hn.GetKeyValuesByNamespace, _json(kv.KvTable)),
    _key_value(Rq.UPDATE_NAMESRV_CONFIG, "Change settings of the name server", _PROPERTIES),
    _key_value(Rq.GET_NAMESRV_CONFIG, "Settings of the name server", None, _PROPERTIES),

    _ns_topic(Rq.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "All topics", None, _TOPICS),
    _ns_topic(Rq.GET_TOPICS_BY_CLUSTER, "Topics of a cluster", hn.GetTopicsByCluster, _TOPICS),
    _ns_topic(Rq.GET_SYSTEM_TOPIC_LIST_FROM_NS, "Names of clusters and brokers, which are topics too",
        None, _TOPICS),
    _ns_topic(Rq.GET_UNIT_TOPIC_LIST, "Topics with the unit flag", None, _TOPICS),
    _ns_topic(Rq.GET_HAS_UNIT_SUB_TOPIC_LIST, "Topics with the unit subscription flag", None, _TOPICS),
    _ns_topic(Rq.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, "Topics with the unit subscription flag only",
        None, _TOPICS),
    _ns_topic(Rq.REGISTER_TOPIC_IN_NAMESRV, "Make the route of a topic known at once",
        (hn.RegisterTopic, _json(route.TopicRouteData))),
    _ns_topic(Rq.DELETE_TOPIC_IN_NAMESRV, "Forget the route of a topic", hn.DeleteTopicFromNameServer),

    _topic(Rq.UPDATE_AND_CREATE_TOPIC, "Create or change a topic", ha.CreateTopic),
    _topic(Rq.UPDATE_AND_CREATE_TOPIC_LIST, "Create or change several topics", (ha.CreateTopicList, _json())),
    _topic(Rq.UPDATE_AND_CREATE_STATIC_TOPIC, "Create or change a topic with logical queues",
        (ha.CreateTopic, _json())),
    _topic(Rq.DELETE_TOPIC_IN_BROKER, "Delete a topic and its queues", ha.DeleteTopic),
    _topic(Rq.GET_ALL_TOPIC_CONFIG, "All topics, whole or in slices",
        ha.GetAllTopicConfig, (ha.GetAllTopicConfigResponse, _json(topic.TopicConfigTable))),
    _topic(Rq.GET_TOPIC_CONFIG, "One topic", ha.GetTopicConfig, _json(topic.TopicConfig)),
    _topic(Rq.GET_TOPIC_STATS_INFO, "First and last offset of every queue",
        ha.GetTopicStats, _json(stats.TopicStats)),
    _topic(Rq.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, "System topics of the broker", None, _TOPICS),
    _topic(Rq.QUERY_CONSUME_QUEUE, "Entries of a consume queue",
        ha.QueryConsumeQueue, _json(stats.ConsumeQueueSlice)),
    _topic(Rq.CLEAN_UNUSED_TOPIC, "Delete queues of topics that are gone"),
    _topic(Rq.CLEAN_EXPIRED_CONSUMEQUEUE, "Delete expired consume queue files now"),
    _topic(Rq.DELETE_EXPIRED_COMMITLOG, "Delete expired commit log files now"),

    _group(Rq.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "Create or change a consumer group",
        _json(group.SubscriptionGroupConfig)),
    _group(Rq.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, "Create or change several consumer groups",
        _json(group.SubscriptionGroupList)),
    _group(Rq.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "All consumer groups, whole or in slices",
        ha.GetAllSubscriptionGroups,
        (ha.GetAllSubscriptionGroupsResponse, _json(group.SubscriptionGroupTable))),
    _group(Rq.GET_SUBSCRIPTIONGROUP_CONFIG, "One consumer group",
        ha.GetSubscriptionGroup, _json(group.SubscriptionGroupConfig)),
    _group(Rq.DELETE_SUBSCRIPTIONGROUP, "Delete a consumer group", ha.DeleteSubscriptionGroup),
    _group(Rq.UPDATE_AND_GET_GROUP_FORBIDDEN, "Forbid a topic to a group, or ask",
        ha.UpdateGroupForbidden, _json(group.GroupForbidden)),
    _group(Rq.GET_CONSUMER_CONNECTION_LIST, "Connections of a consumer group",
        ha.GetConsumerConnections, _json(group.ConsumerConnection)),
    _group(Rq.GET_PRODUCER_CONNECTION_LIST, "Connections of a producer group",
        ha.GetProducerConnections, _json(group.ProducerConnection)),
    _group(Rq.GET_ALL_PRODUCER_INFO, "All producers", ha.GetAllProducers, _json(group.ProducerTable)),
    _group(Rq.QUERY_TOPIC_CONSUME_BY_WHO, "Groups that consume a topic",
        ha.QueryTopicConsumers, _json(group.GroupList)),
    _group(Rq.QUERY_TOPICS_BY_CONSUMER, "Topics that a group consumes", ha.QueryTopicsByConsumer, _TOPICS),
    _group(Rq.QUERY_SUBSCRIPTION_BY_CONSUMER, "What a group wants of a topic",
        ha.QuerySubscriptionByConsumer, _json(group.QuerySubscriptionResponse)),

    _stats(Rq.GET_CONSUME_STATS, "Progress of a group, queue by queue",
        ha.GetConsumeStats, _json(stats.ConsumeStats)),
    _stats(Rq.GET_BROKER_CONSUME_STATS, "Progress of all groups",
        ha.GetBrokerConsumeStats, _json(stats.ConsumeStatsList)),
    _stats(Rq.QUERY_CONSUME_TIME_SPAN, "How old the consumed and the waiting messages are",
        ha.QueryConsumeTimeSpan, _json(stats.ConsumeTimeSpans)),
    _stats(Rq.VIEW_BROKER_STATS_DATA, "One statistic of the last minute, hour and day",
        ha.ViewBrokerStats, _json(stats.BrokerStatsData)),
    _stats(Rq.GET_BROKER_RUNTIME_INFO, "The broker in numbers", None, _json(kv.KvTable)),

    _broker(Rq.UPDATE_BROKER_CONFIG, "Change settings of the broker",
        _PROPERTIES, nodes=(Node.BROKER, Node.CONTAINER)),
    _broker(Rq.GET_BROKER_CONFIG, "Settings of the broker",
        None, (ha.GetBrokerConfigResponse, _PROPERTIES), nodes=(Node.BROKER, Node.CONTAINER)),
    _broker(Rq.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, "Limit reading of cold data by a group", _PROPERTIES),
    _broker(Rq.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, "Remove such a limit", _TEXT),
    _broker(Rq.GET_COLD_DATA_FLOW_CTR_INFO, "Such limits and what was read", None, _json()),
    _broker(Rq.SET_COMMITLOG_READ_MODE, "Read ahead in the commit log, or not", ha.SetCommitLogReadMode),
    _broker(Rq.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, "Compare consume queues in files and in RocksDB",
        ha.CheckRocksDbProgress, _json()),
    _broker(Rq.EXPORT_ROCKSDB_CONFIG_TO_JSON, "Write settings held in RocksDB to JSON files",
        ha.ExportRocksDbConfig),
    _broker(Rq.SWITCH_TIMER_ENGINE, "Keep timers in files or in RocksDB", ha.SwitchTimerEngine),
    _broker(Rq.ADD_BROKER, "Start a broker in this process",
        (hk.AddBroker, _PROPERTIES), nodes=(Node.CONTAINER,)),
    _broker(Rq.REMOVE_BROKER, "Stop a broker of this process", hk.RemoveBroker, nodes=(Node.CONTAINER,)),

    _access(Rq.AUTH_CREATE_USER, "Create a user", (ha.CreateUser, _json(access.UserInfo))),
    _access(Rq.AUTH_UPDATE_USER, "Change a user", (ha.UpdateUser, _json(access.UserInfo))),
    _access(Rq.AUTH_DELETE_USER, "Delete a user", ha.DeleteUser),
    _access(Rq.AUTH_GET_USER, "One user", ha.GetUser, _json(access.UserInfo)),
    _access(Rq.AUTH_LIST_USER, "Users", ha.ListUsers, _json(list[access.UserInfo])),
    _access(Rq.AUTH_CREATE_ACL, "Give rights", (ha.CreateAcl, _json(access.AclInfo))),
    _access(Rq.AUTH_UPDATE_ACL, "Change rights", (ha.UpdateAcl, _json(access.AclInfo))),
    _access(Rq.AUTH_DELETE_ACL, "Take rights away", ha.DeleteAcl),
    _access(Rq.AUTH_GET_ACL, "Rights of one subject", ha.GetAcl, _json(access.AclInfo)),
    _access(Rq.AUTH_LIST_ACL, "Rights", ha.ListAcls, _json(list[access.AclInfo])),

    _replication(Rq.GET_ALL_CONSUMER_OFFSET, "All consumer offsets, for a slave",
        None, _json(offsets.ConsumerOffsetTable)),
    _replication(Rq.GET_ALL_DELAY_OFFSET, "Progress of the delay levels, for a slave",
        None, _json(offsets.DelayOffsetTable)),
    _replication(Rq.GET_ALL_MESSAGE_REQUEST_MODE, "Pull or pop by topic and group, for a slave",
        None, _json(pop.MessageRequestModeTable)),
    _replication(Rq.GET_TIMER_CHECK_POINT, "Progress of the timers, for a slave", None, _BINARY),
    _replication(Rq.GET_TIMER_METRICS, "Waiting timers by topic, for a slave", None, _json()),
    _replication(Rq.NOTIFY_MIN_BROKER_ID_CHANGE, "Who acts as master changed", hr.NotifyMinBrokerIdChange),
    _replication(Rq.EXCHANGE_BROKER_HA_INFO, "Address and offset of the master's log stream",
        hr.ExchangeHaInfo, hr.ExchangeHaInfoResponse),
    _replication(Rq.GET_BROKER_HA_STATUS, "Replication in numbers", None, _json(replication.HaRuntimeInfo)),
    _replication(Rq.RESET_MASTER_FLUSH_OFFSET, "Set the flushed offset a slave believes in",
        hr.ResetMasterFlushOffset),
    _replication(Rq.GET_BROKER_EPOCH_CACHE, "Which master wrote which part of the log",
        None, _json(replication.EpochEntries)),
    _replication(Rq.NOTIFY_BROKER_ROLE_CHANGED, "The controller chose a master",
        (hr.NotifyBrokerRoleChanged, _SYNC_STATE)),

    _controller(Rq.CONTROLLER_ALTER_SYNC_STATE_SET, "These replicas are in step",
        (hk.AlterSyncStateSet, _SYNC_STATE), (hk.AlterSyncStateSetResponse, _SYNC_STATE)),
    _controller(Rq.CONTROLLER_ELECT_MASTER, "Choose a master",
        hk.ElectMaster, (hk.ElectMasterResponse, _json(replication.ElectMasterResponseBody))),
    _controller(Rq.CONTROLLER_REGISTER_BROKER, "A broker announces itself",
        hk.RegisterBrokerToController, (hk.RegisterBrokerToControllerResponse, _SYNC_STATE)),
    _controller(Rq.CONTROLLER_GET_REPLICA_INFO, "Who is master, who is in step",
        hk.GetReplicaInfo, (hk.GetReplicaInfoResponse, _SYNC_STATE)),
    _controller(Rq.CONTROLLER_GET_METADATA_INFO, "Who leads the controllers",
        None, hk.GetControllerMetadataResponse),
    _controller(Rq.CONTROLLER_GET_SYNC_STATE_DATA, "Replicas of these broker groups",
        _json(list[str]), _json(replication.BrokerReplicasInfo)),
    _controller(Rq.UPDATE_CONTROLLER_CONFIG, "Change settings of the controller", _PROPERTIES),
    _controller(Rq.GET_CONTROLLER_CONFIG, "Settings of the controller", None, _PROPERTIES),
    _controller(Rq.CLEAN_BROKER_DATA, "Forget brokers that are gone", hk.CleanBrokerData),
    _controller(Rq.CONTROLLER_GET_NEXT_BROKER_ID, "The next free broker id",
        hk.GetNextBrokerId, hk.GetNextBrokerIdResponse),
    _controller(Rq.CONTROLLER_APPLY_BROKER_ID, "Take a broker id",
        hk.ApplyBrokerId, hk.ApplyBrokerIdResponse),

    _reserved(Rq.QUERY_BROKER_OFFSET, "Reserved"),
    _reserved(Rq.GET_TOPIC_CONFIG_LIST, "Reserved"),
    _reserved(Rq.GET_TOPIC_NAME_LIST, "Reserved"),
    _reserved(Rq.TRIGGER_DELETE_FILES, "Reserved"),
    _reserved(Rq.GET_CLIENT_CONFIG, "Reserved"),
    _reserved(Rq.SUSPEND_CONSUMER, "Reserved"),
    _reserved(Rq.RESUME_CONSUMER, "Reserved"),
    _reserved(Rq.RESET_CONSUMER_OFFSET_IN_CONSUMER, "Reserved"),
    _reserved(Rq.RESET_CONSUMER_OFFSET_IN_BROKER, "Reserved"),
    _reserved(Rq.ADJUST_CONSUMER_THREAD_POOL, "Reserved"),
    _reserved(Rq.WHO_CONSUME_THE_MESSAGE, "Reserved"),
    _reserved(Rq.REGISTER_FILTER_SERVER, "Of the filter server, which is no more"),
    _reserved(Rq.REGISTER_MESSAGE_FILTER_CLASS, "Of the filter server, which is no more"),
    _reserved(Rq.ACK_LITE_MESSAGE, "Reserved; lite messages are acknowledged as others are"),
)
# fmt: on


TABLE: Final[Mapping[Rq, Entry]] = {entry.code: entry for entry in sorted(_ENTRIES, key=lambda entry: entry.code)}
"""Every request code, in the order of the numbers."""


def entries_of(node: Node) -> list[Entry]:
    """What this node answers in the reference, in the order of the numbers."""
    return [entry for entry in TABLE.values() if node in entry.nodes]

"""Clients: heartbeats, who is there, locks, and being told of others."""

from __future__ import annotations

from fusee.wire.codes import LanguageCode
from fusee.wire.codes import RequestCode as Rq
from tests.interop.differential.phrases import as_json, ask, consumer, heartbeat, queue, send, subscription
from tests.interop.differential.steps import Ask, HangUp, Pushed, Step, chapter, has_code

_GROUP = "d_members"


def _lock(
    name: str, client_id: str | None, *queues: int, group: str | None = _GROUP, code: int = Rq.LOCK_BATCH_MQ
) -> Ask:
    body = {
        "consumerGroup": group,
        "clientId": client_id,
        "mqSet": [queue("d_ordered", number) for number in queues],
        "onlyThisBroker": False,
    }
    return ask(name, code, body=as_json(body))


def _check(name: str, text: str, *, kind: str = "SQL92") -> Ask:
    body = {"clientId": "c@1", "group": _GROUP, "subscriptionData": subscription("d_sql", text, kind=kind)}
    return ask(name, Rq.CHECK_CLIENT_CONFIG, body=as_json(body))


HEARTBEATS: list[Step] = chapter(
    "clients",
    ask("members of a group that is not there", Rq.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=_GROUP),
    ask("connections of a group that is not there", Rq.GET_CONSUMER_CONNECTION_LIST, consumerGroup=_GROUP),
    ask("connections of producers that are not there", Rq.GET_PRODUCER_CONNECTION_LIST, producerGroup="d_makers"),
    ask("all producers before there are any", Rq.GET_ALL_PRODUCER_INFO),
    heartbeat(
        "a consumer comes",
        "member@1",
        via="member 1",
        consumers=[
            consumer(_GROUP, [subscription("d_plain", "A||B", version=3), subscription("d_ordered", version=3)]),
        ],
    ),
    ask("members of a group of one", Rq.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=_GROUP),
    ask("connections of a group of one", Rq.GET_CONSUMER_CONNECTION_LIST, consumerGroup=_GROUP),
    ask("its retry topic was made", Rq.GET_TOPIC_CONFIG, topic=f"%RETRY%{_GROUP}"),
    heartbeat(
        "another consumer comes",
        "member@2",
        via="member 2",
        consumers=[
            consumer(_GROUP, [subscription("d_plain", "A||B", version=3), subscription("d_ordered", version=3)]),
        ],
    ),
    Pushed(name="the first hears of the second", via="member 1", code=Rq.NOTIFY_CONSUMER_IDS_CHANGED),
    ask("members of a group of two", Rq.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=_GROUP),
    ask("connections of a group of two", Rq.GET_CONSUMER_CONNECTION_LIST, consumerGroup=_GROUP),
    heartbeat(
        "the first again",
        "member@1",
        via="member 1",
        consumers=[
            consumer(_GROUP, [subscription("d_plain", "A||B", version=3), subscription("d_ordered", version=3)]),
        ],
    ),
    heartbeat(
        "the first with a newer subscription",
        "member@1",
        via="member 1",
        consumers=[consumer(_GROUP, [subscription("d_plain", "C", version=9), subscription("d_ordered", version=9)])],
    ),
    ask("the newer subscription", Rq.QUERY_SUBSCRIPTION_BY_CONSUMER, group=_GROUP, topic="d_plain"),
    heartbeat(
        "the first with an older subscription",
        "member@1",
        via="member 1",
        consumers=[consumer(_GROUP, [subscription("d_plain", "B", version=2), subscription("d_ordered", version=2)])],
    ),
    ask("the newer subscription holds", Rq.QUERY_SUBSCRIPTION_BY_CONSUMER, group=_GROUP, topic="d_plain"),
    heartbeat(
        "the first with one topic less",
        "member@1",
        via="member 1",
        consumers=[consumer(_GROUP, [subscription("d_plain", "C", version=9)])],
    ),
    ask("subscription of the topic it left", Rq.QUERY_SUBSCRIPTION_BY_CONSUMER, group=_GROUP, topic="d_ordered"),
    ask(
        "subscription of a group that is not there",
        Rq.QUERY_SUBSCRIPTION_BY_CONSUMER,
        group="d_absent",
        topic="d_plain",
    ),
    ask("subscription without a topic", Rq.QUERY_SUBSCRIPTION_BY_CONSUMER, group=_GROUP),
    ask("subscription without a group", Rq.QUERY_SUBSCRIPTION_BY_CONSUMER, topic="d_plain"),
    heartbeat("a producer comes", "maker@1", via="maker", producers=["d_makers", "d_other_makers"]),
    ask("connections of producers", Rq.GET_PRODUCER_CONNECTION_LIST, producerGroup="d_makers"),
    ask("connections of no producers", Rq.GET_PRODUCER_CONNECTION_LIST),
    ask("all producers", Rq.GET_ALL_PRODUCER_INFO),
    heartbeat("a client without anything", "empty@1", via="empty"),
    heartbeat(
        "a broadcasting consumer",
        "caster@1",
        via="caster",
        consumers=[
            consumer(
                "d_casters",
                [subscription("d_plain")],
                model="BROADCASTING",
                kind="CONSUME_ACTIVELY",
                where="CONSUME_FROM_FIRST_OFFSET",
            )
        ],
    ),
    ask("connections of broadcasters", Rq.GET_CONSUMER_CONNECTION_LIST, consumerGroup="d_casters"),
    heartbeat(
        "a consumer with a bad name",
        "bad@1",
        via="caster",
        consumers=[consumer("d bad", [subscription("d_plain")])],
    ),
    ask("members of the bad name", Rq.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="d bad"),
    heartbeat(
        "a consumer in another language",
        "go@1",
        via="gopher",
        consumers=[consumer("d_gophers", [subscription("d_plain")])],
        language=LanguageCode.GO,
        version=201,
    ),
    ask("connections of another language", Rq.GET_CONSUMER_CONNECTION_LIST, consumerGroup="d_gophers"),
    heartbeat(
        "a popping consumer",
        "popper@1",
        via="popper",
        consumers=[consumer("d_poppers", [subscription("d_plain")], kind="CONSUME_POP")],
    ),
    ask("connections of poppers", Rq.GET_CONSUMER_CONNECTION_LIST, consumerGroup="d_poppers"),
    heartbeat(
        "version two with subscriptions",
        "second@1",
        via="second",
        consumers=[consumer("d_second", [subscription("d_plain", version=4)])],
        fingerprint=11,
    ),
    heartbeat(
        "version two again without subscriptions",
        "second@1",
        via="second",
        consumers=[consumer("d_second", [])],
        fingerprint=11,
        without_subscriptions=True,
    ),
    ask("subscriptions are still there", Rq.QUERY_SUBSCRIPTION_BY_CONSUMER, group="d_second", topic="d_plain"),
    heartbeat(
        "version two with another fingerprint without subscriptions",
        "second@1",
        via="second",
        consumers=[consumer("d_second", [])],
        fingerprint=12,
        without_subscriptions=True,
    ),
    heartbeat(
        "version two with another fingerprint",
        "second@1",
        via="second",
        consumers=[consumer("d_second", [subscription("d_tags", version=5)])],
        fingerprint=12,
    ),
    ask("connections after the change", Rq.GET_CONSUMER_CONNECTION_LIST, consumerGroup="d_second"),
    heartbeat(
        "version two of a group nobody knows, without subscriptions",
        "third@1",
        via="second",
        consumers=[consumer("d_third", [])],
        fingerprint=13,
        without_subscriptions=True,
    ),
    heartbeat("version two of a producer", "maker@2", via="maker", producers=["d_makers_two"], fingerprint=14),
    ask("heartbeat without a body", Rq.HEART_BEAT, via="empty"),
    ask("heartbeat that is no json", Rq.HEART_BEAT, via="empty", body=b"{"),
    ask("heartbeat of nobody", Rq.HEART_BEAT, via="empty", body=b"{}"),
    ask("members of no group", Rq.GET_CONSUMER_LIST_BY_GROUP),
    ask("connections of no group", Rq.GET_CONSUMER_CONNECTION_LIST),
    ask("check nothing", Rq.CHECK_CLIENT_CONFIG),
    _check("check tags", "A||B", kind="TAG"),
    _check("check good sql", "size > 4 and colour = 'red'"),
    _check("check sql that is not finished", "size >"),
    _check("check nonsense", "select from"),
    _check("check an unknown kind", "x", kind="REGEX"),
    ask("check what is no json", Rq.CHECK_CLIENT_CONFIG, body=b"{"),
    ask("check without a subscription", Rq.CHECK_CLIENT_CONFIG, body=b'{"clientId":"c@1","group":"d_members"}'),
    ask("configuration of a client", Rq.GET_CLIENT_CONFIG),
)

LOCKS: list[Step] = chapter(
    "locks",
    _lock("the first locks", "member@1", 0, 1),
    _lock("the first locks again", "member@1", 0),
    _lock("the second locks too late", "member@2", 0, 1),
    _lock("the second unlocks what is not its own", "member@2", 0, code=Rq.UNLOCK_BATCH_MQ),
    _lock("it is still locked", "member@2", 0),
    _lock("the first unlocks one", "member@1", 0, code=Rq.UNLOCK_BATCH_MQ),
    _lock("the second locks the free one", "member@2", 0, 1),
    _lock("another group locks the same", "other@1", 0, 1, group="d_members_two"),
    _lock("lock a queue that is not there", "member@1", 99),
    _lock("lock nothing", "member@1"),
    _lock("unlock nothing", "member@1", code=Rq.UNLOCK_BATCH_MQ),
    _lock("lock without a client", None, 0),
    _lock("lock without a group", "member@1", 0, group=None),
    _lock("unlock in a group that is not there", "member@1", 0, group="d_absent", code=Rq.UNLOCK_BATCH_MQ),
    ask("lock without a body", Rq.LOCK_BATCH_MQ),
    ask("unlock without a body", Rq.UNLOCK_BATCH_MQ),
    ask("lock what is no json", Rq.LOCK_BATCH_MQ, body=b"{"),
    send("a retry of a group with locks is a dead letter", f"%RETRY%{_GROUP}", reconsumeTimes=1, maxReconsumeTimes=9),
    _lock("the first unlocks the other", "member@1", 1, code=Rq.UNLOCK_BATCH_MQ),
    _lock("the second unlocks all", "member@2", 0, 1, code=Rq.UNLOCK_BATCH_MQ),
    _lock("what nobody asked for is unlocked", "member@1", 99, code=Rq.UNLOCK_BATCH_MQ),
    _lock("what has no client is unlocked", None, 0, code=Rq.UNLOCK_BATCH_MQ),
    send("a retry of a group without locks is a retry", f"%RETRY%{_GROUP}", reconsumeTimes=1, maxReconsumeTimes=9),
)

LEAVING: list[Step] = chapter(
    "clients leave",
    ask("unregister the second", Rq.UNREGISTER_CLIENT, via="member 2", clientID="member@2", consumerGroup=_GROUP),
    Pushed(name="the first hears of it", via="member 1", code=Rq.NOTIFY_CONSUMER_IDS_CHANGED),
    ask("members without the second", Rq.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=_GROUP),
    ask("unregister the second again", Rq.UNREGISTER_CLIENT, via="member 2", clientID="member@2", consumerGroup=_GROUP),
    ask(
        "unregister from a group that is not there",
        Rq.UNREGISTER_CLIENT,
        via="member 2",
        clientID="member@2",
        consumerGroup="d_absent",
        producerGroup="d_absent",
    ),
    ask("unregister from nothing", Rq.UNREGISTER_CLIENT, via="member 2", clientID="member@2"),
    ask("unregister nobody", Rq.UNREGISTER_CLIENT, via="member 2", consumerGroup=_GROUP),
    ask("unregister a producer", Rq.UNREGISTER_CLIENT, via="maker", clientID="maker@1", producerGroup="d_other_makers"),
    ask("its producers are gone", Rq.GET_PRODUCER_CONNECTION_LIST, producerGroup="d_other_makers"),
    HangUp(name="the first hangs up", via="member 1"),
    ask(
        "nobody is left",
        Rq.GET_CONSUMER_LIST_BY_GROUP,
        consumerGroup=_GROUP,
        until=has_code(1),
    ),
    ask("connections when nobody is left", Rq.GET_CONSUMER_CONNECTION_LIST, consumerGroup=_GROUP),
    ask("subscription when nobody is left", Rq.QUERY_SUBSCRIPTION_BY_CONSUMER, group=_GROUP, topic="d_plain"),
    HangUp(name="the maker hangs up", via="maker"),
    ask(
        "no maker is left",
        Rq.GET_PRODUCER_CONNECTION_LIST,
        producerGroup="d_makers",
        until=has_code(1),
    ),
)

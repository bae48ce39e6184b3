"""Questions that the broker passes on to a client, and replies that it passes back."""

from __future__ import annotations

from fusee.wire.codes import RequestCode as Rq
from tests.interop.differential.phrases import ask, consumer, heartbeat, send, subscription
from tests.interop.differential.steps import HangUp, Pushed, Step, chapter, kept

_GROUP = "d_asked"

RELAYS: list[Step] = chapter(
    "relays",
    ask(
        "running info of a client that is not there",
        Rq.GET_CONSUMER_RUNNING_INFO,
        consumerGroup=_GROUP,
        clientId="no@1",
    ),
    ask(
        "consume directly by a client that is not there",
        Rq.CONSUME_MESSAGE_DIRECTLY,
        consumerGroup=_GROUP,
        clientId="no@1",
        msgId=kept("first.id"),
    ),
    ask("status of a group that is not there", Rq.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, group=_GROUP, topic="d_plain"),
    heartbeat(
        "a client comes",
        "asked@1",
        via="asked",
        consumers=[consumer(_GROUP, [subscription("d_plain")])],
        producers=["d_askers"],
    ),
    ask("running info", Rq.GET_CONSUMER_RUNNING_INFO, consumerGroup=_GROUP, clientId="asked@1", jstackEnable=False),
    Pushed(name="the client is asked how it runs", via="asked", code=Rq.GET_CONSUMER_RUNNING_INFO),
    ask("running info of another client", Rq.GET_CONSUMER_RUNNING_INFO, consumerGroup=_GROUP, clientId="asked@2"),
    ask("running info of no client", Rq.GET_CONSUMER_RUNNING_INFO, consumerGroup=_GROUP),
    ask(
        "consume directly",
        Rq.CONSUME_MESSAGE_DIRECTLY,
        consumerGroup=_GROUP,
        clientId="asked@1",
        msgId=kept("first.id"),
        topic="d_plain",
    ),
    Pushed(name="the client is given the message", via="asked", code=Rq.CONSUME_MESSAGE_DIRECTLY),
    ask(
        "consume directly without a topic",
        Rq.CONSUME_MESSAGE_DIRECTLY,
        consumerGroup=_GROUP,
        clientId="asked@1",
        msgId=kept("first.id"),
        brokerName="broker-a",
    ),
    Pushed(name="the client is given the message without a topic", via="asked", code=Rq.CONSUME_MESSAGE_DIRECTLY),
    ask(
        "consume directly an unknown topic",
        Rq.CONSUME_MESSAGE_DIRECTLY,
        consumerGroup=_GROUP,
        clientId="asked@1",
        msgId=kept("first.id"),
        topic="d_unknown",
    ),
    ask(
        "consume directly what is no id",
        Rq.CONSUME_MESSAGE_DIRECTLY,
        consumerGroup=_GROUP,
        clientId="asked@1",
        msgId="no id",
        topic="d_plain",
    ),
    ask(
        "consume directly nothing",
        Rq.CONSUME_MESSAGE_DIRECTLY,
        consumerGroup=_GROUP,
        clientId="asked@1",
        topic="d_plain",
    ),
    ask("consume directly by no client", Rq.CONSUME_MESSAGE_DIRECTLY, consumerGroup=_GROUP, msgId=kept("first.id")),
    ask("status", Rq.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, group=_GROUP, topic="d_plain"),
    Pushed(name="the client is asked for its status", via="asked", code=Rq.GET_CONSUMER_STATUS_FROM_CLIENT),
    ask(
        "status of one client",
        Rq.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        group=_GROUP,
        topic="d_plain",
        clientAddr="asked@1",
    ),
    Pushed(name="the one client is asked for its status", via="asked", code=Rq.GET_CONSUMER_STATUS_FROM_CLIENT),
    ask(
        "status of another client",
        Rq.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        group=_GROUP,
        topic="d_plain",
        clientAddr="asked@2",
    ),
    ask("status of no group", Rq.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="d_plain"),
    ask("status of no topic", Rq.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, group=_GROUP),
    send(
        "a reply to a client that is there",
        "DefaultCluster_REPLY_TOPIC",
        code=Rq.SEND_REPLY_MESSAGE_V2,
        body=b"the reply",
        properties={
            "MSG_TYPE": "reply",
            "CORRELATION_ID": "c9",
            "REPLY_TO_CLIENT": "asked@1",
            "CLUSTER": "DefaultCluster",
        },
    ),
    Pushed(name="the client is given the reply", via="asked", code=Rq.PUSH_REPLY_MESSAGE_TO_CLIENT),
    send(
        "a reply with long names",
        "DefaultCluster_REPLY_TOPIC",
        code=Rq.SEND_REPLY_MESSAGE,
        long_names=True,
        body=b"the other reply",
        properties={"MSG_TYPE": "reply", "CORRELATION_ID": "c10", "REPLY_TO_CLIENT": "asked@1"},
    ),
    Pushed(name="the client is given the other reply", via="asked", code=Rq.PUSH_REPLY_MESSAGE_TO_CLIENT),
    heartbeat(
        "an old client comes",
        "asked@3",
        via="asked before",
        consumers=[consumer("d_asked_old", [subscription("d_plain")])],
        version=20,
    ),
    ask("running info of an old client", Rq.GET_CONSUMER_RUNNING_INFO, consumerGroup="d_asked_old", clientId="asked@3"),
    ask("status of an old client", Rq.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, group="d_asked_old", topic="d_plain"),
    HangUp(name="the old client goes", via="asked before"),
    HangUp(name="the client goes", via="asked"),
)

"""Sending: every form, every check, and what is stored in the end."""

from __future__ import annotations

from fusee.message.batch import BatchElement, join_batch
from fusee.message.properties import encode_properties
from fusee.wire.codes import RequestCode as Rq
from tests.interop.differential.phrases import ask, batch_of, max_offset, pull, send, send_batch, tell
from tests.interop.differential.steps import Step, chapter, has_field, only_code

# As the settings of both brokers say.
BODY_SIZE_MAX = 65_536
_COMPRESSED = 1

PLAIN: list[Step] = chapter(
    "send",
    send(
        "plain", "d_plain", body=b"first", remember="first", properties={"KEYS": "k1 k2", "TAGS": "A", "colour": "red"}
    ),
    send("plain with long names", "d_plain", body=b"second", remember="second", long_names=True),
    send("to another queue", "d_plain", 3, body=b"third", remember="third", properties={"KEYS": "k1"}),
    send("with a flag of its own", "d_plain", 1, flag=-7),
    send("without properties", "d_plain", 2, properties=""),
    send("with properties left out", "d_plain", 2, properties="", i=None),
    send("with a property without value", "d_plain", 2, properties="lonely\x01\x02"),
    send("with a property without separator", "d_plain", 2, properties="lonely"),
    send("with a property given twice", "d_lax", 1, properties="a\x011\x02a\x012\x02UNIQ_KEY\x01twice\x02"),
    pull("what is stored of it", "d_lax", 1),
    send("with a space for unique key", "d_plain", 2, key=" "),
    send("with an empty body", "d_lax", 0, body=b""),
    send("with a body that is compressed", "d_plain", 2, body=b"x\x9cnot really", sysFlag=_COMPRESSED),
    send("with flags from nowhere", "d_plain", 2, sysFlag=1 << 10),
    send("without waiting for the disk", "d_plain", 2, properties={"WAIT": "false"}),
    send("with text that is not latin", "d_plain", 2, body="¿qué? 你好".encode(), properties={"grüße": "你好 🚀"}),
    send("with a key that pop reserves", "d_plain", 2, properties={"POP_CK": "0 0 0 0 0 b 0"}),
    send("with reconsume times", "d_plain", 2, reconsumeTimes=3),
    send("in a unit", "d_plain", 2, unitMode=True),
    send("to the last queue", "d_plain", 3),
    send("to the queue behind the last", "d_plain", 4),
    send("to a queue far behind the last", "d_plain", 2_000_000_000),
    send("to a read queue that is not written", "d_shrunk", 3),
    send("to a single queue by lot", "d_single", -1),
    send("to a topic that can only be read", "d_read_only"),
    send("to a topic that can only be written", "d_write_only"),
    send("to a topic with many tags", "d_multi", properties={"TAGS": "A||B"}),
    send("to a topic without queues", "d_none"),
    send("to an ordered topic", "d_ordered", 1, properties={"__SHARDINGKEY": "s"}),
    send("to a compacted topic with key", "d_compact", properties={"KEYS": "c"}),
    send("to a compacted topic without key", "d_compact"),
    send("a body of the greatest size", "d_single", body=b"b" * (BODY_SIZE_MAX - 1000)),
    send("a body over the greatest size", "d_single", body=b"b" * (BODY_SIZE_MAX + 1)),
    send("properties of nearly the greatest size", "d_single", properties={"p": "v" * 32_000}),
    send("properties over the greatest size", "d_single", properties="p\x01" + "v" * 32_800 + "\x02"),
    send("properties that become too large", "d_single", properties="p\x01" + "v" * 32_700 + "\x02"),
)

MADE: list[Step] = chapter(
    "send to unknown topics",
    send("makes it", "d_made_v2"),
    send("makes it with long names", "d_made_v1", long_names=True, defaultTopicQueueNums=2),
    send("makes it for units", "d_made_unit", unitMode=True),
    send("makes it with no more queues than the template", "d_made_wide", 7, defaultTopicQueueNums=100),
    send("makes it with no queues", "d_made_none", defaultTopicQueueNums=0),
    send("makes it with negative queues", "d_made_minus", defaultTopicQueueNums=-3),
    send("makes it but not this queue", "d_made_narrow", 5, defaultTopicQueueNums=2),
    send("from the topic of the cluster", "d_made_cluster", defaultTopic="DefaultCluster", defaultTopicQueueNums=3),
    send("from a template without heirs", "d_made_heir", defaultTopic="d_plain"),
    send("from an unknown template", "d_made_nothing", defaultTopic="d_unknown"),
    send("from no template", "d_made_nothing", defaultTopic=None),
    send("from an empty template", "d_made_nothing", defaultTopic=""),
    ask("what was made", Rq.GET_TOPIC_CONFIG, topic="d_made_v2"),
    ask("what was made for units", Rq.GET_TOPIC_CONFIG, topic="d_made_unit"),
    ask("what was made wide", Rq.GET_TOPIC_CONFIG, topic="d_made_wide"),
    ask("what was made of nothing", Rq.GET_TOPIC_CONFIG, topic="d_made_none"),
    ask("what was made of the cluster", Rq.GET_TOPIC_CONFIG, topic="d_made_cluster"),
    ask("what was not made", Rq.GET_TOPIC_CONFIG, topic="d_made_heir"),
    send("with a bad letter", "d plain"),
    send("with a name that is too long", "d_" + "y" * 130),
    send("with an empty name", ""),
    send("with a blank name", "  "),
    send("without a name", None),
    send("without a group", "d_lax", 1, producerGroup=None),
    send("without a queue", "d_plain", None),
    send("without flags", "d_plain", sysFlag=None),
    send("without a birthday", "d_plain", bornTimestamp=None),
    send("with words for a queue", "d_plain", "three"),
    send("with a queue over the range of a number", "d_plain", "99999999999"),
    send("with long names but without a queue", "d_plain", None, long_names=True),
    *(
        send(f"that nobody may send to {topic}", topic)
        for topic in (
            *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
            *("TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"),
        )
    ),
    send("the template itself", "TBW102"),
    send("the topic of traces", "RMQ_SYS_TRACE_TOPIC", defaultTopicQueueNums=1),
    send("the topic of benchmarks", "BenchmarkTest", 1023),
    tell(
        "without wanting an answer",
        Rq.SEND_MESSAGE_V2,
        body=b"oneway",
        a="d_producers",
        b="d_oneway",
        c="TBW102",
        d=1,
        e=0,
        f=0,
        g=1,
        h=0,
        i="",
    ),
    max_offset("what was sent without wanting an answer arrives", "d_oneway", until=has_field("offset", "1")),
)

BATCHES: list[Step] = chapter(
    "send batches",
    send_batch("of three", "d_single", body=batch_of(b"one", b"two", b"three", keys="three"), remember="batch"),
    send_batch("of one", "d_single", body=batch_of(b"only", keys="only")),
    send_batch("with tags", "d_tags", body=batch_of(b"one", b"two", tags="A", keys="tagged")),
    send_batch("of none", "d_single", body=b""),
    send_batch("cut short", "d_single", body=batch_of(b"one", b"two")[:-3]),
    send_batch("of rubbish", "d_single", body=b"rubbish"),
    send_batch("with an element that says it has no size", "d_single", body=b"\x00" * 24),
    send_batch("to a retry topic", "%RETRY%d_batches", body=batch_of(b"one")),
    send_batch("to a name that is too long", "d_" + "z" * 130, body=batch_of(b"one")),
    send_batch("to a queue behind the last", "d_single", 1, body=batch_of(b"one")),
    send_batch("to an unknown topic", "d_made_batch", body=batch_of(b"one", b"two", keys="made")),
    send_batch("to an unknown topic without template", "d_made_no", body=batch_of(b"one"), defaultTopic="d_unknown"),
    send_batch("over the greatest size", "d_lax", 2, body=batch_of(b"o" * BODY_SIZE_MAX, b"two")),
    send_batch(
        "with an element over the greatest size of properties",
        "d_single",
        body=join_batch([BatchElement(0, b"one", encode_properties({"p": "v" * 32_700}))]),
    ),
    send_batch("without saying that it is one", "d_single", body=batch_of(b"one"), batch=False),
    send_batch(
        "under the code of a single message", "d_single", body=batch_of(b"one", b"two"), code=Rq.SEND_MESSAGE_V2
    ),
    send_batch("with long names", "d_single", body=batch_of(b"one", b"two"), code=Rq.SEND_MESSAGE, long_names=True),
    send_batch("with a delay", "d_lax", 3, body=batch_of(b"one"), properties={"DELAY": "1"}),
    send_batch("to a topic of batches", "d_inner", body=batch_of(b"one", b"two", keys="inner"), remember="inner"),
    send_batch("to a topic of batches without unique key", "d_inner", body=batch_of(b"one", b"two"), key=None),
    send("singly to a topic of batches", "d_inner", body=b"single"),
    pull("from a topic of batches", "d_inner"),
    max_offset("of a topic of batches", "d_inner"),
    pull("from a single queue", "d_single", queue_offset=6, view=only_code),
)

REPLIES: list[Step] = chapter(
    "send replies",
    send(
        "to nobody",
        "DefaultCluster_REPLY_TOPIC",
        code=Rq.SEND_REPLY_MESSAGE_V2,
        properties={"MSG_TYPE": "reply", "CORRELATION_ID": "c1", "CLUSTER": "DefaultCluster"},
    ),
    send(
        "to a client that is not there",
        "DefaultCluster_REPLY_TOPIC",
        code=Rq.SEND_REPLY_MESSAGE_V2,
        properties={"MSG_TYPE": "reply", "CORRELATION_ID": "c2", "REPLY_TO_CLIENT": "nobody@1"},
    ),
    send(
        "to a client that is not there, with long names",
        "DefaultCluster_REPLY_TOPIC",
        code=Rq.SEND_REPLY_MESSAGE,
        long_names=True,
        properties={"MSG_TYPE": "reply", "CORRELATION_ID": "c3", "REPLY_TO_CLIENT": "nobody@1"},
    ),
    send("to an unknown topic", "d_reply_unknown", code=Rq.SEND_REPLY_MESSAGE_V2, defaultTopic="d_unknown"),
    send("to a queue behind the last", "DefaultCluster_REPLY_TOPIC", 7, code=Rq.SEND_REPLY_MESSAGE_V2),
    send("to a bad name", "d reply", code=Rq.SEND_REPLY_MESSAGE_V2),
    pull("what was stored", "DefaultCluster_REPLY_TOPIC"),
)

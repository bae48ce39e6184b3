"""Retries, dead letters, delays."""

from __future__ import annotations

from fusee.wire.codes import RequestCode as Rq
from tests.interop.differential.phrases import ask, create_group, create_topic, max_offset, pull, send
from tests.interop.differential.steps import Ask, Step, Value, chapter, has_field, kept, only_entries

_GROUP = "d_retries"


def _back(name: str, log_offset: Value, *, group: str | None = _GROUP, level: int | None = 0, **more: Value) -> Ask:
    fields: dict[str, Value] = {
        "offset": log_offset,
        "group": group,
        "delayLevel": level,
        "originTopic": "d_back",
        **more,
    }
    return ask(name, Rq.CONSUMER_SEND_MSG_BACK, **fields)  # type: ignore[arg-type]


SEND_BACK: list[Step] = chapter(
    "send back",
    create_topic("a topic to fail on", "d_back", queues=1),
    send("a message to fail on", "d_back", properties={"TAGS": "A", "KEYS": "back"}, remember="back"),
    send("a message that was tried twice", "d_back", reconsumeTimes=2, remember="tried"),
    send(
        "a message of a retry",
        "d_back",
        properties={"RETRY_TOPIC": "d_first", "ORIGIN_MESSAGE_ID": "original"},
        remember="again",
    ),
    _back("for the first time", kept("back.log_offset"), level=1, maxReconsumeTimes=16),
    max_offset("it is put off", "SCHEDULE_TOPIC_XXXX", 0),
    pull("what is put off", "SCHEDULE_TOPIC_XXXX"),
    _back("too often by the group's limit", kept("tried.log_offset")),
    pull("dead letters by the group's limit", f"%DLQ%{_GROUP}"),
    _back("not too often by its own limit", kept("tried.log_offset"), maxReconsumeTimes=9, level=1),
    _back("too often by its own limit", kept("back.log_offset"), maxReconsumeTimes=0),
    _back(
        "of an old client, whose own limit is not heard",
        kept("back.log_offset"),
        maxReconsumeTimes=0,
        level=1,
        version=100,
    ),
    _back("straight to the dead letters", kept("back.log_offset"), level=-1),
    pull("dead letters", f"%DLQ%{_GROUP}"),
    ask("their topic", Rq.GET_TOPIC_CONFIG, topic=f"%DLQ%{_GROUP}"),
    _back("of what was sent back before", kept("again.log_offset"), level=1, maxReconsumeTimes=16),
    _back("with a level by its count", kept("tried.log_offset"), group="d_counted", maxReconsumeTimes=16),
    max_offset("put off by its count", "SCHEDULE_TOPIC_XXXX", 4),
    _back("with a level over the highest", kept("back.log_offset"), group="d_counted", level=99, maxReconsumeTimes=16),
    max_offset("put off by the highest", "SCHEDULE_TOPIC_XXXX", 17),
    _back("in a unit", kept("back.log_offset"), group="d_units", level=18, unitMode=True, maxReconsumeTimes=16),
    ask("the retry topic of a unit", Rq.GET_TOPIC_CONFIG, topic="%RETRY%d_units"),
    _back("of a group without retry queues", kept("back.log_offset"), group="d_no_retries"),
    _back("of a group with two retry queues", kept("back.log_offset"), group="d_whole", level=17, maxReconsumeTimes=16),
    ask("a retry topic with two queues", Rq.GET_TOPIC_CONFIG, topic="%RETRY%d_whole"),
    _back(
        "of a new group, which is made", kept("back.log_offset"), group="d_made_by_back", level=18, maxReconsumeTimes=16
    ),
    _back("of a group with a bad letter", kept("back.log_offset"), group="d bad"),
    _back("of a disabled group", kept("back.log_offset"), group="d_disabled", level=18),
    _back("of what is not there", 123_456_789_000),
    _back("of what lies inside a record", lambda memory: memory["back.log_offset"] + 1),
    _back("of a negative offset", -1),
    _back("of nothing", None),
    _back("of no group", kept("back.log_offset"), group=None),
    _back("with no level", kept("back.log_offset"), level=None),
    max_offset("what was put off for a second comes back", f"%RETRY%{_GROUP}", until=has_field("offset", "4")),
    pull("what came back", f"%RETRY%{_GROUP}"),
    pull("nothing came back for units yet", "%RETRY%d_units"),
    send("to a retry topic", f"%RETRY%{_GROUP}", reconsumeTimes=1, properties={"RETRY_TOPIC": "d_back"}),
    send("to a retry topic too often", f"%RETRY%{_GROUP}", reconsumeTimes=3, properties={"DELAY": "3"}),
    send("to a retry topic not too often by its own limit", f"%RETRY%{_GROUP}", reconsumeTimes=3, maxReconsumeTimes=3),
    send("to a retry topic too often by its own limit", f"%RETRY%{_GROUP}", reconsumeTimes=3, maxReconsumeTimes=2),
    send(
        "to a retry topic too often by its own limit, which an old client cannot set",
        f"%RETRY%{_GROUP}",
        reconsumeTimes=2,
        maxReconsumeTimes=1,
        version=100,
    ),
    send("to a retry topic of a new group", "%RETRY%d_made_by_retry"),
    ask("the new group", Rq.GET_TOPIC_CONFIG, topic="%RETRY%d_made_by_retry"),
    send("to a retry topic of a bad group", "%RETRY%d|bad%"),
    send("to a dead letter topic", f"%DLQ%{_GROUP}"),
    send("to a dead letter topic that is not there", "%DLQ%d_not_there", defaultTopic="d_unknown"),
    pull("all dead letters", f"%DLQ%{_GROUP}"),
)

DELAYS: list[Step] = chapter(
    "delays",
    create_topic("a topic for later", "d_later", queues=2),
    create_group("a group for later", "d_later_readers"),
    send("in a second", "d_later", 1, properties={"DELAY": "1", "TAGS": "A", "KEYS": "later"}, body=b"later"),
    send("in two hours", "d_later", properties={"DELAY": "18"}),
    send("over the highest level", "d_later", properties={"DELAY": "25"}),
    send("at level zero", "d_later", properties={"DELAY": "0"}),
    send("at a negative level", "d_later", properties={"DELAY": "-1"}),
    send("at a level in words", "d_lax", properties={"DELAY": "soon"}),
    max_offset("what is put off for two hours", "SCHEDULE_TOPIC_XXXX", 17),
    pull("what waits", "SCHEDULE_TOPIC_XXXX", 17),
    pull("what did not wait", "d_later"),
    max_offset("after a second it is there", "d_later", 1, until=has_field("offset", "1")),
    pull("what waited", "d_later", 1),
    ask(
        "how far levels are",
        Rq.GET_ALL_DELAY_OFFSET,
        view=only_entries("17", "18", path=("offsetTable",)),
    ),
)

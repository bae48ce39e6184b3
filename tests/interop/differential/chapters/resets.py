"""Moving offsets: resets by time and by offset, copies, corrections."""

from __future__ import annotations

import re

from fusee.wire.codes import LanguageCode
from fusee.wire.codes import RequestCode as Rq
from tests.interop.differential.phrases import (
    SUBSCRIPTION,
    ask,
    commit,
    committed,
    consumer,
    create_topic,
    heartbeat,
    pull,
    send,
    subscription,
)
from tests.interop.differential.steps import Ask, HangUp, Outcome, Pushed, Step, Value, chapter

_GROUP = "d_movers"
_TOPIC = "d_move"


def _reset(name: str, *, group: str | None = _GROUP, topic: str | None = _TOPIC, **more: Value) -> Ask:
    fields: dict[str, Value] = {"group": group, "topic": topic, "timestamp": -1, "isForce": True, **more}
    return ask(name, Rq.INVOKE_BROKER_TO_RESET_OFFSET, **fields)  # type: ignore[arg-type]


def _clone(name: str, source: str | None, target: str | None, topic: str | None, **more: Value) -> Ask:
    fields: dict[str, Value] = {"srcGroup": source, "destGroup": target, "topic": topic, "offline": False, **more}
    return ask(name, Rq.CLONE_GROUP_OFFSET, **fields)  # type: ignore[arg-type]


_ELSEWHERE = re.compile("CID_RMQ_SYS_TRANS|lax|proxied|null")


def _of_the_script(outcome: Outcome) -> Outcome:
    """The tables without what moves by itself, and without what only Java takes."""
    body = outcome.get("body") or {}
    tables = {
        name: {key: value for key, value in table.items() if not _ELSEWHERE.search(key)}
        for name, table in body.items()
        if isinstance(table, dict)
    }
    return {**outcome, "body": tables}


RESETS: list[Step] = chapter(
    "resets",
    create_topic("a topic to move in", _TOPIC, queues=2),
    *(send(f"message {number}", _TOPIC, number % 2) for number in range(6)),
    commit("begin in queue zero", _GROUP, _TOPIC, 0, 2),
    commit("begin in queue one", _GROUP, _TOPIC, 1, 2),
    _reset("to the end"),
    committed("the committed offset after a reset", _GROUP, _TOPIC),
    commit("a commit before the reset is seen", _GROUP, _TOPIC, 0, 1),
    committed("was not taken", _GROUP, _TOPIC),
    pull("the reset is seen", _TOPIC, group=_GROUP),
    pull("and forgotten", _TOPIC, group=_GROUP),
    commit("a commit after the reset was seen", _GROUP, _TOPIC, 0, 1),
    committed("was taken", _GROUP, _TOPIC),
    pull("the reset of the other queue is seen", _TOPIC, 1, group=_GROUP),
    _reset("to a time long ago", timestamp=1000),
    pull("a time long ago is the beginning", _TOPIC, 1, 2, group=_GROUP),
    _reset("without force to a time long ago", timestamp=1000, isForce=False),
    _reset("to the end without force", isForce=False),
    _reset("one queue to an offset", queueId=1, offset=1),
    pull("one queue is reset", _TOPIC, 1, group=_GROUP),
    _reset("one queue to the end", queueId=0, offset=3),
    _reset("one queue one behind the end", queueId=0, offset=4),
    _reset("one queue far behind the end", queueId=0, offset=400),
    _reset("one queue to a negative offset", queueId=0, offset=-1),
    _reset("one queue by time", queueId=0, timestamp=1000),
    _reset("a queue that is not there", queueId=9, offset=0),
    _reset("a negative queue", queueId=-3, offset=0),
    _reset("all queues to an offset", offset=1),
    _reset("an unknown group", group="d_never_reset"),
    _reset("a group with a bad letter", group="d bad"),
    _reset("an unknown topic", topic="d_unknown"),
    _reset("a topic without queues", topic="d_none"),
    _reset("no group", group=None),
    _reset("no topic", topic=None),
    _reset("to no time", timestamp=None),
    _reset("without saying whether by force", isForce=None),
    _clone("clone", "d_committers", "d_cloned", "d_plain"),
    committed("the copy", "d_cloned", "d_plain"),
    _clone("clone every topic", "d_committers", "d_lax_cloned", None),
    ask("topics of the copy", Rq.QUERY_TOPICS_BY_CONSUMER, group="d_lax_cloned"),
    _clone("clone an unknown topic", "d_committers", "d_cloned", "d_unknown"),
    _clone("clone of a group that never committed", "d_absent", "d_cloned", "d_plain"),
    committed("is still what it was", "d_cloned", "d_plain"),
    _clone("clone a group that is there", "d_casters", "d_cloned", "d_plain"),
    _clone("clone offline", "d_committers", "d_cloned", "d_tags", offline=True),
    _clone("clone of no group", None, "d_cloned", "d_plain"),
    _clone("clone to no group", "d_lax_committers", None, "d_lax"),
    ask("all offsets", Rq.GET_ALL_CONSUMER_OFFSET, view=_of_the_script),
    commit("an offset to be left out", "d_list_b", "d_plain", 0, 1),
    ask("correction", Rq.QUERY_CORRECTION_OFFSET, compareGroup="d_committers", topic="d_plain"),
    ask(
        "correction without some groups",
        Rq.QUERY_CORRECTION_OFFSET,
        compareGroup="d_committers",
        topic="d_plain",
        filterGroups="d_list_b,d_nobody",
    ),
    ask(
        "correction of a group that never committed",
        Rq.QUERY_CORRECTION_OFFSET,
        compareGroup="d_absent",
        topic="d_plain",
    ),
    ask("correction of an unknown topic", Rq.QUERY_CORRECTION_OFFSET, compareGroup="d_committers", topic="d_unknown"),
    committed("what was left out is still there", "d_list_b", "d_plain"),
    ask("correction without a group", Rq.QUERY_CORRECTION_OFFSET, topic="d_plain"),
    pull("an offset that was moved", _TOPIC, queue_offset=0, sysFlag=SUBSCRIPTION, group="d_moved_nobody"),
)


def _settings(name: str, text: str) -> Ask:
    return ask(name, Rq.UPDATE_BROKER_CONFIG, body=text.encode())


def _client_reset(name: str, **more: Value) -> Ask:
    return _reset(name, group="d_client_movers", **more)  # type: ignore[arg-type]


BY_CLIENTS: list[Step] = chapter(
    "resets by clients",
    _settings("let clients reset", "useServerSideResetOffset=false"),
    _client_reset("a group that is not there"),
    _client_reset("a group that is not there in an unknown topic", topic="d_unknown"),
    heartbeat(
        "a client comes",
        "mover@1",
        via="mover",
        consumers=[consumer("d_client_movers", [subscription(_TOPIC)])],
    ),
    _client_reset("a group that never committed"),
    *(commit(f"begin in queue {number}", "d_client_movers", _TOPIC, number, 2) for number in (0, 1)),
    _client_reset("to a time long ago", timestamp=1000),
    Pushed(name="the client is told of a time long ago", via="mover", code=Rq.RESET_CONSUMER_CLIENT_OFFSET),
    _client_reset("to the end"),
    Pushed(name="the client is told of the end", via="mover", code=Rq.RESET_CONSUMER_CLIENT_OFFSET),
    _client_reset("to the end without force", isForce=False),
    Pushed(name="the client is told without force", via="mover", code=Rq.RESET_CONSUMER_CLIENT_OFFSET),
    _client_reset("to the end by a tool in C++", language=LanguageCode.CPP),
    Pushed(name="the client is told in the words of C++", via="mover", code=Rq.RESET_CONSUMER_CLIENT_OFFSET),
    _client_reset("in an unknown topic", topic="d_unknown"),
    heartbeat(
        "an old client comes",
        "mover@2",
        via="old mover",
        consumers=[consumer("d_old_movers", [subscription(_TOPIC)])],
        version=20,
    ),
    *(commit(f"begin with the old client in queue {number}", "d_old_movers", _TOPIC, number, 2) for number in (0, 1)),
    _reset("a group of an old client", group="d_old_movers"),
    HangUp(name="the client goes", via="mover"),
    HangUp(name="the old client goes", via="old mover"),
    _settings("let the broker reset", "useServerSideResetOffset=true"),
)

"""Transactions: half messages, verdicts right and wrong, and being asked."""

from __future__ import annotations

import time

from fusee.wire.codes import RequestCode as Rq
from tests.interop.differential.phrases import ask, heartbeat, max_offset, pull, send, tell
from tests.interop.differential.steps import (
    Ask,
    Memory,
    Pushed,
    Step,
    Value,
    chapter,
    ext_field,
    has_field,
    kept,
    only_code,
)

_GROUP = "d_bookers"
_HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
_PREPARED, _COMMIT, _ROLLBACK, _UNKNOWN = 4, 8, 12, 0


def _now(_: Memory) -> int:
    return time.time_ns() // 1_000_000


def _two_minutes_ago(_: Memory) -> int:
    return time.time_ns() // 1_000_000 - 120_000


def _half(name: str, remember: str, *, group: str = _GROUP, **more: Value) -> Ask:
    properties = {"TRAN_MSG": "true", "PGROUP": group, "KEYS": "tx", "TAGS": "T"}
    said: dict[str, Value] = {"sysFlag": _PREPARED, "bornTimestamp": _now, "producerGroup": group, **more}
    return send(
        name,
        "d_transaction",
        1,
        properties=properties,
        key=f"{remember}-key",
        remember=remember,
        **said,  # type: ignore[arg-type]
    )


def _verdict(half: str, verdict: Value, **more: Value) -> dict[str, Value]:
    return {
        "topic": "d_transaction",
        "producerGroup": _GROUP,
        "tranStateTableOffset": kept(f"{half}.queue_offset"),
        "commitLogOffset": kept(f"{half}.log_offset"),
        "commitOrRollback": verdict,
        "fromTransactionCheck": False,
        "msgId": f"{half}-key",
        "transactionId": f"{half}-key",
        **more,
    }


def _end(name: str, half: str, verdict: Value, *, silent: bool = False, **more: Value) -> Ask:
    return ask(name, Rq.END_TRANSACTION, silent=silent, **_verdict(half, verdict, **more))  # type: ignore[arg-type]


DECIDED: list[Step] = chapter(
    "transactions",
    _half("a half message", "half"),
    max_offset("nobody sees it", "d_transaction", 1),
    pull("it waits", _HALF),
    _end("commit", "half", _COMMIT),
    max_offset("now it is seen", "d_transaction", 1),
    pull("the whole message", "d_transaction", 1),
    _half("another half", "other"),
    _end("roll back", "other", _ROLLBACK),
    max_offset("it is never seen", "d_transaction", 1),
    _end("roll back again", "other", _ROLLBACK),
    _half("a third half", "third"),
    _end("commit as another group", "third", _COMMIT, producerGroup="d_strangers"),
    _end("commit another offset of the queue", "third", _COMMIT, tranStateTableOffset=77),
    _end("commit another place in the log", "third", _COMMIT, commitLogOffset=123_456_789_000),
    _end(
        "commit a place inside of a record",
        "third",
        _COMMIT,
        commitLogOffset=lambda memory: memory["third.log_offset"] + 1,
    ),
    _end("roll back as another group", "third", _ROLLBACK, producerGroup="d_strangers"),
    _end(
        "commit what is no half message",
        "third",
        _COMMIT,
        commitLogOffset=kept("first.log_offset"),
        tranStateTableOffset=0,
    ),
    _end("not known yet", "third", _UNKNOWN, silent=True),
    _end("not known yet, from a question", "third", _UNKNOWN, fromTransactionCheck=True, silent=True),
    _end("a verdict that does not exist", "third", 5, silent=True),
    _end("a verdict without a group", "third", _COMMIT, producerGroup=None),
    _end("a verdict without a place", "third", _COMMIT, commitLogOffset=None),
    _end("a verdict without an offset", "third", _COMMIT, tranStateTableOffset=None),
    _end("no verdict", "third", None),
    tell("commit without wanting an answer", Rq.END_TRANSACTION, **_verdict("third", _COMMIT)),  # type: ignore[arg-type]
    max_offset("it was committed", "d_transaction", 1, until=has_field("offset", "2")),
    pull("what was committed", "d_transaction", 1),
    send(
        "a half message to an unknown topic",
        "d_made_half",
        properties={"TRAN_MSG": "true", "PGROUP": _GROUP},
        key="made-key",
        remember="made",
        sysFlag=_PREPARED,
        bornTimestamp=_now,
    ),
    _end("commit to the unknown topic", "made", _COMMIT),
    pull("what is in the unknown topic", "d_made_half"),
    send("half by flag only", "d_transaction", 0, sysFlag=_PREPARED),
    send("half by property that says no", "d_transaction", 0, properties={"TRAN_MSG": "false"}),
    pull("what was no half", "d_transaction", 0, 1),
    send(
        "a half message to be committed twice",
        "d_lax_transaction",
        properties={"TRAN_MSG": "true", "PGROUP": _GROUP},
        key="twice-key",
        remember="twice",
        sysFlag=_PREPARED,
        bornTimestamp=_now,
    ),
    _end("commit once", "twice", _COMMIT),
    _end("commit twice", "twice", _COMMIT),
    max_offset("what came of the second commit", "d_lax_transaction"),
    _end("a verdict without an id", "twice", _COMMIT, msgId=None),
)

ASKED: list[Step] = chapter(
    "transactions in doubt",
    heartbeat("a producer who can be asked", "booker@1", via="booker", producers=[_GROUP]),
    _half("a half message in doubt", "doubt", bornTimestamp=_two_minutes_ago),
    Pushed(
        name="the producer is asked",
        via="booker",
        code=Rq.CHECK_TRANSACTION_STATE,
        keep={
            "asked.queue_offset": ext_field("tranStateTableOffset"),
            "asked.log_offset": ext_field("commitLogOffset"),
        },
    ),
    tell(
        "it says commit",
        Rq.END_TRANSACTION,
        via="booker",
        **_verdict("asked", _COMMIT, fromTransactionCheck=True),  # type: ignore[arg-type]
    ),
    max_offset("it is committed", "d_transaction", 1, until=has_field("offset", "3")),
    pull("what was in doubt", "d_transaction", 1, 2),
)

# What may move the half messages behind it, now or in the next round of questions.
LAST: list[Step] = chapter(
    "transactions at the end",
    ask(
        "resume what is not there",
        Rq.RESUME_CHECK_HALF_MESSAGE,
        topic="d_transaction",
        msgId="7F00000100002A9F00000000FFFFFFFF",
    ),
    ask("resume nothing", Rq.RESUME_CHECK_HALF_MESSAGE, topic="d_transaction"),
    ask("resume what is no id", Rq.RESUME_CHECK_HALF_MESSAGE, topic="d_transaction", msgId="no id"),
    send(
        "a half message with a delay",
        "d_transaction",
        0,
        properties={"TRAN_MSG": "true", "PGROUP": _GROUP, "DELAY": "18"},
        key="delayed-key",
        remember="delayed",
        sysFlag=_PREPARED,
        bornTimestamp=_now,
    ),
    _end("commit with a delay", "delayed", _COMMIT),
    send(
        "a half message with an immunity that is over",
        "d_transaction",
        properties={"TRAN_MSG": "true", "PGROUP": _GROUP, "CHECK_IMMUNITY_TIME_IN_SECONDS": "1"},
        key="immune-key",
        remember="immune",
        sysFlag=_PREPARED,
        bornTimestamp=_two_minutes_ago,
        view=only_code,
    ),
    _end("commit when the immunity is over", "immune", _COMMIT),
    _end("roll back when the immunity is over, from a question", "immune", _ROLLBACK, fromTransactionCheck=True),
    ask("resume what is no half message", Rq.RESUME_CHECK_HALF_MESSAGE, topic="d_transaction", msgId=kept("first.id")),
)

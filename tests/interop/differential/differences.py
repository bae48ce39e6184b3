"""Where Fusee's answers are not those of Apache RocketMQ 5.5.0, and why.

The differential test fails for a difference that is not here, and for one that is here and no longer exists;
docs/compatibility.md is made from this table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tests.interop.differential.comparison import Deviation


_ELEMENT: Final = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class Difference:
    """One reason, the steps where it shows, and the places of their outcomes: beginnings of paths, `[]` any element."""

    reason: str
    steps: tuple[str, ...]
    places: tuple[str, ...]

    def explains(self, deviation: Deviation) -> bool:
        return deviation.step in self.steps and any(_covers(place, deviation.path) for place in self.places)


_ALL: Final = ("code", "remark", "fields", "body")

DIFFERENCES: Final[tuple[Difference, ...]] = (
    # Requests that make no sense: refused with a reason, where Java throws, stores nonsense or answers by chance.
    Difference(
        "a required field that is missing is named in the refusal; Java goes on with null, whatever comes of it",
        (
            "send to unknown topics/without a group",
            "pull/without a version",
            "pull/without words for time",
            "offsets/of no group",
            "peek/without a queue",
            "peek/without a number",
            "clients/heartbeat of nobody",
            "locks/lock without a client",
            "locks/what has no client is unlocked",
            "clients leave/unregister nobody",
            "transactions/a verdict without a group",
            "transactions/a verdict without an id",
            "queries/without a key",
            "queries/without a topic",
            "resets/no group",
            "resets/to no time",
            "resets/without saying whether by force",
            "resets/clone to no group",
            "resets/correction without a group",
            "relays/running info of no client",
            "relays/status of no topic",
            "statistics/time span of no group",
            "topics at the end/delete nothing",
        ),
        _ALL,
    ),
    Difference(
        "a required field that is missing is named in the refusal; Java takes it for false",
        ("statistics/of all groups without saying which",),
        ("code", "fields", "groups"),
    ),
    Difference(
        "a required field that is missing is named in the refusal; Java asks the client without it",
        ("left over/requests of the broker that no step waited for",),
        ("asked.221",),
    ),
    Difference(
        "an absent client id is shown as empty, not as null", ("relays/consume directly by no client",), ("remark",)
    ),
    Difference(
        "a topic has from 0 to 65536 queues; Java makes one with negative numbers",
        ("topics/create with negative queues",),
        ("code", "remark"),
    ),
    Difference(
        "a negative offset or queue is not committed; Java keeps it",
        ("offsets/commit a negative offset", "offsets/commit to a negative queue"),
        ("code", "remark"),
    ),
    Difference(
        "a page may be empty, and begins at the beginning when nothing else is said; Java throws",
        ("topics/page of nothing", "topics/page without a beginning", "groups/page without a beginning"),
        _ALL,
    ),
    Difference(
        "a data version that cannot be read is refused; Java begins at the beginning",
        ("topics/page with a bad version",),
        _ALL,
    ),
    Difference(
        "a question that names no topic is answered with what is known; Java throws",
        ("clients/subscription without a topic",),
        ("code", "remark", "body"),
    ),
    Difference(
        "a query for less than nothing finds nothing; Java throws", ("queries/a negative number",), ("code", "fields")
    ),
    Difference(
        "a batch that cannot be taken apart is an illegal message (13); Java throws",
        (
            "send batches/of none",
            "send batches/cut short",
            "send batches/of rubbish",
            "send batches/with an element that says it has no size",
        ),
        ("code", "fields"),
    ),
    Difference(
        "a batch that is too large, or a delay that is no number, makes an illegal message (13); Java throws",
        ("send batches/over the greatest size", "delays/at a level in words"),
        ("code", "fields"),
    ),
    Difference("a message may be empty; Java throws", ("send/with an empty body",), ("code", "remark", "fields")),
    Difference(
        "a property given twice is stored as it was sent; Java stores the last one",
        ("send/what is stored of it",),
        ("body.records[].size",),
    ),
    # Filters and limits that Java forgets.
    Difference(
        "a filter that cannot be understood is refused (23); Java delivers every message",
        (
            "pull/with an old filter of classes",
            "pull by tags/an unknown kind of expression",
            "pull by sql/a reserved word for a name",
            "pull by sql/that is not finished",
            "pull by sql/text compared for order",
            "pull by sql/nonsense",
            "pull by sql/a bad letter",
            "pull by sql/without closing quote",
        ),
        _ALL,
    ),
    Difference(
        "an empty kind of expression means tags; Java then finds nothing",
        ("pull by tags/an empty kind of expression",),
        ("code", "remark", "body"),
    ),
    Difference(
        "maxMsgBytes of a pull is kept to; Java does not look at it",
        ("pull/no more than some bytes", "pull/no more than one byte"),
        ("body", "fields"),
    ),
    # State that Java changes by mistake.
    Difference(
        "a list of topics is made to its end; Java stops at the first that is unchanged",
        ("topics/what came of the one behind the unchanged",),
        ("code", "remark", "body"),
    ),
    Difference(
        "a deleted group stays deleted; Java makes it anew, even one that never was",
        ("groups at the end/what is left", "groups at the end/what is forbidden"),
        (
            "fields.totalGroupNum",
            *(f"names[{group}]" for group in ("CID_RMQ_SYS_MINE", "d_cloned", "d_list_a", "d_never_heard")),
        ),
    ),
    Difference(
        "a group that no longer subscribes to a topic is not listed with it",
        ("topics at the end/the offsets of its consumers are gone",),
        ("body.groupList[d_second]",),
    ),
    Difference(
        "without a topic the offsets of every topic are cloned; Java clones nothing",
        ("resets/topics of the copy",),
        ("body.topicList[d_plain]", "body.topicList[d_sql]", "body.topicList[d_tags]"),
    ),
    Difference(
        "a correction leaves the offsets alone; Java deletes those of the groups that are to be left out",
        ("resets/what was left out is still there",),
        ("fields.offset",),
    ),
    Difference(
        "a transaction that is committed twice is stored once",
        ("transactions/what came of the second commit",),
        ("fields.offset",),
    ),
    Difference(
        "a half message with a delay waits for its verdict first; Java puts it off first",
        ("transactions at the end/a half message with a delay",),
        ("fields.queueOffset",),
    ),
    Difference(
        "only half messages can be resumed; Java makes one of any message",
        ("transactions at the end/resume what is no half message",),
        ("code", "remark"),
    ),
    Difference(
        "a heartbeat without subscriptions of a group that is not known asks for them",
        ("clients/version two of a group nobody knows, without subscriptions",),
        ("fields.IS_SUB_CHANGE",),
    ),
    Difference(
        "members hear of changes only; Java tells them also when a stranger unregisters",
        ("left over/requests of the broker that no step waited for",),
        ("member 1.40",),
    ),
    Difference(
        "a client is told in the form of its own language; Java goes by the language of whoever asks",
        ("resets by clients/the client is told in the words of C++",),
        ("body.offsetTable",),
    ),
    # What is told.
    Difference(
        "asking for a queue does not make it, and the answer says that it is not there",
        (
            "pull/from a queue that never had a message",
            "pull/from behind the end of a queue that never had a message",
            "pull/from a system topic",
            "send back/nothing came back for units yet",
            "queries/queue that never had a message",
            "queries/queue of an unknown topic",
        ),
        ("code", "remark"),
    ),
    Difference(
        "a peek that is refused tells no figures; Java tells zeros",
        (
            "peek/behind the last queue",
            "peek/into an unknown topic",
            "peek/into a topic that can only be written",
            "peek/as a disabled group",
            "peek/as a group with a bad letter",
        ),
        ("fields.invisibleTime", "fields.popTime", "fields.restNum", "fields.reviveQid"),
    ),
    Difference(
        "topics whose names are the system's are listed as its topics",
        ("a topic with a name of the system/system topics",),
        ("body.topicList[rmq_sys_unheard_of]",),
    ),
    Difference(
        "times are not repeated as text",
        (
            "statistics/time span",
            "statistics/time span of a group that never committed",
            "statistics/time span of a topic without messages",
        ),
        tuple(
            f"body.consumeTimeSpanSet[].{name}"
            for name in ("consumeTimeStampStr", "maxTimeStampStr", "minTimeStampStr")
        ),
    ),
    Difference(
        "getTransferredTps is told in its old spelling too, for tools before 5.0",
        ("statistics/what a running broker tells",),
        ("names[getTransferedTps]",),
    ),
    # Configuration over the wire goes through a typed list of what may change.
    Difference(
        "a setting that does not exist is refused, and so is a value that is none; Java ignores both",
        (
            "configuration/change what is unknown",
            "configuration/change to words for a number",
            "configuration/change to what is no truth",
            "configuration/change by what is no setting",
        ),
        ("code", "remark"),
    ),
    Difference(
        "traceOn is set at start only",
        ("configuration/do not trace", "configuration/without a trace", "configuration/trace"),
        ("code", "remark", "fields.TRACE_ON"),
    ),
    # Not here yet, or not here at all: refused, never answered wrongly.
    Difference(
        "POP consumption comes later",
        (
            "not yet/pop",
            "not yet/acknowledge",
            "not yet/acknowledge several",
            "not yet/change the invisible time",
            "not yet/is there something",
            "not yet/polling info",
            "not yet/roll pops back",
        ),
        ("code",),
    ),
    Difference(
        "rebalancing by the broker comes with POP",
        ("not yet/assignment", "not yet/set the request mode", "not yet/all request modes"),
        ("code",),
    ),
    Difference(
        "messages for an exact time come later",
        (
            "not yet/recall",
            "not yet/a message for an exact time",
            "not yet/a message for an exact time in milliseconds",
            "not yet/a message for a time long over",
            "not yet/a message for a time too far away",
            "not yet/a message for a time in words",
            "not yet/timer check point",
            "not yet/timer metrics",
            "not yet/another timer engine",
        ),
        ("code",),
    ),
    Difference(
        "messages for an exact time come later: one for a time long over is refused, not delivered at once",
        ("not yet/what is for later is not there now",),
        ("fields.offset",),
    ),
    Difference(
        "access control comes later",
        (
            "not yet/create a user",
            "not yet/update a user",
            "not yet/one user",
            "not yet/all users",
            "not yet/delete a user",
            "not yet/create a right",
            "not yet/update a right",
            "not yet/one right",
            "not yet/all rights",
            "not yet/delete a right",
        ),
        ("code",),
    ),
    Difference("static topics are not served", ("not yet/a static topic",), ("code",)),
    Difference("lite topics are not served", ("not yet/lite topics", "not yet/parent topic"), ("code",)),
    Difference(
        "cold data is not held back",
        ("not yet/limit cold data", "not yet/limit cold data no more"),
        ("code",),
    ),
    Difference(
        "how the log is read ahead is left to the system",
        (
            "not yet/read ahead",
            "not yet/read ahead in an unknown way",
            "not yet/read ahead without saying how",
        ),
        ("code",),
    ),
)


def unexplained(found: Iterable[Deviation]) -> list[Deviation]:
    """Deviations without a reason in the table."""
    return [each for each in found if not any(difference.explains(each) for difference in DIFFERENCES)]


def outlived(found: Iterable[Deviation], played: Collection[str]) -> list[str]:
    """What the table explains but a script with these steps did not show, as lines to read."""
    deviations = list(found)
    return [
        f"{step}: no longer differs in {', '.join(difference.places)} ({difference.reason})"
        for difference in DIFFERENCES
        for step in difference.steps
        if step in played and not any(each.step == step and difference.explains(each) for each in deviations)
    ]


def _covers(place: str, path: str) -> bool:
    path = _ELEMENT.sub("[]", path)
    return path == place or path.startswith((f"{place}.", f"{place}["))

"""Filters of a query that narrow what is asked of the cluster: topic, broker, queue, offset, time, tags.

Spark hands over the conjuncts of WHERE that it can tell in simple words. Each that is understood here narrows the read,
and every one is still evaluated by Spark: times are widened a little, because the clock of a broker may have been set
back, and a rule that is broken in one place must not lose rows in another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fusee.filter import parse_subscription

if TYPE_CHECKING:
    from fusee.message.model import MessageQueue

CLOCK_STEP_MS: Final = 5_000
_NAMES: Final = {"partition": "queueId", "offset": "queueOffset", "timestamp": "storeTimestamp"}
_COLUMNS: Final = frozenset({"topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "tags"})
_OFFSET_MAX: Final = (1 << 63) - 1

Condition: TypeAlias = tuple[str, str, Any]
"""Column, one of = in < <= > >= and prefix, value."""


@dataclass(slots=True)
class PushedFilters:
    """What the conditions that were pushed let through. Pickles."""

    conditions: list[Condition] = field(default_factory=list)

    def accept(self, column: str, relation: str, value: Any) -> bool:
        """Take this condition into account, if it is one that narrows anything; whether it is."""
        column = _NAMES.get(column, column)
        if column not in _COLUMNS or value is None or not _is_usable(column, relation, value):
            return False
        self.conditions.append((column, relation, value))
        return True

    def allow(self, queue: MessageQueue) -> bool:
        """Whether this queue can have rows of the query."""
        facts = {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
        return all(
            _holds(facts[column], relation, value) for column, relation, value in self.conditions if column in facts
        )

    @property
    def offsets(self) -> tuple[int, int]:
        """The first offset that can be in a row, and the one after the last."""
        return self._interval("queueOffset", int)

    @property
    def times_ms(self) -> tuple[int, int] | None:
        """The first time of storing that can be in a row, and the one after the last; None when any can."""
        if not any(column == "storeTimestamp" for column, _, _ in self.conditions):
            return None
        first, end = self._interval("storeTimestamp", _milliseconds)
        return max(0, first - CLOCK_STEP_MS), min(_OFFSET_MAX, end + CLOCK_STEP_MS)

    def _interval(self, column: str, number: Any) -> tuple[int, int]:
        first, end = 0, _OFFSET_MAX
        for name, relation, value in self.conditions:
            if name != column:
                continue
            values = [number(each) for each in (value if relation == "in" else [value])]
            if relation in ("=", "in", ">", ">="):
                first = max(first, min(values) + (relation == ">"))
            if relation in ("=", "in", "<", "<="):
                end = min(end, max(values) + (relation != "<"))
        return first, end

    def tags(self, expression: str) -> str | None:
        """The tag expression that the broker is to evaluate, from the option's; None when nothing can match both."""
        wanted = set(parse_subscription("", expression).tags)
        is_any = not wanted
        for column, relation, value in self.conditions:
            if column == "tags":
                values = set(value) if relation == "in" else {value}
                wanted = values if is_any else wanted & values
                is_any = False
        if is_any:
            return expression
        return " || ".join(sorted(wanted)) or None


def _is_usable(column: str, relation: str, value: Any) -> bool:
    values = value if relation == "in" else [value]
    if not values or None in values:
        return False
    if column == "tags":
        return relation in ("=", "in") and all(_is_plain_tag(each) for each in values)
    if column == "storeTimestamp":
        return relation != "prefix" and all(isinstance(each, datetime) and each.tzinfo for each in values)
    if column in ("queueId", "queueOffset"):
        return relation != "prefix" and all(isinstance(each, int) for each in values)
    return all(isinstance(each, str) for each in values)


def _is_plain_tag(value: object) -> bool:
    """Whether a tag expression can name it: it is trimmed there, and `|` and `*` mean something."""
    return isinstance(value, str) and bool(value) and value == value.strip() and not set(value) & set("|*")


def _milliseconds(value: datetime) -> int:
    return int(value.timestamp() * 1000)


def _holds(fact: Any, relation: str, value: Any) -> bool:
    match relation:
        case "=":
            return bool(fact == value)
        case "in":
            return fact in value
        case "<":
            return bool(fact < value)
        case "<=":
            return bool(fact <= value)
        case ">":
            return bool(fact > value)
        case ">=":
            return bool(fact >= value)
        case _:
            return bool(fact.startswith(value))


def in_word(pushed: Any) -> Condition | None:
    """A filter of Spark as a condition; None when it is of another kind."""
    relation = _RELATIONS.get(type(pushed).__name__)
    if relation is None or len(pushed.attribute) != 1:
        return None
    return pushed.attribute[0], relation, pushed.value


_RELATIONS: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "In": "in",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "StringStartsWith": "prefix",
}

"""What a consumer asks for, in the forms people write it, and as a heartbeat declares it.

Topics come as one name, several names, or names with an expression each. An expression is a text of tags (`"A || B"`,
`"*"` for all), several tags, or `Sql(...)`. All are parsed here, before anything is sent, so that a mistake is told
where it was made. Java: FilterAPI.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from fusee.errors import ConfigError, FilterError
from fusee.filter.subscription import SQL92, TAG, parse_subscription
from fusee.filter.tags import BLANKS, EVERYTHING, SEPARATOR
from fusee.message.topics import validate_topic
from fusee.wire.bodies.heartbeat import SubscriptionData

if TYPE_CHECKING:
    from fusee.filter.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Sql:
    """A choice by properties, such as `Sql("region = 'eu' AND amount > 100")`.

    A broker of Apache RocketMQ takes it only with enablePropertyFilter=true.
    """

    expression: str


Expression: TypeAlias = str | Sql | Iterable[str] | None
"""Which messages of a topic: tags as a text or one by one, SQL92, or None for all of them."""

Topics: TypeAlias = str | Iterable[str] | Mapping[str, Expression]
"""What to consume: a topic, several, or each with the expression it is chosen by."""


def subscriptions(
    topics: Topics,
    *,
    tags: str | Iterable[str] | None = None,
    sql: str | None = None,
    version_ms: int,
) -> dict[str, Subscription]:
    """The subscriptions that these arguments mean, by topic.

    `tags` or `sql` choose from every topic; a mapping says it for each topic itself. `version_ms` is the time at
    which the choice was made: brokers keep the newest.

    Raises ConfigError when no topic is given or arguments contradict, MessageError for a name that no topic can
    have, FilterError for an expression that cannot be understood.
    """
    if tags is not None and sql is not None:
        raise ConfigError("give tags or sql, not both: a subscription has one expression")
    for_all: Expression = Sql(sql) if sql is not None else tags
    wanted: dict[str, Expression]
    if isinstance(topics, Mapping):
        if for_all is not None:
            raise ConfigError(
                "topics has an expression for each topic; leave tags and sql out, or give a list of topics"
            )
        wanted = dict(topics)
    else:
        if not isinstance(for_all, (str, Sql, type(None))):
            for_all = _joined(for_all)  # an iterator serves every topic
        names = [topics] if isinstance(topics, str) else topics
        wanted = dict.fromkeys(names, for_all)
    if not wanted:
        raise ConfigError("no topic is given; name the topics to consume, e.g. 'orders' or ['orders', 'refunds']")
    return {topic: subscription(topic, each, version_ms=version_ms) for topic, each in wanted.items()}


def subscription(topic: str, expression: Expression = None, *, version_ms: int) -> Subscription:
    """The subscription to one topic. Raises MessageError or FilterError."""
    validate_topic(topic)
    if isinstance(expression, Sql):
        return parse_subscription(topic, expression.expression, SQL92, version_ms)
    text = EVERYTHING if expression is None else expression if isinstance(expression, str) else _joined(expression)
    if text and not text.strip(BLANKS):
        # To Java's client this is a wish for no message at all, which nobody means.
        raise FilterError(f"the tags of the subscription to {topic} are blank; write 'A || B', or '*' for all messages")
    return parse_subscription(topic, text, TAG, version_ms)


def _joined(tags: Iterable[str]) -> str:
    listed = list(tags)
    if not listed:
        raise FilterError("the list of tags is empty; name at least one, or leave it out for all messages")
    return f" {SEPARATOR} ".join(listed)


def subscription_data(
    topic: str, *, tags: str | Iterable[str] | None = EVERYTHING, sql: str | None = None, version_ms: int
) -> SubscriptionData:
    """The subscription as a heartbeat carries it; `sql`, when given, counts instead of tags.

    Raises MessageError or FilterError.
    """
    return declared(subscription(topic, tags if sql is None else Sql(sql), version_ms=version_ms))


def declared(subscription: Subscription) -> SubscriptionData:
    """The wire form of a subscription, the same bytes whenever it is made."""
    return SubscriptionData(
        code_set=sorted(subscription.tags_codes or ()),
        expression_type=subscription.expression_type,
        expression=subscription.expression,
        sub_version=subscription.version,
        tags_set=sorted(subscription.tags),
        topic=subscription.topic,
    )

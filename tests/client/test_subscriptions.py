"""Subscriptions say on the wire what Java's client would say, and mistakes are told before anything is sent."""

from __future__ import annotations

import lzma
from pathlib import Path

import msgspec
import pytest

from fusee.client.subscriptions import Sql, declared, subscription, subscription_data, subscriptions
from fusee.errors import ConfigError, FilterError, MessageError
from fusee.filter.subscription import SQL92, TAG
from fusee.wire.bodies.heartbeat import HeartbeatData, SubscriptionData
from fusee.wire.lenient_json import dumps_fastjson
from tests.golden.filter import TagCase, tag_cases

GOLDEN = Path(__file__).parents[1] / "golden" / "wire"


class Exchange(msgspec.Struct):
    """A line of the golden files, as far as it is a heartbeat."""

    code: int
    role: str
    body: msgspec.Raw = msgspec.Raw()


def heartbeats(name: str) -> list[HeartbeatData]:
    lines = lzma.decompress((GOLDEN / f"{name}.jsonl.xz").read_bytes()).splitlines()
    exchanges = (msgspec.json.decode(line, type=Exchange) for line in lines)
    return [
        msgspec.json.decode(each.body, type=HeartbeatData)
        for each in exchanges
        if each.code == 34 and each.role == "request" and each.body
    ]


@pytest.mark.parametrize("case", [case for case in tag_cases() if case.given_type == TAG])
def test_subscription_data_is_what_java_makes_of_it(case: TagCase) -> None:
    if case.expression is None or (case.expression and not case.expression.strip()):
        with pytest.raises(FilterError, match="write 'A || B'"):
            subscription_data("orders", tags=case.given, version_ms=7)
        return
    data = subscription_data("orders", tags=case.given, version_ms=7)
    assert data == SubscriptionData(
        topic="orders",
        expression=case.expression,
        expression_type="TAG",
        tags_set=sorted(case.tags),
        code_set=sorted(case.codes),
        sub_version=7,
    )


@pytest.mark.parametrize("name", ["push", "lite"])
def test_declared_is_what_java_clients_wrote(name: str) -> None:
    written = [
        data for beat in heartbeats(name) for group in beat.consumer_data_set for data in group.subscription_data_set
    ]
    assert written
    for data in written:
        sql = data.expression if data.expression_type == SQL92 else None
        ours = subscription_data(data.topic, tags=data.expression, sql=sql, version_ms=data.sub_version)
        data.tags_set.sort()
        data.code_set.sort()
        assert dumps_fastjson(ours) == dumps_fastjson(data)


def test_subscription_data_of_sql_has_no_tags() -> None:
    data = subscription_data("orders", sql="amount > 3", version_ms=9)
    assert data == SubscriptionData(topic="orders", expression="amount > 3", expression_type="SQL92", sub_version=9)


def test_subscriptions_of_one_topic_means_everything() -> None:
    only = subscriptions("orders", version_ms=5)
    assert list(only) == ["orders"]
    assert only["orders"].expression == "*"
    assert only["orders"].tags_codes is None
    assert only["orders"].version == 5


def test_subscriptions_of_several_topics_share_the_expression() -> None:
    tags = iter(["paid", "refunded"])
    both = subscriptions(["orders", "refunds", "orders"], tags=tags, version_ms=5)
    assert list(both) == ["orders", "refunds"]
    assert {each.expression for each in both.values()} == {"paid || refunded"}
    assert both["refunds"].tags == {"paid", "refunded"}


def test_subscriptions_of_mapping_choose_for_each_topic() -> None:
    chosen = subscriptions({"a": "x || y", "b": ["x", "y"], "c": Sql("size > 3"), "d": None, "e": "*"}, version_ms=5)
    assert chosen["a"].tags == chosen["b"].tags == {"x", "y"}
    assert chosen["c"].expression_type == SQL92
    assert chosen["c"].predicate is not None
    assert chosen["d"].tags_codes is chosen["e"].tags_codes is None


def test_subscriptions_with_sql_apply_to_every_topic() -> None:
    both = subscriptions(("a", "b"), sql="size > 3", version_ms=5)
    assert [declared(each).expression_type for each in both.values()] == [SQL92, SQL92]


@pytest.mark.parametrize("topics", [[], {}, ()])
def test_subscriptions_without_topic_are_refused(topics: list[str]) -> None:
    with pytest.raises(ConfigError, match="no topic is given"):
        subscriptions(topics, version_ms=5)


def test_subscriptions_that_contradict_are_refused() -> None:
    with pytest.raises(ConfigError, match="not both"):
        subscriptions("a", tags="x", sql="y > 3", version_ms=5)
    with pytest.raises(ConfigError, match="for each topic"):
        subscriptions({"a": "x"}, tags="y", version_ms=5)


def test_subscription_with_mistake_is_refused_before_it_is_sent() -> None:
    with pytest.raises(FilterError, match="list of tags is empty"):
        subscriptions("a", tags=[], version_ms=5)
    with pytest.raises(FilterError, match="blank"):
        subscription("a", " \t", version_ms=5)
    with pytest.raises(FilterError):
        subscription("a", Sql("size >"), version_ms=5)
    with pytest.raises(FilterError, match="needs an expression"):
        subscription("a", Sql(""), version_ms=5)
    with pytest.raises(MessageError, match="illegal characters"):
        subscription("a topic", version_ms=5)

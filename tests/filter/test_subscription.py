"""Subscriptions, as parsed by us and as declared by clients."""

from __future__ import annotations

import pytest

from fusee.errors import FilterError
from fusee.filter import SQL92, TAG, Subscription, declared_subscription, parse_subscription
from tests.golden.filter import TagCase, tag_cases

MATCHING = b"a\x016\x02"


@pytest.mark.parametrize("case", tag_cases(), ids=lambda case: f"{case.given_type}-{case.given!r:.20}")
def test_parse_subscription_is_what_java_recorded(case: TagCase) -> None:
    if case.expression is None:
        with pytest.raises(FilterError):
            parse_subscription("topic", case.given, case.given_type)
        return
    subscription = parse_subscription("topic", case.given, case.given_type, 7)
    assert (subscription.topic, subscription.version) == ("topic", 7)
    assert (subscription.expression, subscription.tags) == (case.expression, case.tags)
    assert subscription.tags_codes == (None if case.expression == "*" else case.codes)
    assert subscription.predicate is None
    assert subscription.is_by_tag


def test_parse_subscription_of_sql_has_predicate_and_any_tag() -> None:
    subscription = parse_subscription("topic", "a > 5", SQL92, 9)
    assert (subscription.expression_type, subscription.tags_codes, subscription.version) == (SQL92, None, 9)
    assert not subscription.is_by_tag
    assert subscription.predicate is not None
    assert subscription.predicate(MATCHING)
    assert not subscription.predicate(b"a\x015\x02")


@pytest.mark.parametrize(
    ("expression", "expression_type"), [("a >", SQL92), ("", SQL92), ("a > 5", "SQL99"), ("*", "tag")]
)
def test_parse_subscription_when_not_understood_refuses(expression: str, expression_type: str) -> None:
    with pytest.raises(FilterError):
        parse_subscription("topic", expression, expression_type)


def test_equal_subscriptions_are_equal_whatever_their_predicates() -> None:
    first = Subscription("topic", "a > 5", SQL92, predicate=lambda _: True)
    assert first == Subscription("topic", "a > 5", SQL92, predicate=lambda _: False)
    assert first != Subscription("topic", "a > 5", SQL92, version=1)


def test_declared_codes_count_and_not_ours() -> None:
    declared = declared_subscription("topic", "A || B", TAG, tags=["A", "B"], codes=[65, 4711], version=3)
    assert declared == Subscription("topic", "A || B", TAG, frozenset("AB"), frozenset({65, 4711}), version=3)


def test_declared_without_codes_uses_tags_and_else_the_expression() -> None:
    assert declared_subscription("topic", "A || B", tags=["C"]).tags_codes == frozenset({67})
    assert declared_subscription("topic", "A || B").tags_codes == frozenset({65, 66})
    assert declared_subscription("topic", None, None).tags_codes is None


def test_declared_everything_ignores_codes() -> None:
    assert declared_subscription("topic", "*", codes=[1]).tags_codes is None


def test_declared_no_codes_at_all_matches_nothing() -> None:
    assert declared_subscription("topic", "A", codes=[]).tags_codes == frozenset()


def test_declared_class_filter_passes_everything() -> None:
    declared = declared_subscription("topic", "some.Filter", codes=[1], class_filter_mode=True)
    assert (declared.tags_codes, declared.predicate) == (None, None)


def test_declared_sql_has_predicate() -> None:
    declared = declared_subscription("topic", "a > 5", SQL92, codes=[], version=3)
    assert declared.predicate is not None
    assert declared.predicate(MATCHING)
    assert (declared.tags_codes, declared.fault) == (None, "")


@pytest.mark.parametrize(("expression", "expression_type"), [("a >", SQL92), ("a > 5", "SQL99"), ("||", TAG)])
def test_declared_when_not_understood_matches_nothing_and_says_why(expression: str, expression_type: str) -> None:
    declared = declared_subscription("topic", expression, expression_type, version=3)
    assert (declared.expression, declared.expression_type, declared.version) == (expression, expression_type, 3)
    assert declared.tags_codes == frozenset()
    assert declared.predicate is None
    assert declared.fault

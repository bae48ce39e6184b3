"""The real broker's filters decide as ours do, and as the golden files say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from fusee.errors import FilterError
from fusee.filter import compile_sql, parse_subscription
from tests.filter.expressions import EXPRESSIONS, SUBSCRIPTIONS, by_lot, property_strings
from tests.golden.filter import SqlCase, TagCase, sql_cases, tag_cases, write_sql_cases, write_tag_cases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.quick, pytest.mark.timeout(600)]

RECORD: Final = bool(os.environ.get("FUSEE_RECORD"))
LETTERS: Final = {True: "T", False: "F", None: "N", "error": "E"}


class FilterJudge:
    """The real filters, asked one subscription at a time."""

    def __init__(self, fleet: Fleet, runtime: Runtime) -> None:
        folder = fleet.folder("FilterJudge")
        command = runtime.command("fusee.interop.tools.FilterJudge", home_dir=folder, log_level="ERROR")
        self._dialogue = fleet.converse("FilterJudge", command, folder)

    def sql(self, expression: str, properties: Sequence[bytes]) -> SqlCase:
        self._dialogue.order(" ".join(["sql", _word(expression), *(f"x{each.hex()}" for each in properties)]))
        answer = self._dialogue.next_event()
        if answer["event"] == "rejected":
            return SqlCase(expression, None)
        return SqlCase(expression, "".join(LETTERS[value] for value in answer["values"]))

    def tags(self, given_type: str | None, given: str | None) -> TagCase:
        self._dialogue.order(f"tags {_word(given_type)} {_word(given)}")
        answer = self._dialogue.next_event()
        if answer["event"] == "rejected":
            return TagCase(given_type, given, None)
        return TagCase(given_type, given, answer["expression"], frozenset(answer["tags"]), frozenset(answer["codes"]))


def _word(text: str | None) -> str:
    return "-" if text is None else f"x{text.encode().hex()}"


@pytest.fixture(scope="module")
def judge(fleet: Fleet, current: Runtime) -> FilterJudge:
    return FilterJudge(fleet, current)


def test_golden_sql_is_what_java_says(judge: FilterJudge) -> None:
    if RECORD:
        properties = property_strings()
        write_sql_cases(properties, [judge.sql(each, properties) for each in (*EXPRESSIONS, *by_lot(1, 800))])
        sql_cases.cache_clear()
    properties, cases = sql_cases()
    assert [judge.sql(case.expression, properties) for case in cases] == cases


def test_golden_tags_are_what_java_says(judge: FilterJudge) -> None:
    if RECORD:
        write_tag_cases([judge.tags(*given) for given in SUBSCRIPTIONS])
        tag_cases.cache_clear()
    cases = tag_cases()
    assert [judge.tags(case.given_type, case.given) for case in cases] == cases


@pytest.mark.parametrize("seed", range(100, 104))
def test_expressions_by_lot_decide_alike(judge: FilterJudge, seed: int) -> None:
    properties = property_strings()
    for expression in by_lot(seed, 500):
        assert ours(expression, properties) == matches(judge.sql(expression, properties)), expression


def matches(case: SqlCase) -> list[bool] | None:
    return None if case.values is None else [value == "T" for value in case.values]


def ours(expression: str, properties: Sequence[bytes]) -> list[bool] | None:
    try:
        predicate = compile_sql(expression)
    except FilterError:
        return None
    return [predicate(each) for each in properties]


def test_subscriptions_are_understood_alike(judge: FilterJudge) -> None:
    for given_type, given in SUBSCRIPTIONS:
        case = judge.tags(given_type, given)
        try:
            subscription = parse_subscription("topic", given, given_type)
        except FilterError:
            assert case.expression is None
        else:
            assert (subscription.expression, subscription.tags) == (case.expression, case.tags)
            assert (subscription.tags_codes or frozenset()) == case.codes

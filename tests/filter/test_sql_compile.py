"""Compiled expressions decide as Java does, and as a plain reading of three-valued logic says."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fusee.errors import FilterError
from fusee.filter import compile_sql
from fusee.filter.sql_compile import compile_tree
from fusee.filter.sql_grammar import parse
from fusee.filter.sql_tree import DEPTH_MAX
from fusee.message.properties import encode_properties
from tests.filter.oracle import Clause, clauses
from tests.filter.oracle import properties as oracle_properties
from tests.golden.filter import sql_cases
from tests.message.strategies import untidy_properties


def test_every_expression_decides_as_java_recorded() -> None:
    properties, cases = sql_cases()
    assert len(cases) > 1000
    for case in cases:
        try:
            predicate = compile_sql(case.expression)
        except FilterError:
            assert case.values is None, f"Java takes {case.expression!r}"
            continue
        assert case.values is not None, f"Java refuses {case.expression!r}"
        for raw, value in zip(properties, case.values, strict=True):
            assert predicate(raw) is (value == "T"), f"{case.expression!r} of {raw!r} is {value}"


def test_recorded_cases_see_every_outcome() -> None:
    _, cases = sql_cases()
    assert {letter for case in cases for letter in case.values or "-"} == set("TFNE-")


@given(clauses, st.lists(oracle_properties, min_size=1, max_size=8))
def test_compiled_equals_plain_reading(clause: Clause, messages: list[dict[str, str]]) -> None:
    predicate = compile_sql(clause.sql)
    for message in messages:
        try:
            expected = clause.evaluate(message) is True
        except ValueError:
            expected = False
        assert predicate(encode_properties(message)) is expected


@given(untidy_properties | st.binary(max_size=40))
@example(b"\x02\x02a\x01")
@example(b"a\x01\xff\xfe")
def test_predicate_takes_any_bytes(raw: bytes) -> None:
    for expression in (
        "a > 5 OR b < a OR TAGS = '\ufffd'",
        "NOT (a = 1.5) AND a CONTAINS 'x'",
        "(a > 1 AND b > 1) OR a = b",
    ):
        assert compile_sql(expression)(raw) in (True, False)


@pytest.mark.parametrize(
    ("expression", "raw", "expected"),
    [
        # Java goes on behind a NULL, and a failure there spoils the whole although the other side of OR is TRUE.
        ("(b > 1 AND a > 1) OR TRUE", b"a\x01word\x02", False),
        ("(b = 'x' AND a = 'y') OR TRUE", b"a\x01word\x02", True),
        ("NOT (b > 1 OR a > 1) OR TRUE", b"a\x01word\x02", False),
        ("TRUE OR a > 1", b"a\x01word\x02", True),
        ("a > 1 OR TRUE", b"a\x01word\x02", False),
        ("FALSE AND a > 1 OR TRUE", b"a\x01word\x02", True),
    ],
)
def test_failure_counts_where_java_evaluates(expression: str, raw: bytes, expected: bool) -> None:
    assert compile_sql(expression)(raw) is expected


@pytest.mark.parametrize(
    "expression", ["a = '\ud800'", "a CONTAINS '\udfff'", "a IN ('\ud800', 'x')", "'\ud800' = 'x'"]
)
def test_half_of_a_surrogate_pair_matches_nothing(expression: str) -> None:
    predicate = compile_sql(expression)
    assert not predicate(b"a\x01\xed\xa0\x80\x02")
    assert not predicate(b"")


def test_expression_cannot_become_python() -> None:
    for text in ("'); import os; ('", "\\x02", "{value}", "%b", "'''\n'''"):
        quoted = text.replace("'", "''")
        for expression in (f"a = '{quoted}'", f"a CONTAINS '{quoted}'", f"a IN ('{quoted}')", f"'{quoted}' = a"):
            assert compile_sql(expression)(encode_properties({"a": text}))
    assert compile_sql("raw = 'x' AND framed = 'x' AND find = 'x' AND predicate IS NULL")(
        encode_properties({"raw": "x", "framed": "x", "find": "x"})
    )


@pytest.mark.parametrize(
    ("opening", "core", "closing"),
    [
        ("NOT (", "a > 1", ")"),
        ("(b > 1 AND ", "a > 1", ") IS NOT NULL"),
        ("(", "a > 1", ") = (b > 1)"),
        ("-(", "a > 1", ") IS NULL"),
        ("NOT (b > 1 OR c > 2 AND ", "a > 1", ")"),
        ("(b > 1 OR NOT (c > 2 AND ", "a > 1", ")) IS NULL OR c > 3"),
    ],
)
def test_deepest_nesting_compiles(opening: str, core: str, closing: str) -> None:
    levels = 0
    while (node := parse(opening * levels + core + closing * levels)).depth + 4 <= DEPTH_MAX:
        levels += 1
    assert levels >= DEPTH_MAX // 5
    assert compile_tree(node)(b"a\x012\x02b\x013\x02") in (True, False)


def test_longest_chain_compiles() -> None:
    terms = [f"a = 'value{number}'" for number in range(1000)]
    for word in (" OR ", " AND "):
        predicate = compile_sql(word.join(terms))
        assert predicate(b"a\x01value999\x02") is (word == " OR ")
    assert compile_sql(f"({' AND '.join(f'a <> {number}' for number in range(1000))}) OR b = 'x'")(b"a\x01-1\x02")

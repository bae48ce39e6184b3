"""What is an expression and what is none, and what is said about the latter."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import FilterError
from fusee.filter.sql_grammar import LENGTH_MAX, parse
from fusee.filter.sql_tree import DEPTH_MAX, NODES_MAX, Junction, Not
from tests.filter.expressions import EXPRESSIONS

PIECES = sorted({word for text in EXPRESSIONS for word in text.split(" ")})


@given(
    st.one_of(
        st.text(), st.lists(st.sampled_from(PIECES)).map(" ".join), st.lists(st.sampled_from(PIECES)).map("".join)
    )
)
def test_parse_of_any_text_gives_tree_or_filter_error(text: str) -> None:
    with contextlib.suppress(FilterError):
        assert parse(text).size <= NODES_MAX


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a = = 1", "wrong at column 5: '=' cannot stand there"),
        ("a = 1 AND\n  b >", "ends too early"),
        ("a = 1 AND\n  b ? 2", "wrong at line 2, column 5: '\\?' begins no word"),
        ("a = 'eu", "wrong at column 5: the text that begins there has no end"),
        ("a != 1", "write <> for unequal"),
        ("a = NULL", "write IS NULL"),
        ("a > 'eu'", "the text 'eu' cannot be compared with >"),
        ("(a = 1) > 2", "a comparison cannot be compared with >"),
        ("TRUE = 5", "TRUE cannot be compared with the number 5"),
        ("5", "the number 5 is neither true nor false"),
        ("-a", "the negation of something that is no number is neither true nor false"),
        ("a BETWEEN 5 AND 1", "write the smaller number first"),
        ("a BETWEEN NULL AND 1", "BETWEEN takes no NULL"),
        ("'a' IN ('a')", "the text 'a' cannot be looked for with IN"),
        ("NULL IN ('a')", "NULL cannot be looked for"),
        ("a = 9223372036854775808", "above 9223372036854775807"),
        ("a = 0.0", "write zero without a point"),
        ("a = 1e999", "is not within"),
        ("", "ends too early"),
        (f"a = {'9' * 5000}", r"9\.\.\. is above"),
        ("a = 1 OR 'x" + "y" * 100 + "'", r"yyy\.\.\. is neither true nor false"),
    ],
)
def test_complaint_names_cause_and_place(text: str, complaint: str) -> None:
    with pytest.raises(FilterError, match=complaint):
        parse(text)


def test_parse_when_text_too_long_refuses() -> None:
    padding = " " * (LENGTH_MAX - len("a = 1"))
    parse("a = 1" + padding)
    with pytest.raises(FilterError, match=f"{LENGTH_MAX + 1} characters, the limit is {LENGTH_MAX}"):
        parse("a = 1 " + padding)


def test_parse_when_nested_too_deep_refuses() -> None:
    parse("NOT " * (DEPTH_MAX - 2) + "a")
    with pytest.raises(FilterError, match=f"nested more than {DEPTH_MAX} levels"):
        parse("NOT " * (DEPTH_MAX - 1) + "a")


def test_parse_when_too_many_nodes_refuses() -> None:
    terms = [f"a={number % 10}" for number in range(NODES_MAX)]
    assert parse(" OR ".join(terms[: NODES_MAX // 3])).size <= NODES_MAX
    with pytest.raises(FilterError, match=f"more than {NODES_MAX} operands"):
        parse(" OR ".join(terms[: NODES_MAX // 3 + 1]))


def test_parse_counts_what_between_doubles() -> None:
    text = "a"
    for _ in range(20):
        text = f"-({text} BETWEEN 1 AND 2)"
    with pytest.raises(FilterError, match="more than"):
        parse(f"{text} IS NULL")


def test_parentheses_alone_cost_no_depth() -> None:
    assert parse("(" * 1000 + "a = 1" + ")" * 1000).depth == 2


@pytest.mark.parametrize(
    "text", ["((a OR b) OR c) OR d", "a OR (b OR (c OR d))", "(a OR b) OR (c OR d)", "a OR b OR c OR d"]
)
def test_chain_is_one_junction_however_it_is_bracketed(text: str) -> None:
    node = parse(text)
    assert isinstance(node, Junction)
    assert (len(node.operands), node.size, node.depth) == (4, 9, 3)


def test_deeply_bracketed_chain_is_no_depth() -> None:
    node = parse("(" * 500 + "a" + "".join(" AND b)" for _ in range(500)))
    assert isinstance(node, Junction)
    assert len(node.operands) == 501


def test_mixed_junctions_stay_apart() -> None:
    node = parse("NOT (a AND b OR c AND d)")
    assert isinstance(node, Not)
    assert isinstance(node.operand, Junction)
    assert not node.operand.is_and
    assert [isinstance(each, Junction) and each.is_and for each in node.operand.operands] == [True, True]

"""Tag expressions mean what Java's FilterAPI makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import FilterError
from fusee.filter.tags import EXPRESSION_LENGTH_MAX, parse_tags
from fusee.message.hashing import tags_code


@given(st.lists(st.text(st.characters(exclude_characters="|", exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_codes_are_those_of_stored_tags(tags: list[str]) -> None:
    choice = parse_tags(" || ".join(f"<{tag}>" for tag in tags))
    assert choice.tags == {f"<{tag}>" for tag in tags}
    assert choice.codes == frozenset(tags_code(f"<{tag}>".encode()) for tag in tags)


@given(st.text(st.sampled_from("|aB *\t\x00é"), max_size=12))
def test_pieces_are_tags_without_blanks(expression: str) -> None:
    try:
        choice = parse_tags(expression)
    except FilterError:
        assert expression
        assert not expression.replace("||", "")
        return
    assert choice.tags <= {piece.strip(" \t\x00") for piece in expression.split("||")}
    assert "" not in choice.tags
    assert (choice.codes is None) is (expression in ("", "*"))


def test_parse_tags_when_too_long_refuses() -> None:
    parse_tags("a" * EXPRESSION_LENGTH_MAX)
    with pytest.raises(FilterError, match="the limit is"):
        parse_tags("a" * (EXPRESSION_LENGTH_MAX + 1))

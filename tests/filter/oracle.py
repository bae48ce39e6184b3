"""SQL92 expressions beside what they mean: a plain reading of three-valued logic to hold the compiled one against.

A `Clause` is the text of an expression and a function from properties to its value, built together. Nothing here is
quick or short-circuits except where the language says so; a step that fails raises ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

NAMES: Final = ("a", "b", "c")
TEXTS: Final = ("1", "2", "-2", "3000000000", "2.5", "-2.5", "1e1", "x", "xy", "true", "FALSE", "é", "1.0")

properties = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS))


@dataclass(frozen=True)
class Number:
    """A number with Java's type, which decides how text beside it is read."""

    value: float
    type: str


Value = str | bool | Number | None


@dataclass(frozen=True)
class Clause:
    """An expression and what it means."""

    sql: str
    evaluate: Callable[[Mapping[str, str]], Value]

    def __repr__(self) -> str:
        return self.sql


def read(text: str, kind: str) -> float:
    if kind == "double":
        if not re.fullmatch(r"[+-]?\d+(\.\d*)?(e\d+)?", text):
            raise ValueError(text)
        return float(text)
    if not re.fullmatch(r"[+-]?\d+", text):
        raise ValueError(text)
    number = int(text)
    if abs(number) >= (2**31 if kind == "int" else 2**63):
        raise ValueError(text)
    return number


def read_both(left: Value, right: Value) -> tuple[float, float]:
    """Two operands as numbers: text takes the type of the number beside it, and is a double beside text."""
    if isinstance(left, str):
        left = Number(read(left, right.type if isinstance(right, Number) else "double"), "")
    assert isinstance(left, Number)
    if isinstance(right, str):
        right = Number(read(right, left.type or "double"), "")
    assert isinstance(right, Number)
    return left.value, right.value


def are_equal(left: Value, right: Value) -> bool | None:
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if (type(left), type(right)) == (bool, str):
        raise ValueError("Java casts the boolean to text")
    if isinstance(left, str) and isinstance(right, bool):
        return (left.lower() == "true") is right
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    first, second = read_both(left, right)
    return first == second


def are_ordered(symbol: str, left: Value, right: Value) -> bool | None:
    if left is None or right is None:
        return None
    first, second = read_both(left, right)
    return {">": first > second, ">=": first >= second, "<": first < second, "<=": first <= second}[symbol]


def all_of(values: list[Callable[[], Value]]) -> bool | None:
    unknown = False
    for value in values:
        found = value()
        assert found is None or isinstance(found, bool)
        if found is False:
            return False
        unknown = unknown or found is None
    return None if unknown else True


def opposite(value: Value) -> bool | None:
    assert value is None or isinstance(value, bool)
    return None if value is None else not value


def names() -> st.SearchStrategy[Clause]:
    return st.sampled_from([Clause(name, lambda message, name=name: message.get(name)) for name in NAMES])  # type: ignore[misc]


def literal(sql: str, value: Value) -> Clause:
    return Clause(sql, lambda _: value)


TEXT_LITERALS: Final = [literal(f"'{text}'", text) for text in TEXTS]
NUMBERS: Final = [
    *(literal(str(number), Number(number, "int")) for number in (0, 1, 2, -2)),
    *(literal(str(number), Number(number, "long")) for number in (3_000_000_000, -3_000_000_000)),
    *(literal(str(number), Number(number, "double")) for number in (1.0, 2.5, -2.5, 3e9)),
]
# Not at the left of `=`: Java refuses them beside literals of other types.
BOOLEANS: Final = [literal("TRUE", True), literal("FALSE", False)]

comparable = st.one_of(names(), st.sampled_from(NUMBERS))
texts = st.sampled_from(TEXTS)


@st.composite
def equality(draw: st.DrawFn, truths: st.SearchStrategy[Clause]) -> Clause:
    bracketed = truths.map(lambda clause: Clause(f"({clause.sql})", clause.evaluate))
    left = draw(st.one_of(names(), st.sampled_from([*NUMBERS, *TEXT_LITERALS]), bracketed))
    right = draw(st.one_of(names(), st.sampled_from([*NUMBERS, *TEXT_LITERALS, *BOOLEANS]), bracketed))
    if draw(st.booleans()):
        return Clause(f"{left} = {right}", lambda message: are_equal(left.evaluate(message), right.evaluate(message)))
    return Clause(
        f"{left} <> {right}", lambda message: opposite(are_equal(left.evaluate(message), right.evaluate(message)))
    )


@st.composite
def ordering(draw: st.DrawFn) -> Clause:
    left, symbol, right = draw(comparable), draw(st.sampled_from([">", ">=", "<", "<="])), draw(comparable)
    return Clause(
        f"{left} {symbol} {right}",
        lambda message: are_ordered(symbol, left.evaluate(message), right.evaluate(message)),
    )


@st.composite
def between(draw: st.DrawFn) -> Clause:
    value, low, high = draw(comparable), draw(names()), draw(comparable)

    def inside(message: Mapping[str, str]) -> bool | None:
        number, least, most = (clause.evaluate(message) for clause in (value, low, high))
        return all_of([lambda: are_ordered(">=", number, least), lambda: are_ordered("<=", number, most)])

    def outside(message: Mapping[str, str]) -> bool | None:
        number, least, most = (clause.evaluate(message) for clause in (value, low, high))
        return opposite(
            all_of(
                [
                    lambda: opposite(are_ordered("<", number, least)),
                    lambda: opposite(are_ordered(">", number, most)),
                ]
            )
        )

    if draw(st.booleans()):
        return Clause(f"{value} BETWEEN {low} AND {high}", inside)
    return Clause(f"{value} NOT BETWEEN {low} AND {high}", outside)


@st.composite
def membership(draw: st.DrawFn) -> Clause:
    name, list_of_texts, negated = draw(names()), draw(st.lists(texts, min_size=1, max_size=6)), draw(st.booleans())

    def evaluate(message: Mapping[str, str]) -> bool | None:
        value = name.evaluate(message)
        return None if value is None else (value in list_of_texts) is not negated

    listed = ", ".join(f"'{text}'" for text in list_of_texts)
    return Clause(f"{name} {'NOT ' if negated else ''}IN ({listed})", evaluate)


@st.composite
def search(draw: st.DrawFn) -> Clause:
    name, text, negated = draw(names()), draw(texts), draw(st.booleans())
    verb = draw(st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]))
    find = {"CONTAINS": str.__contains__, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith}[verb]

    def evaluate(message: Mapping[str, str]) -> bool:
        value = name.evaluate(message)
        return isinstance(value, str) and find(value, text) is not negated

    return Clause(f"{name} {'NOT ' if negated else ''}{verb} '{text}'", evaluate)


@st.composite
def absence(draw: st.DrawFn, truths: st.SearchStrategy[Clause]) -> Clause:
    clause = draw(st.one_of(names(), truths.map(lambda each: Clause(f"({each.sql})", each.evaluate))))
    if draw(st.booleans()):
        return Clause(f"{clause} IS NULL", lambda message: clause.evaluate(message) is None)
    return Clause(f"{clause} IS NOT NULL", lambda message: clause.evaluate(message) is not None)


def presence(name: Clause) -> Clause:
    """A property in the place of a truth value is never true. A property in brackets alone is still a text."""
    return Clause(name.sql, lambda message: None if name.evaluate(message) is None else False)


def compound(truths: st.SearchStrategy[Clause]) -> st.SearchStrategy[Clause]:
    operands = st.one_of(truths, truths, names().map(presence))
    several = st.lists(operands, min_size=2, max_size=4)

    def conjunction(clauses: list[Clause]) -> Clause:
        return Clause(
            " AND ".join(f"({clause})" for clause in clauses),
            lambda message: all_of([lambda each=each: each.evaluate(message) for each in clauses]),  # type: ignore[misc]
        )

    def disjunction(clauses: list[Clause]) -> Clause:
        return Clause(
            " OR ".join(f"({clause})" for clause in clauses),
            lambda message: opposite(
                all_of([lambda each=each: opposite(each.evaluate(message)) for each in clauses])  # type: ignore[misc]
            ),
        )

    def negation(clause: Clause) -> Clause:
        return Clause(f"NOT ({clause})", lambda message: opposite(clause.evaluate(message)))

    return st.one_of(
        several.map(conjunction), several.map(disjunction), operands.map(negation), equality(truths), absence(truths)
    )


simple: st.SearchStrategy[Clause] = st.one_of(
    ordering(),
    equality(st.just(literal("NULL IS NULL", True))),
    between(),
    membership(),
    search(),
    st.sampled_from([literal("TRUE AND TRUE", True), literal("NOT TRUE", False), literal("NOT NULL", None)]),
)
clauses: st.SearchStrategy[Clause] = st.recursive(simple, compound, max_leaves=12)

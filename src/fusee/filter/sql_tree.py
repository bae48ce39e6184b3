"""The tree of an SQL92 expression, and what may be put together in it.

Theory of operation
-------------------
A node stands for a value: TRUE, FALSE, a number, text, or NULL for what is not there. Properties are always text.
The functions below build nodes bottom-up and refuse, with FilterError, what Java's classes in
org.apache.rocketmq.filter.expression refuse. Some of their rules are visible in the tree:

* Numbers come from literals only. An integer literal is an `int32` or an `int64`, which decides how the text of a
  property beside it is read.
* A negated literal is a number, but not a literal for the checks. The negation of anything else is NULL
  (`Nothing`), once its operand has been evaluated.
* A property where a truth value is needed is never TRUE: FALSE when the message has it, else NULL (`Presence`).
* `x IS NULL` is `x = NULL`; `x BETWEEN a AND b` is `x >= a AND x <= b` with x twice.
* AND and OR are associative here, errors and NULL included, so nested ones of a kind are one `Junction`.

Each node knows its size (nodes below and itself, shared ones counted each time) and depth. Both are bounded, because
the code made from the tree grows with the one and nests with the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

from fusee.errors import FilterError
from fusee.filter.sql_values import INT32_MAX, INT64_MAX, number_order

if TYPE_CHECKING:
    from collections.abc import Sequence

NODES_MAX: Final = 4096
DEPTH_MAX: Final = 32

OrderSymbol = Literal[">", ">=", "<", "<="]
SearchVerb = Literal["CONTAINS", "STARTSWITH", "ENDSWITH"]


class Kind(Enum):
    """What a value is when it is not NULL."""

    TEXT = "text"
    BOOLEAN = "boolean"
    INT32 = "int32"
    INT64 = "int64"
    DOUBLE = "double"
    NULL = "null"
    """Never anything but NULL."""

    @property
    def is_number(self) -> bool:
        return self in (Kind.INT32, Kind.INT64, Kind.DOUBLE)


@dataclass(slots=True)
class Node:
    """Something that has a value for each message."""

    size: int = field(default=1, init=False)
    depth: int = field(default=1, init=False)

    @property
    def kind(self) -> Kind:
        return Kind.BOOLEAN

    @property
    def below(self) -> tuple[Node, ...]:
        """The operands, from left to right."""
        return ()

    def __post_init__(self) -> None:
        if self.below:
            self.measure(1 + sum(node.size for node in self.below), 1 + max(node.depth for node in self.below))

    def measure(self, size: int, depth: int) -> None:
        """Raises FilterError when the node is too large or too deep."""
        if size > NODES_MAX:
            raise FilterError(
                f"the SQL92 expression has more than {NODES_MAX} operands and operators; write lists of values with IN"
            )
        if depth > DEPTH_MAX:
            raise FilterError(
                f"the SQL92 expression is nested more than {DEPTH_MAX} levels deep; write it with fewer parentheses"
            )
        self.size = size
        self.depth = depth


@dataclass(slots=True)
class Constant(Node):
    """A literal, or what is known before any message is seen: no literal for the checks then."""

    value: str | float | bool | None
    value_kind: Kind
    literal: bool = True

    @property
    def kind(self) -> Kind:
        return self.value_kind


@dataclass(slots=True)
class Property(Node):
    """The text of a property."""

    name: str

    @property
    def kind(self) -> Kind:
        return Kind.TEXT


@dataclass(slots=True)
class Nothing(Node):
    """The negation of what is no number."""

    operand: Node

    @property
    def below(self) -> tuple[Node, ...]:
        return (self.operand,)

    @property
    def kind(self) -> Kind:
        return Kind.NULL


@dataclass(slots=True)
class Presence(Node):
    """A property as a truth value."""

    operand: Property

    @property
    def below(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(slots=True)
class Equal(Node):
    """`left = right`."""

    left: Node
    right: Node

    @property
    def below(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(slots=True)
class Order(Node):
    """`left < right` and its like."""

    symbol: OrderSymbol
    left: Node
    right: Node

    @property
    def below(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(slots=True)
class Membership(Node):
    """`operand IN (texts)`."""

    operand: Property
    texts: frozenset[str]

    @property
    def below(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(slots=True)
class Search(Node):
    """`operand [NOT] CONTAINS text` and its like, of which both forms are FALSE when there is no text to look into."""

    verb: SearchVerb
    operand: Node
    text: str
    negated: bool

    @property
    def below(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(slots=True)
class Junction(Node):
    """AND or OR of two or more truth values; `junction` takes its measure."""

    is_and: bool
    operands: tuple[Node, ...]

    @property
    def below(self) -> tuple[Node, ...]:
        return self.operands

    def __post_init__(self) -> None:
        pass


@dataclass(slots=True)
class Not(Node):
    """The opposite of a truth value."""

    operand: Node

    @property
    def below(self) -> tuple[Node, ...]:
        return (self.operand,)


NULL: Final = Constant(None, Kind.NULL)
TRUE: Final = Constant(True, Kind.BOOLEAN)
FALSE: Final = Constant(False, Kind.BOOLEAN)


def integer(digits: str) -> Constant:
    """An integer literal without its suffix."""
    # Java parses with a check; Python would first spend quadratic time on thousands of digits.
    value = int(digits) if len(digits) <= 19 else INT64_MAX + 1
    if value > INT64_MAX:
        raise FilterError(f"the number {_shown(digits)} is above {INT64_MAX}; write it as {_shown(digits)}.0")
    return Constant(value, Kind.INT32 if value <= INT32_MAX else Kind.INT64)


def floating(digits: str) -> Constant:
    """A floating point literal; Java allows the positive range of a double only."""
    value = float(digits)
    if not 0 < value < float("inf"):
        raise FilterError(
            f"the number {_shown(digits)} is not within 4.9E-324 and 1.7976931348623157E308; "
            "write zero without a point: 0"
        )
    return Constant(value, Kind.DOUBLE)


def truth(node: Node) -> Node:
    """The node as a truth value."""
    if isinstance(node, Property):
        return Presence(node)
    if not _is_truth_value(node):
        raise FilterError(f"{describe(node)} is neither true nor false; compare it with something")
    return node


def negate(node: Node) -> Node:
    """`- node`."""
    if isinstance(node, Constant) and node.kind.is_number:
        assert isinstance(node.value, (int, float))
        return Constant(-node.value, node.kind, literal=False)
    return Nothing(node)


def opposite(node: Node) -> Node:
    """`NOT node`."""
    return Not(truth(node))


def junction(nodes: Sequence[Node], *, is_and: bool) -> Node:
    """The nodes joined by AND or OR."""
    operands: list[Node] = []
    size = depth = 1
    for node in map(truth, nodes):
        if isinstance(node, Junction) and node.is_and == is_and:
            # Adding up its operands once more would take quadratic time for `((a OR b) OR c) OR d`.
            operands += node.operands
            size += node.size - 1
            depth = max(depth, node.depth)
        else:
            operands.append(node)
            size += node.size
            depth = max(depth, node.depth + 1)
    joined = Junction(is_and, tuple(operands))
    joined.measure(size, depth)
    return joined


def equal(left: Node, right: Node) -> Node:
    """`left = right`."""
    for side in (left, right):
        if _is_literal(side) and side.kind is Kind.NULL:
            raise FilterError("nothing equals NULL; write IS NULL or IS NOT NULL")
    both_literal = _is_literal(left) and _is_literal(right)
    if both_literal and left.kind is Kind.BOOLEAN and right.kind is not Kind.BOOLEAN:
        raise FilterError(f"{describe(left)} cannot be compared with {describe(right)}")
    return Equal(left, right)


def is_null(node: Node) -> Node:
    """`node IS NULL`."""
    return Equal(node, NULL)


def order(left: Node, symbol: OrderSymbol, right: Node) -> Node:
    """`left symbol right`."""
    for side in (left, right):
        if (_is_literal(side) and not side.kind.is_number) or _is_truth_value(side):
            raise FilterError(f"{describe(side)} cannot be compared with {symbol}, which takes properties and numbers")
    return Order(symbol, left, right)


def between(node: Node, low: Node, high: Node) -> Node:
    """`node BETWEEN low AND high`."""
    if isinstance(low, Constant) and isinstance(high, Constant) and low.literal and high.literal:
        start, end = low.value, high.value
        if start is None or end is None:
            raise FilterError("BETWEEN takes no NULL; write two numbers")
        if low.kind.is_number and high.kind.is_number:
            assert isinstance(start, (int, float))
            assert isinstance(end, (int, float))
            if number_order(end, start) < 0:
                raise FilterError(f"nothing is BETWEEN {start} AND {end}; write the smaller number first")
    return junction([order(node, ">=", low), order(node, "<=", high)], is_and=True)


def not_between(node: Node, low: Node, high: Node) -> Node:
    """`node NOT BETWEEN low AND high`."""
    return junction([order(node, "<", low), order(node, ">", high)], is_and=False)


def membership(node: Node, texts: Sequence[str], *, negated: bool) -> Node:
    """`node [NOT] IN (texts)`."""
    if not isinstance(node, Property):
        raise FilterError(f"{describe(node)} cannot be looked for with IN, which takes a property to its left")
    inside = Membership(node, frozenset(texts))
    return Not(inside) if negated else inside


def search(node: Node, verb: SearchVerb, text: str, *, negated: bool) -> Node:
    """`node [NOT] verb text`."""
    if not text or (isinstance(node, Constant) and not isinstance(node.value, str)):
        return _known(False)
    if isinstance(node, Constant):
        assert isinstance(node.value, str)
        found = {"CONTAINS": str.__contains__, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith}[verb]
        return _known(found(node.value, text) is not negated)
    return Search(verb, node, text, negated)


def _known(value: bool) -> Constant:
    return Constant(value, Kind.BOOLEAN, literal=False)


def describe(node: Node) -> str:
    """The node in a few words, for messages."""
    if isinstance(node, Property):
        return f"the property {_shown(node.name)}"
    if isinstance(node, Constant):
        match node.kind:
            case Kind.NULL:
                return "NULL"
            case Kind.BOOLEAN:
                return str(node.value).upper()
            case Kind.TEXT:
                return f"the text {_shown(repr(node.value))}"
            case _:
                return f"the number {node.value}"
    if isinstance(node, Nothing):
        return "the negation of something that is no number"
    return "a comparison"


def _is_literal(node: Node) -> bool:
    return isinstance(node, Constant) and node.literal


def _is_truth_value(node: Node) -> bool:
    if isinstance(node, Constant):
        return node.kind in (Kind.BOOLEAN, Kind.NULL)
    return not isinstance(node, (Property, Nothing))


def _shown(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."

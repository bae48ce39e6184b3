r"""SQL92 expressions as Python functions over raw properties.

Theory of operation
-------------------
The tree of an expression becomes the source of one function, which Python compiles. The source consists of fixed
pieces, numbered names and integers; texts, names of properties and doubles are handed over beside it, so that
nothing of an expression is ever read as Python.

Logic has three values, written True, False and None (NULL). A message matches when the whole is TRUE and no step
has failed, as a comparison of a word with a number does. A node can be written in two ways:

* `value`: which of the three it is;
* `when` TRUE, or `when` FALSE: whether it is that. This is shorter and quicker. It may stop an AND at a NULL, where
  Java goes on because a later operand may be FALSE. One sees a difference only if a later operand fails and
  the failure counts, because another part could still turn out TRUE: on the left of an OR, for example. In such
  places (`strict`) the value is written out, unless nothing that is skipped can fail.

Python's own limit here is that of nested parentheses (200), of which a level of the tree takes two at most.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Final, cast

from fusee.filter import sql_values
from fusee.filter.sql_tree import (
    Constant,
    Equal,
    Junction,
    Kind,
    Membership,
    Node,
    Not,
    Nothing,
    Order,
    Presence,
    Property,
    Search,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fusee.filter.sql import Predicate
    from fusee.filter.sql_tree import OrderSymbol, SearchVerb

_READERS: Final[dict[Kind, Callable[[bytes], float]]] = {
    Kind.INT32: sql_values.int32,
    Kind.INT64: sql_values.int64,
    Kind.DOUBLE: sql_values.double,
}
_MIRRORED: Final[dict[OrderSymbol, OrderSymbol]] = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
# NaN is above every number for Java, and in no order for Python.
_DOUBLE_ORDERS: Final[dict[OrderSymbol, str]] = {
    ">": "(not {value} <= {number})",
    ">=": "(not {value} < {number})",
    "<": "({value} < {number})",
    "<=": "({value} <= {number})",
}
_SEARCHES: Final[dict[SearchVerb, str]] = {
    "CONTAINS": "({text} in {value})",
    "STARTSWITH": "{value}.startswith({text})",
    "ENDSWITH": "{value}.endswith({text})",
}


def compile_tree(node: Node) -> Predicate:
    """The predicate of a tree whose root is a truth value."""
    return _Writer(node).predicate()


def can_fail(node: Node) -> bool:
    """Whether some message could make the evaluation of this node fail."""
    match node:
        case Equal(left=left, right=right) if _equality_can_fail(left.kind, right.kind):
            return True
        case Order(left=left, right=right) if Kind.TEXT in (left.kind, right.kind):
            return True
        case _:
            return any(map(can_fail, node.below))


def _equality_can_fail(left: Kind, right: Kind) -> bool:
    if left is Kind.TEXT:
        return right.is_number
    return right is Kind.TEXT and (left.is_number or left is Kind.BOOLEAN)


def _equality(left: Kind, right: Kind) -> Callable[..., bool]:
    """What decides whether two values of these kinds, neither of them NULL, are equal."""
    if left.is_number and right.is_number:
        return sql_values.same_number
    if left is Kind.TEXT and right.is_number:
        read = _READERS[right]
        return lambda text, number: read(text) == number
    if left.is_number and right is Kind.TEXT:
        read = _READERS[left]
        return lambda number, text: read(text) == number
    match left, right:
        case Kind.TEXT, Kind.TEXT:
            return sql_values.same_text
        case Kind.TEXT, Kind.BOOLEAN:
            return lambda text, value: sql_values.boolean(text) is value
        case Kind.BOOLEAN, Kind.TEXT:
            return sql_values.refuse
        case Kind.BOOLEAN, Kind.BOOLEAN:
            return is_
        case _:
            return sql_values.never_same


def _is_plain(text: str) -> bool:
    """Whether the raw bytes of a property are this text for Java exactly if they are its UTF-8 form.

    They are not for text with U+FFFD, which malformed bytes read as, and with halves of surrogate pairs.
    """
    return "\ufffd" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _properties(node: Node) -> Iterator[str]:
    if isinstance(node, Property):
        yield node.name
    for operand in node.below:
        yield from _properties(operand)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A test of one property: how to find it, the variable that then holds it, and what its absence means."""

    lookup: str
    variable: str
    test: str
    absent: bool | None

    def when(self, wanted: bool) -> str:
        test = self.test if wanted else f"not {self.test}"
        if self.absent is wanted:
            return f"(({self.variable} := {self.lookup}) is None or {test})"
        return f"(({self.variable} := {self.lookup}) is not None and {test})"

    def value(self) -> str:
        return f"({self.absent} if ({self.variable} := {self.lookup}) is None else {self.test})"


class _Writer:
    """Writes the source of one predicate."""

    def __init__(self, node: Node) -> None:
        self._names: dict[str, object] = {
            name: getattr(sql_values, name)
            for name in (
                *("boolean", "decoded", "double", "equal", "find", "int32", "int64"),
                *("nothing", "number_order", "refuse", "text_order"),
            )
        }
        self._variables = 0
        self._fetches: list[str] = []
        self._lookups: dict[str, str] = {}
        for name, uses in Counter(_properties(node)).items():
            needle = self._constant(b"\x02%b\x01" % name.encode())
            lookup = f"find(framed, {needle})"
            # What is used once is looked for where it is used, if it comes to that.
            if uses > 1:
                variable = self._variable()
                self._fetches.append(f"    {variable} = {lookup}")
                lookup = variable
            self._lookups[name] = lookup
        self._condition = self._when(node, True, strict=False)

    def predicate(self) -> Predicate:
        source = [
            "def predicate(raw):",
            r"    framed = b'\x02%b\x02' % raw",
            *self._fetches,
            "    try:",
            f"        return {self._condition}",
            "    except ValueError:",
            "        return False",
        ]
        exec(compile("\n".join(source), "<SQL92 expression>", "exec"), self._names)
        return cast("Predicate", self._names["predicate"])

    def _variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def _constant(self, value: object) -> str:
        name = f"k{len(self._names)}"
        self._names[name] = value
        return name

    def _when(self, node: Node, wanted: bool, *, strict: bool) -> str:
        match node:
            case Constant(value=value):
                return str(value is wanted)
            case Not(operand=operand):
                return self._when(operand, not wanted, strict=strict)
            case Presence(operand=operand):
                return "False" if wanted else f"({self._operand(operand)} is not None)"
            case Equal(left=Property() as left, right=Constant(value=None)):
                return f"({self._operand(left)} is {'None' if wanted else 'not None'})"
            case Junction(is_and=is_and, operands=operands) if is_and is wanted:
                if strict and any(map(can_fail, operands[1:])):
                    return f"({self._value(node)} is {wanted})"
                return f"({' and '.join([self._when(each, wanted, strict=strict) for each in operands])})"
            case Junction(operands=operands):
                pieces = [self._when(each, wanted, strict=True) for each in operands[:-1]]
                pieces.append(self._when(operands[-1], wanted, strict=strict))
                return f"({' or '.join(pieces)})"
            case _:
                leaf = self._leaf(node)
                return leaf.when(wanted) if leaf is not None else f"({self._value(node)} is {wanted})"

    def _value(self, node: Node) -> str:
        leaf = self._leaf(node)
        if leaf is not None:
            return leaf.value()
        match node:
            case Not(operand=operand):
                variable = self._variable()
                return f"(None if ({variable} := {self._value(operand)}) is None else not {variable})"
            case Presence(operand=operand):
                return f"(None if {self._operand(operand)} is None else False)"
            case Junction(is_and=is_and, operands=operands):
                decisive = not is_and
                variables = [self._variable() for _ in operands]
                steps = [
                    f"({variable} := {self._value(each)}) is {decisive}"
                    for variable, each in zip(variables, operands, strict=True)
                ]
                unknown = f"None in ({', '.join(variables)})"
                return f"({decisive} if {' or '.join(steps)} else None if {unknown} else {is_and})"
            case Equal(left=left, right=right):
                same = self._constant(_equality(left.kind, right.kind))
                return f"equal({self._operand(left)}, {self._operand(right)}, {same})"
            case Order(symbol=symbol, left=left, right=right):
                first, second = self._variable(), self._variable()
                absent = f"({first} := {self._operand(left)}) is None or ({second} := {self._operand(right)}) is None"
                compare = "text_order" if left.kind is Kind.TEXT else "number_order"
                return f"(None if {absent} else {compare}({first}, {second}) {symbol} 0)"
            case Search(operand=operand):
                # There is no text to look into, but evaluating the operand may fail.
                return f"(nothing({self._operand(operand)}) is not None)"
            case _:
                return self._operand(node)

    def _operand(self, node: Node) -> str:
        match node:
            case Property(name=name):
                return self._lookups[name]
            case Nothing(operand=operand):
                return f"nothing({self._operand(operand)})" if can_fail(operand) else "None"
            case Constant(value=float() as number):
                return self._constant(number)
            case Constant(value=str() as text):
                return self._constant(text.encode("utf-8", "surrogatepass"))
            case Constant(value=value):
                return repr(value)
            case _:
                return self._value(node)

    def _leaf(self, node: Node) -> _Leaf | None:
        """The node as a test of a single property, if it is one."""
        variable = self._variable()
        match node:
            case Equal(left=Property() as operand, right=Constant() as constant) if constant.kind is not Kind.NULL:
                test, absent = self._equals(variable, constant), None
            case Equal(left=Constant(value_kind=Kind.BOOLEAN), right=Property() as operand):
                test, absent = f"refuse({variable}, None)", False
            case Equal(left=Constant() as constant, right=Property() as operand) if constant.kind is not Kind.NULL:
                test, absent = self._equals(variable, constant), False
            case Order(symbol=symbol, left=Property() as operand, right=Constant() as constant):
                test, absent = self._is_ordered(variable, symbol, constant), None
            case Order(symbol=symbol, left=Constant() as constant, right=Property() as operand):
                test, absent = self._is_ordered(variable, _MIRRORED[symbol], constant), None
            case Membership(operand=operand, texts=texts):
                value, known = self._texts(variable, texts)
                test, absent = f"({value} in {self._constant(known)})", None
            case Search(verb=verb, operand=Property() as operand, text=text, negated=negated):
                value, known = self._texts(variable, {text})
                found = _SEARCHES[verb].format(value=value, text=self._constant(*known))
                test, absent = (f"(not {found})" if negated else found), False
            case _:
                return None
        return _Leaf(self._operand(operand), variable, test, absent)

    def _texts(self, variable: str, texts: Iterable[str]) -> tuple[str, frozenset[bytes] | frozenset[str]]:
        """A property and texts to compare it with, both raw where that is the same as comparing what Java reads."""
        if all(map(_is_plain, texts)):
            return variable, frozenset(text.encode() for text in texts)
        return f"decoded({variable})", frozenset(texts)

    def _equals(self, variable: str, constant: Constant) -> str:
        match constant.value:
            case bool() as value:
                return f"boolean({variable})" if value else f"(not boolean({variable}))"
            case str() as text:
                value_source, known = self._texts(variable, {text})
                return f"({value_source} == {self._constant(*known)})"
            case _:
                return f"({constant.kind.value}({variable}) == {self._operand(constant)})"

    def _is_ordered(self, variable: str, symbol: OrderSymbol, constant: Constant) -> str:
        value = f"{constant.kind.value}({variable})"
        number = self._operand(constant)
        if constant.kind is Kind.DOUBLE:
            return _DOUBLE_ORDERS[symbol].format(value=value, number=number)
        return f"({value} {symbol} {number})"

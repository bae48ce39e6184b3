r"""The grammar of SQL92 subscriptions: from text to tree.

The language is RocketMQ's: words in any case, numbers, `'texts'` and comments are those of the parser in Java's
rocketmq-filter. Two of its habits surprise, and a subscription that works there must work here:

* It stops at the first word that cannot continue a complete expression, and ignores the rest: `a = 1 b = 2` means
  `a = 1`, `a = 007` means `a = 0`, and `a LIKE 'x'` means `a`. Only if no word begins right there is it an error.
* A comment from `--` reaches to the end of its line. Where the line has no end, these are two minus signs.

Importing this module loads lark and builds its LALR automaton, nearly 0.1 s in all; `sql` does it when it must.
"""

from __future__ import annotations

from typing import Final, cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from fusee.errors import FilterError
from fusee.filter import sql_tree as tree
from fusee.filter.sql_tree import Node

LENGTH_MAX: Final = 32_768

_GRAMMAR: Final = r"""
?start: disjunction

?disjunction: conjunction (_OR conjunction)*

?conjunction: equality (_AND equality)*

?equality: comparison
    | equality "=" comparison                                -> equal
    | equality "<>" comparison                               -> unequal
    | equality _IS _NULL                                     -> is_null
    | equality _IS _NOT _NULL                                -> is_not_null

?comparison: unary
    | comparison ORDER unary                                 -> order
    | comparison _BETWEEN unary _AND unary                   -> between
    | comparison _NOT _BETWEEN unary _AND unary              -> not_between
    | comparison _IN "(" STRING ("," STRING)* ")"            -> inside
    | comparison _NOT _IN "(" STRING ("," STRING)* ")"       -> not_inside
    | comparison (CONTAINS | STARTSWITH | ENDSWITH) STRING      -> search
    | comparison _NOT (CONTAINS | STARTSWITH | ENDSWITH) STRING -> not_search

?unary: primary
    | "+" unary
    | "-" unary                                              -> negate
    | _NOT unary                                             -> opposite

?primary: "(" disjunction ")"
    | WORD                                                   -> property
    | STRING                                                 -> text
    | DECIMAL                                                -> decimal
    | FLOAT                                                  -> float
    | _TRUE                                                  -> true
    | _FALSE                                                 -> false
    | _NULL                                                  -> null

ORDER: ">=" | "<=" | ">" | /<(?!>)/
STRING: /'(?:''|[^'])*'/
FLOAT.1: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL: /0|[1-9][0-9]*[lL]?/
WORD: /[A-Za-z_$][A-Za-z0-9_$]*/
BLANK: /[ \t\n\r\f]+/
LINE_COMMENT.1: /--[^\n\r]*[\n\r]/
BLOCK_COMMENT.1: /\/\*(?:[^*]|\*(?!\/))*\*\//

%declare _AND _OR _NOT _IS _NULL _IN _BETWEEN _TRUE _FALSE CONTAINS STARTSWITH ENDSWITH
%ignore BLANK
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""

_RESERVED: Final = {
    **{word: f"_{word}" for word in ("AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "TRUE", "FALSE")},
    **{word: word for word in ("CONTAINS", "STARTSWITH", "ENDSWITH")},
}


def parse(text: str) -> Node:
    """The tree of an expression. Raises FilterError that says where and why it is none."""
    if len(text) > LENGTH_MAX:
        raise FilterError(f"the SQL92 expression has {len(text)} characters, the limit is {LENGTH_MAX}; shorten it")
    parser = _PARSER.parse_interactive(text)
    stopped_by: Token | None = None
    try:
        parser.exhaust_lexer()
    except UnexpectedCharacters as error:
        place = _place(error.line, error.column)
        raise FilterError(f"the SQL92 expression is wrong at {place}: {_complaint(error.char)}") from None
    except UnexpectedToken as error:
        stopped_by = error.token
    try:
        node = cast("Node", parser.feed_token(Token("$END", "")))
    except UnexpectedToken:
        if stopped_by is None:
            raise FilterError("the SQL92 expression ends too early; complete or remove its last part") from None
        raise FilterError(
            f"the SQL92 expression is wrong at {_place(stopped_by.line or 1, stopped_by.column or 1)}: "
            f"{_shown(stopped_by)} cannot stand there"
        ) from None
    return tree.truth(node)


def _place(line: int, column: int) -> str:
    return f"column {column}" if line == 1 else f"line {line}, column {column}"


def _complaint(character: str) -> str:
    if character == "'":
        return "the text that begins there has no end; close it with ', and write a ' inside it twice"
    if character == "!":
        return "'!' begins nothing; write <> for unequal and NOT for the opposite"
    return f"{character!r} begins no word, number or text"


def _shown(token: str) -> str:
    return repr(str(token) if len(token) <= 40 else f"{token[:37]}...")


def _classified(word: Token) -> Token:
    reserved = _RESERVED.get(word.upper())
    return word if reserved is None else word.update(type=reserved)


def _unquoted(literal: Token) -> str:
    return literal[1:-1].replace("''", "'")


@v_args(inline=True)
class _Builder(Transformer[Token, Node]):
    """One method per alternative of the grammar."""

    def disjunction(self, *nodes: Node) -> Node:
        return tree.junction(nodes, is_and=False)

    def conjunction(self, *nodes: Node) -> Node:
        return tree.junction(nodes, is_and=True)

    def equal(self, left: Node, right: Node) -> Node:
        return tree.equal(left, right)

    def unequal(self, left: Node, right: Node) -> Node:
        return tree.opposite(tree.equal(left, right))

    def is_null(self, node: Node) -> Node:
        return tree.is_null(node)

    def is_not_null(self, node: Node) -> Node:
        return tree.opposite(tree.is_null(node))

    def order(self, left: Node, symbol: Token, right: Node) -> Node:
        return tree.order(left, cast("tree.OrderSymbol", str(symbol)), right)

    def between(self, node: Node, low: Node, high: Node) -> Node:
        return tree.between(node, low, high)

    def not_between(self, node: Node, low: Node, high: Node) -> Node:
        return tree.not_between(node, low, high)

    def inside(self, node: Node, *literals: Token) -> Node:
        return tree.membership(node, [_unquoted(literal) for literal in literals], negated=False)

    def not_inside(self, node: Node, *literals: Token) -> Node:
        return tree.membership(node, [_unquoted(literal) for literal in literals], negated=True)

    def search(self, node: Node, verb: Token, literal: Token) -> Node:
        return tree.search(node, cast("tree.SearchVerb", verb.type), _unquoted(literal), negated=False)

    def not_search(self, node: Node, verb: Token, literal: Token) -> Node:
        return tree.search(node, cast("tree.SearchVerb", verb.type), _unquoted(literal), negated=True)

    def negate(self, node: Node) -> Node:
        return tree.negate(node)

    def opposite(self, node: Node) -> Node:
        return tree.opposite(node)

    def property(self, word: Token) -> Node:
        return tree.Property(str(word))

    def text(self, literal: Token) -> Node:
        return tree.Constant(_unquoted(literal), tree.Kind.TEXT)

    def decimal(self, digits: Token) -> Node:
        return tree.integer(digits.rstrip("lL"))

    def float(self, digits: Token) -> Node:
        return tree.floating(str(digits))

    def true(self) -> Node:
        return tree.TRUE

    def false(self) -> Node:
        return tree.FALSE

    def null(self) -> Node:
        return tree.NULL


_PARSER: Final = Lark(
    _GRAMMAR,
    parser="lalr",
    lexer="basic",
    transformer=_Builder(),
    lexer_callbacks={"WORD": _classified},
)

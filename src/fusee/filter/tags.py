"""Tag expressions: `A || B`, and the 32-bit codes that consume queues hold instead of tags.

Nothing, the empty text and `*` stand for every message. Otherwise the pieces between `||` are tags without the
blanks around them; empty pieces are no tags. An expression of blanks only therefore wants nothing at all, and one
of separators only is refused: Java's FilterAPI does both, and its clients send what it made of the expression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fusee.errors import FilterError
from fusee.message.hashing import java_string_hash

EVERYTHING: Final = "*"
SEPARATOR: Final = "||"
# What Java's String.trim takes away: every character up to the blank.
BLANKS: Final = "".join(map(chr, range(0x21)))
# A heartbeat carries tags and codes too; far more than this is no list that a person wrote.
EXPRESSION_LENGTH_MAX: Final = 32_768


@dataclass(frozen=True, slots=True)
class TagChoice:
    """The tags of an expression and their codes; `codes` None stands for every message."""

    expression: str
    tags: frozenset[str]
    codes: frozenset[int] | None


_ALL: Final = TagChoice(EVERYTHING, frozenset(), None)


def parse_tags(expression: str | None) -> TagChoice:
    """The choice that this expression makes. Raises FilterError for one without a piece, or one too long."""
    if not expression or expression == EVERYTHING:
        return _ALL
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise FilterError(
            f"the tag expression has {len(expression)} characters, the limit is {EXPRESSION_LENGTH_MAX}; "
            "subscribe to fewer tags, or to all of them with '*'"
        )
    pieces = expression.split(SEPARATOR)
    if not any(pieces):
        raise FilterError(f"the tag expression {expression!r} names no tag; write 'A || B', or '*' for all messages")
    tags = frozenset(tag for piece in pieces if (tag := piece.strip(BLANKS)))
    return TagChoice(expression, tags, tag_codes(tags))


def tag_codes(tags: frozenset[str]) -> frozenset[int]:
    """The codes of these tags, as a consume queue holds them."""
    return frozenset(map(java_string_hash, tags))

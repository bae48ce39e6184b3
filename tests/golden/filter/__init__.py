"""What Apache RocketMQ 5.5.0 makes of subscriptions.

`sql.jsonl.xz`: on the first line the properties of messages, in hexadecimal; on each further line an SQL92 expression
and its value for each of them (T true, F false, N null, E failed), or null where Java refuses the expression.
`tags.jsonl`: type and expression of a subscription, and expression, tags and codes that Java's FilterAPI makes
of them, or null where it refuses.

`FUSEE_RECORD=1 make interop` writes both files anew, from tests/filter/expressions.py.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SQL: Final = Path(__file__).parent / "sql.jsonl.xz"
TAGS: Final = Path(__file__).parent / "tags.jsonl"


@dataclass(frozen=True)
class SqlCase:
    """An expression, and its value for each message; None where it is refused."""

    expression: str
    values: str | None


@dataclass(frozen=True)
class TagCase:
    """A subscription as given and as understood; `expression` None where it is refused."""

    given_type: str | None
    given: str | None
    expression: str | None
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()


@cache
def sql_cases() -> tuple[list[bytes], list[SqlCase]]:
    """The properties of the messages, and the expressions that were tried on them."""
    first, *lines = lzma.decompress(SQL.read_bytes()).splitlines()
    properties = [bytes.fromhex(each) for each in msgspec.json.decode(first, type=list[str])]
    pairs = (msgspec.json.decode(line, type=tuple[str, str | None]) for line in lines)
    return properties, [SqlCase(expression, values) for expression, values in pairs]


def write_sql_cases(properties: Sequence[bytes], cases: Iterable[SqlCase]) -> None:
    lines = [msgspec.json.encode([each.hex() for each in properties])]
    lines += [msgspec.json.encode((case.expression, case.values)) for case in cases]
    SQL.write_bytes(lzma.compress(b"\n".join(lines), preset=9))


@cache
def tag_cases() -> list[TagCase]:
    return [msgspec.json.decode(line, type=TagCase) for line in TAGS.read_bytes().splitlines()]


def write_tag_cases(cases: Iterable[TagCase]) -> None:
    TAGS.write_bytes(b"".join(msgspec.json.encode(case, order="deterministic") + b"\n" for case in cases))

"""The door to SQL92: from an expression to a predicate over raw properties, parsed once however often it comes.

Parser and compiler are loaded when the first expression comes, which then takes about 0.1 s. Later ones take from
0.3 ms to, at the limits of length and size, 0.1 s; one that came before takes a lookup.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from fusee.errors import FilterError

Predicate = Callable[[bytes], bool]
"""Whether a message matches, judged by the raw bytes of its properties."""

# Clients repeat their expressions in every heartbeat. They repeat wrong ones too, so failures are remembered as well.
REMEMBERED_MAX: Final = 256


def compile_sql(text: str) -> Predicate:
    """The predicate of an expression, which takes raw properties and never fails. Raises FilterError."""
    compiled = _remembered(text)
    if isinstance(compiled, str):
        raise FilterError(compiled)
    return compiled


@lru_cache(maxsize=REMEMBERED_MAX)
def _remembered(text: str) -> Predicate | str:
    from fusee.filter.sql_compile import compile_tree
    from fusee.filter.sql_grammar import parse

    try:
        return compile_tree(parse(text))
    except FilterError as error:
        return str(error)

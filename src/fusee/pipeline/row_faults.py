"""Why a row can be no message, said alike by both forms of `row_messages`."""

from __future__ import annotations

from typing import NoReturn

from fusee.errors import MessageError
from fusee.message.properties import PROPERTIES_SIZE_MAX

_SHOWN: int = 80


def refuse_text(row: int, name: bytes, value: bytes) -> NoReturn:
    """A value of a column holds what divides properties."""
    entry = b"%b\x01%b\x02" % (name, value)
    raise MessageError(
        f"row {row}: keys, tags and orderBy cannot have the characters \\x01 and \\x02, which divide properties: "
        f"{entry[:_SHOWN]!r}"
    )


def refuse_property(what: str, text: bytes) -> NoReturn:
    """So does the name or the value of a property."""
    raise MessageError(
        f"the {what} of a property cannot have the characters \\x01 and \\x02, which divide properties: "
        f"{text[:_SHOWN]!r}"
    )


def refuse_properties(row: int, size: int) -> NoReturn:
    """A row has more properties than a message can."""
    raise MessageError(f"row {row} has {size} bytes of keys, tags and properties, limit {PROPERTIES_SIZE_MAX}")


def refuse_size(row: int, size: int) -> NoReturn:
    """A row is larger than the length of a message can say."""
    raise MessageError(f"row {row} takes {size} bytes, and a message less than 2 GiB")

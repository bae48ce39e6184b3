"""Header fields declared as data: a typed struct on one side, text by name on the wire on the other.

A header is a `Header` subclass. Each attribute becomes one extFields entry whose wire name is the camelCase
form of the attribute (`queue_id` -> `queueId`) unless the class gives another. Every value travels as text;
None is not written. Unknown entries are ignored, a missing required one or a value of the wrong form is a
`FieldError` that names the field. (The Java decoder swallows such errors field by field and fails later with a
NullPointerException; the answer is code 1 either way, ours says why.)
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from fusee.errors import FieldError

if TYPE_CHECKING:
    from collections.abc import Mapping

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Header(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """Base of all declared headers."""


class RpcHeader(Header, kw_only=True):
    """The optional fields that every 5.x request may carry (Java: RpcRequestHeader)."""

    namespace: str | None = msgspec.field(default=None, name="ns")
    namespace_applied: bool | None = msgspec.field(default=None, name="nsd")
    broker_name: str | None = msgspec.field(default=None, name="bname")
    oneway: bool | None = msgspec.field(default=None, name="oway")


class TopicHeader(RpcHeader, kw_only=True):
    """`lo`: the queue id is a logical one of a static topic (Java: TopicRequestHeader)."""

    logical: bool | None = msgspec.field(default=None, name="lo")


H = TypeVar("H", bound=Header)


@cache  # one entry per header class
def wire_names(header_type: type[Header]) -> tuple[tuple[str, str], ...]:
    """(attribute, wire name) in declaration order."""
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(header_type))


def read_fields(ext_fields: Mapping[str, str] | None, header_type: type[H]) -> H:
    """The typed header in these ext fields. Raises FieldError naming the field that is missing or malformed."""
    try:
        return msgspec.convert(ext_fields or {}, header_type, strict=False)
    except msgspec.ValidationError as error:
        raise FieldError(f"{header_type.__name__}: {error}") from error


def write_fields(header: Header) -> dict[str, str]:
    """The ext fields of this header, without those that are None."""
    fields: dict[str, str] = {}
    for attribute, wire_name in wire_names(type(header)):
        value: Any = getattr(header, attribute)
        if value is None:
            continue
        if value is True:
            fields[wire_name] = "true"
        elif value is False:
            fields[wire_name] = "false"
        else:
            fields[wire_name] = str(value)
    return fields

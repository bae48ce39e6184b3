"""One remoting command: a request, a response or a oneway request (Java: RemotingCommand)."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from fusee.wire.codes import LanguageCode, ResponseCode
from fusee.wire.fields import Header, read_fields, write_fields

RESPONSE_FLAG: Final = 0x1
ONEWAY_FLAG: Final = 0x2

# The release whose behaviour we speak: 5.5.0. Peers gate features on this number.
PROTOCOL_VERSION: Final = 513

H = TypeVar("H", bound=Header)


class Command(msgspec.Struct, gc=False):
    """Code, correlation id, flags, fields by name, body.

    A decoder with a dedicated path for the code fills `fields` with the typed header and leaves `ext_fields`
    None; `all_fields` gives the fields as text either way. `read` is how a handler gets its typed header.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    language: LanguageCode = LanguageCode.PYTHON
    version: int = PROTOCOL_VERSION
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""
    fields: Header | None = None
    raw_header: bytes | None = None

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & ONEWAY_FLAG != 0

    @classmethod
    def request(cls, code: int, header: Header | None = None, *, body: bytes = b"", oneway: bool = False) -> Command:
        """A request that has no opaque yet: the connection gives it one when it is sent."""
        ext_fields = write_fields(header) if header is not None else None
        return cls(code, flag=ONEWAY_FLAG if oneway else 0, ext_fields=ext_fields, body=body)

    def reply(
        self,
        code: int = ResponseCode.SUCCESS,
        header: Header | None = None,
        *,
        remark: str | None = None,
        body: bytes = b"",
    ) -> Command:
        """The response to this request."""
        ext_fields = write_fields(header) if header is not None else None
        return Command(code, self.opaque, RESPONSE_FLAG, remark=remark, ext_fields=ext_fields, body=body)

    def read(self, header_type: type[H]) -> H:
        """The typed header. Raises FieldError when a field is missing or malformed."""
        if type(self.fields) is header_type:
            return self.fields
        return read_fields(self.all_fields(), header_type)

    def all_fields(self) -> dict[str, str]:
        """Every field as text, unknown ones too; decoded from the header when only the typed form was made."""
        if self.ext_fields is None and self.raw_header is not None:
            from fusee.wire.header_json import decode_json_header

            self.ext_fields = decode_json_header(self.raw_header).ext_fields
        return self.ext_fields or {}

"""Bodies of the key/value configuration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import ProtocolError
from fusee.wire.bodies.kv import decode_kv_table, encode_kv_table
from fusee.wire.codes import RequestCode
from tests.golden import frames


def test_tables_of_java_read_and_write_back_to_the_same_bytes() -> None:
    codes = {RequestCode.GET_KVLIST_BY_NAMESPACE, RequestCode.REGISTER_BROKER}
    bodies = [
        frame.body_bytes
        for frame in frames()
        if frame.role == "response" and frame.request_code in codes and frame.body_length
    ]
    assert len(bodies) > 5
    for body in bodies:
        assert encode_kv_table(decode_kv_table(body).table) == body
    assert any(decode_kv_table(body).table for body in bodies)


# An object with nothing but a `$ref` text is a reference in this dialect, so such a table cannot be told.
@given(st.dictionaries(st.text(), st.text()).filter(lambda table: set(table) != {"$ref"}))
def test_table_reads_back(table: dict[str, str]) -> None:
    assert decode_kv_table(encode_kv_table(table)).table == table


@pytest.mark.parametrize("body", [b"", b"1", b'{"table":[]}', b'{"table":{"k":{}}}'])
def test_decode_of_something_else_is_an_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_kv_table(body)

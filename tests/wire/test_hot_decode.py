"""Dedicated decoders step aside for what is unusual."""

from __future__ import annotations

from fusee.wire.hot_decode import HOT_DECODERS, HOT_PREFIX_SIZE


def test_header_with_bytes_that_are_no_text_is_left_to_the_general_path() -> None:
    header = b'{"code":310,"extFields":{"a":"g","zz\x80":"x"},"flag":0,"opaque":1}'
    assert HOT_DECODERS[header[:HOT_PREFIX_SIZE]](header) is None

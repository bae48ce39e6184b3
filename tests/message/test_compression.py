from __future__ import annotations

from contextlib import suppress

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import MessageError
from fusee.message.compression import (
    COMPRESS_LEVEL,
    COMPRESS_THRESHOLD,
    compress,
    compressed_sys_flag,
    decompress,
)
from fusee.message.flags import CompressionType, compression_type
from tests.message.strategies import mutated

every_kind = pytest.mark.parametrize("kind", CompressionType)
BODY = b"line of a body worth compressing; " * 300


@given(st.binary(max_size=300), st.sampled_from(CompressionType))
def test_decompress_when_compressed_gives_the_body(body: bytes, kind: CompressionType) -> None:
    assert decompress(compress(body, kind), kind, size_max=len(body)) == body


def test_defaults_when_read_are_those_of_the_producer() -> None:
    assert (COMPRESS_THRESHOLD, COMPRESS_LEVEL) == (4096, 5)
    assert compress(BODY)[:1] == b"\x78"


def test_lz4_when_compressed_has_independent_blocks_for_java() -> None:
    assert lz4.frame.get_frame_info(compress(BODY * 20, CompressionType.LZ4))["block_linked"] is False


@every_kind
def test_decompress_when_output_is_at_the_limit_is_accepted_and_beyond_refused(kind: CompressionType) -> None:
    packed = compress(BODY, kind)
    assert decompress(packed, kind, size_max=len(BODY)) == BODY
    with pytest.raises(MessageError, match=f"larger than the limit of {len(BODY) - 1}"):
        decompress(packed, kind, size_max=len(BODY) - 1)


@every_kind
def test_decompress_when_input_is_a_bomb_is_refused(kind: CompressionType) -> None:
    with pytest.raises(MessageError, match="larger than the limit"):
        decompress(compress(bytes(20_000_000), kind), kind, size_max=100_000)


def test_zstd_when_size_is_not_declared_is_limited_too() -> None:
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    packed = packer.compress(BODY) + packer.flush()
    assert decompress(packed, CompressionType.ZSTD, size_max=len(BODY)) == BODY
    with pytest.raises(MessageError, match="larger than the limit"):
        decompress(packed, CompressionType.ZSTD, size_max=len(BODY) - 1)
    with pytest.raises(MessageError, match="cut short"):
        decompress(packed[:-4], CompressionType.ZSTD)


@every_kind
def test_decompress_when_input_is_cut_short_is_refused(kind: CompressionType) -> None:
    packed = compress(BODY, kind)
    for size in (0, 1, 5, len(packed) // 2, len(packed) - 1):
        with pytest.raises(MessageError):
            decompress(packed[:size], kind)


@every_kind
@given(data=st.data())
def test_decompress_when_bytes_are_damaged_gives_bounded_output_or_a_message_error(
    kind: CompressionType, data: st.DataObject
) -> None:
    packed = data.draw(st.one_of(st.binary(max_size=60), mutated(st.just(compress(BODY, kind)))))
    with suppress(MessageError):
        assert len(decompress(packed, kind, size_max=20_000)) <= 20_000


@every_kind
def test_compress_when_level_is_absurd_is_refused(kind: CompressionType) -> None:
    if kind is CompressionType.LZ4:
        assert compress(BODY, kind, 1000) == compress(BODY, kind)
    else:
        with pytest.raises(MessageError, match="level 1000"):
            compress(BODY, kind, 1000)


@every_kind
def test_compressed_sys_flag_when_set_names_the_codec(kind: CompressionType) -> None:
    flag = compressed_sys_flag(0x404, kind)
    assert flag & 1
    assert compression_type(flag) is kind
    assert flag & 0xFF == 0x05

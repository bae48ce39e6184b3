"""Bodies compressed by the producer with zlib, LZ4 or Zstandard; the bits of the system flag say which.

Brokers store and hand out the compressed bytes as they are. Decompression has a limit on the size of its
output and never produces more than that before it refuses, so a small message cannot blow up its reader.

LZ4 bodies are LZ4 *frames* with independent blocks: the Java library reads no others.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import lz4.frame
import msgspec
import zstandard

from fusee.errors import MessageError
from fusee.message.flags import CompressionType, SysFlag, compression_type

if TYPE_CHECKING:
    from fusee.message.model import StoredMessage

COMPRESS_THRESHOLD: Final = 4096
COMPRESS_LEVEL: Final = 5
BODY_SIZE_MAX: Final = 4 * 1024 * 1024


def compress(body: bytes, kind: CompressionType = CompressionType.ZLIB, level: int = COMPRESS_LEVEL) -> bytes:
    """The body in this codec's form. LZ4 has one speed here and, as in Java, ignores the level."""
    try:
        if kind is CompressionType.ZLIB:
            return zlib.compress(body, level)
        if kind is CompressionType.ZSTD:
            return zstandard.ZstdCompressor(level=level).compress(body)
    except (ValueError, zlib.error, zstandard.ZstdError) as error:
        raise MessageError(f"cannot compress with {kind.name} at level {level}: {error}") from error
    frame: bytes = lz4.frame.compress(body, block_linked=False)
    return frame


def compressed_sys_flag(sys_flag: int, kind: CompressionType) -> int:
    """The system flag of a message whose body was compressed with this codec."""
    return (sys_flag & ~SysFlag.COMPRESSION_MASK) | SysFlag.COMPRESSED | kind.flag


def decompress(body: bytes, kind: CompressionType, *, size_max: int = BODY_SIZE_MAX) -> bytes:
    """The plain body. Raises MessageError when it is damaged, cut short, or larger than `size_max`."""
    try:
        if kind is CompressionType.ZLIB:
            return _inflate(body, size_max)
        if kind is CompressionType.ZSTD:
            return _unpack_zstd(body, size_max)
        return _unpack_lz4(body, size_max)
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise MessageError(f"body of {len(body)} bytes is not valid {kind.name} data: {error}") from error


def decompress_message(message: StoredMessage, *, size_max: int = BODY_SIZE_MAX) -> StoredMessage:
    """The message with a plain body and its COMPRESSED bit cleared; the same object when it was plain.

    The body checksum stays that of the stored bytes.
    """
    sys_flag = message.sys_flag
    if not sys_flag & SysFlag.COMPRESSED:
        return message
    body = decompress(message.body, compression_type(sys_flag), size_max=size_max)
    return msgspec.structs.replace(message, body=body, sys_flag=sys_flag & ~SysFlag.COMPRESSED)


def _inflate(body: bytes, size_max: int) -> bytes:
    inflater = zlib.decompressobj()
    plain = inflater.decompress(body, size_max + 1)
    if len(plain) > size_max:
        raise _too_large(size_max)
    if not inflater.eof:
        raise MessageError(f"ZLIB body of {len(body)} bytes is cut short")
    return plain


def _unpack_lz4(body: bytes, size_max: int) -> bytes:
    unpacker = lz4.frame.LZ4FrameDecompressor()
    plain: bytes = unpacker.decompress(body, size_max + 1)
    if len(plain) > size_max:
        raise _too_large(size_max)
    if not unpacker.eof:
        raise MessageError(f"LZ4 body of {len(body)} bytes is cut short")
    return plain


def _unpack_zstd(body: bytes, size_max: int) -> bytes:
    # A frame may declare its size, and the library would reserve that much on its word.
    declared = zstandard.frame_content_size(body)
    if declared > size_max:
        raise _too_large(size_max)
    if declared == 0:
        return b""
    try:
        return zstandard.ZstdDecompressor().decompress(body, max_output_size=size_max)
    except zstandard.ZstdError as error:
        if declared < 0:
            raise MessageError(
                f"ZSTD body of {len(body)} bytes is damaged, cut short, or larger than the limit of "
                f"{size_max} bytes: {error}"
            ) from error
        raise


def _too_large(size_max: int) -> MessageError:
    return MessageError(
        f"decompressed body is larger than the limit of {size_max} bytes; raise it or send less at once"
    )

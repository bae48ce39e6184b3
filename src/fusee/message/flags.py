"""The bits of the three system flags: of a message, of a pull request, of a topic.

A message's system flag travels in the send header and stands in every stored record. The producer sets the
compression and transaction bits; the broker sets the address-family bits (they say how long the host fields
of the record are, so a producer's word on them is never taken) and the batch bits.

The constants are plain integers and not an enum: they are tested per message on hot paths, where an `IntFlag`
costs ten times the comparison itself.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from fusee.errors import MessageError


class SysFlag:
    """System flag of a message (Java: MessageSysFlag)."""

    COMPRESSED: Final = 0x1
    MULTI_TAGS: Final = 0x2
    TRANSACTION_MASK: Final = 0xC
    BORN_HOST_V6: Final = 0x10
    STORE_HOST_V6: Final = 0x20
    HOSTS_V6_MASK: Final = 0x30
    NEED_UNWRAP: Final = 0x40
    INNER_BATCH: Final = 0x80
    COMPRESSION_MASK: Final = 0x700


class PullSysFlag:
    """Flag of a pull request: what it carries and whether the broker may hold it."""

    COMMIT_OFFSET: Final = 0x1
    SUSPEND: Final = 0x2
    SUBSCRIPTION: Final = 0x4
    CLASS_FILTER: Final = 0x8
    LITE_PULL: Final = 0x10


class TopicSysFlag:
    """Flag of a topic in the legacy unit mode."""

    UNIT: Final = 0x1
    UNIT_SUB: Final = 0x2


class TransactionType(IntEnum):
    """Phase of a transactional message, as the two bits stand in the system flag."""

    NOT = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


class CompressionType(IntEnum):
    """Codec of a compressed body, as numbered in the three compression bits."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def flag(self) -> int:
        """The bits this codec sets in the system flag, without COMPRESSED itself."""
        return self.value << 8


_COMPRESSION_TYPES: Final = {
    0: CompressionType.ZLIB,  # clients before 4.9 compress with zlib and leave the type bits empty
    CompressionType.LZ4.flag: CompressionType.LZ4,
    CompressionType.ZSTD.flag: CompressionType.ZSTD,
    CompressionType.ZLIB.flag: CompressionType.ZLIB,
}
_TRANSACTION_TYPES: Final = {kind.value: kind for kind in TransactionType}


def transaction_type(sys_flag: int) -> TransactionType:
    """The transaction phase in this system flag."""
    return _TRANSACTION_TYPES[sys_flag & SysFlag.TRANSACTION_MASK]


def with_transaction_type(sys_flag: int, kind: TransactionType) -> int:
    """The system flag with its transaction phase replaced."""
    return (sys_flag & ~SysFlag.TRANSACTION_MASK) | kind.value


def compression_type(sys_flag: int) -> CompressionType:
    """The codec in this system flag. Raises MessageError for a number that no release defines."""
    kind = _COMPRESSION_TYPES.get(sys_flag & SysFlag.COMPRESSION_MASK)
    if kind is None:
        raise MessageError(
            f"compression type {(sys_flag & SysFlag.COMPRESSION_MASK) >> 8} in system flag {sys_flag:#x} is "
            "unknown; this side knows 1 (LZ4), 2 (ZSTD), 3 and 0 (ZLIB)"
        )
    return kind


def with_host_families(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    """The system flag with its address-family bits set from the packed hosts, whatever they were before."""
    families = 0
    if len(born_host) == 20:
        families = SysFlag.BORN_HOST_V6
    if len(store_host) == 20:
        families |= SysFlag.STORE_HOST_V6
    return (sys_flag & ~SysFlag.HOSTS_V6_MASK) | families


def is_inner_batch(sys_flag: int) -> bool:
    """Whether the body is a batch that the consumer must unwrap: both bits, as the Java client asks."""
    return sys_flag & (SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH) == SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH

from __future__ import annotations

import pytest

from fusee.errors import MessageError
from fusee.message.flags import (
    CompressionType,
    PullSysFlag,
    SysFlag,
    TopicSysFlag,
    TransactionType,
    compression_type,
    is_inner_batch,
    transaction_type,
    with_host_families,
    with_transaction_type,
)


def test_bits_when_compared_with_the_published_values_are_equal() -> None:
    assert (SysFlag.COMPRESSED, SysFlag.MULTI_TAGS, SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6) == (
        0x1,
        0x2,
        0x10,
        0x20,
    )
    assert (SysFlag.NEED_UNWRAP, SysFlag.INNER_BATCH, SysFlag.COMPRESSION_MASK) == (0x40, 0x80, 0x700)
    assert (
        PullSysFlag.COMMIT_OFFSET,
        PullSysFlag.SUSPEND,
        PullSysFlag.SUBSCRIPTION,
        PullSysFlag.CLASS_FILTER,
        PullSysFlag.LITE_PULL,
    ) == (1, 2, 4, 8, 16)
    assert (TopicSysFlag.UNIT, TopicSysFlag.UNIT_SUB) == (1, 2)


@pytest.mark.parametrize("kind", TransactionType)
def test_transaction_type_when_set_is_read_back_and_leaves_other_bits(kind: TransactionType) -> None:
    flag = with_transaction_type(0x7F3 | TransactionType.COMMIT, kind)
    assert transaction_type(flag) is kind
    assert flag & ~SysFlag.TRANSACTION_MASK == 0x7F3


@pytest.mark.parametrize(
    ("bits", "kind"),
    [
        (0x000, CompressionType.ZLIB),
        (0x100, CompressionType.LZ4),
        (0x200, CompressionType.ZSTD),
        (0x300, CompressionType.ZLIB),
    ],
)
def test_compression_type_when_bits_are_known_names_the_codec(bits: int, kind: CompressionType) -> None:
    assert compression_type(bits | 0x1F) is kind


@pytest.mark.parametrize("bits", [0x400, 0x500, 0x600, 0x700])
def test_compression_type_when_bits_are_undefined_is_refused(bits: int) -> None:
    with pytest.raises(MessageError, match=f"compression type {bits >> 8}"):
        compression_type(bits)


@pytest.mark.parametrize("born", [8, 20])
@pytest.mark.parametrize("store", [8, 20])
def test_host_families_when_a_producer_lies_follow_the_hosts(born: int, store: int) -> None:
    for claimed in (0, 0x10, 0x20, 0x30):
        flag = with_host_families(0x301 | claimed, bytes(born), bytes(store))
        assert flag == 0x301 | (0x10 if born == 20 else 0) | (0x20 if store == 20 else 0)


def test_inner_batch_when_only_one_bit_is_set_is_not_one() -> None:
    assert is_inner_batch(0xC0 | 0x301)
    assert not is_inner_batch(SysFlag.NEED_UNWRAP)
    assert not is_inner_batch(SysFlag.INNER_BATCH)

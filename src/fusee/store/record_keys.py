"""What consume queues and index need of the properties of many records: the hash of each tag, and of each key.

Hashes: with S[j] the sum of unit i times 31**-i over i < j, modulo 2**32, Java's hash of the text in [a, b) is
(S[b] - S[a]) * 31**(b-1), because 31 has an inverse. One running sum over the properties of all records therefore gives
the hash of every tag and key in them.

The compiled form is `record_keys.pyx`, a twin of this module written for C: it goes from byte to byte.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from fusee.store.key_hash import index_hashes
from fusee.store.property_entries import split_entries
from fusee.store.record_scan import windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TAGS: Final = int.from_bytes(b"TAGS", "big")
_KEYS: Final = int.from_bytes(b"KEYS", "big")
_UNIQ_KEY: Final = int.from_bytes(b"UNIQ_KEY", "big")
_SPACE: Final = 0x20
_UNITS_MAX: Final = 1 << 20


def _powers(factor: int) -> NDArray[np.uint32]:
    row = np.full(_UNITS_MAX + 1, factor, dtype=np.uint32)
    row[0] = 1
    return np.multiply.accumulate(row, dtype=np.uint32)


@lru_cache(maxsize=1)
def _weights() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """(31**i, 31**-i) modulo 2**32; made when first needed, 8 MB."""
    return _powers(31), _powers(pow(31, -1, 1 << 32))


def find_keys_of(view: memoryview, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> RecordKeys | None:
    """The keys in the properties view[starts[r]:ends[r]] of each row; None when they are not all ASCII."""
    joined = b"".join([view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)])
    if len(joined) > _UNITS_MAX or not joined.isascii():
        return None
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(ends - starts, out=offsets[1:])
    return RecordKeys(np.frombuffer(joined, np.uint8), offsets)


class RecordKeys:
    """Tags and keys of many records, as hashes."""

    def __init__(self, raw: NDArray[np.uint8], offsets: NDArray[np.int32]) -> None:
        self._raw = raw
        self._count = len(offsets) - 1
        found = split_entries(raw, offsets)
        self._rows: NDArray[np.intp] = np.repeat(np.arange(self._count), np.diff(found.row_offsets))
        self._name_start = found.name_start
        self._name_size = found.name_end - found.name_start
        self._value_start, self._value_end = found.value_start, found.value_end
        _, inverses = _weights()
        self._sums = np.zeros(len(raw) + 1, np.uint32)
        np.cumsum(np.multiply(raw, inverses[: len(raw)], dtype=np.uint32), dtype=np.uint32, out=self._sums[1:])

    @cached_property
    def tags_codes(self) -> NDArray[np.int64]:
        """The tag's hash of each record, 0 without a tag."""
        codes = np.zeros(self._count, np.int64)
        rows, starts, ends = self._values_of(_TAGS, 4)
        codes[rows] = self._hashes(starts, ends).view(np.int32)
        return codes

    def index_keys(
        self, prefixes: NDArray[np.uint32], topic_ids: NDArray[np.intp], is_kept: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """(hash as an index stores it, row) of the unique key, the keys and the tag of each row that is kept, in order.

        `prefixes` has for each topic the hash of what stands before its keys, and before its tags.
        """
        unique_rows, unique_starts, unique_ends = self._values_of(_UNIQ_KEY, 8)
        key_rows, key_starts, key_ends = self._split_tokens(*self._values_of(_KEYS, 4))
        tag_rows, tag_starts, tag_ends = self._values_of(_TAGS, 4)
        rows = np.concatenate((unique_rows, key_rows, tag_rows))
        starts = np.concatenate((unique_starts, key_starts, tag_starts))
        ends = np.concatenate((unique_ends, key_ends, tag_ends))
        is_tag = np.zeros(len(rows), np.intp)
        is_tag[len(rows) - len(tag_rows) :] = 1
        order = np.argsort(rows, kind="stable")
        order = order[is_kept[rows[order]]]
        rows, starts, ends, is_tag = rows[order], starts[order], ends[order], is_tag[order]
        powers, _ = _weights()
        hashes = prefixes[topic_ids[rows], is_tag] * powers[ends - starts] + self._hashes(starts, ends)
        return index_hashes(hashes.view(np.int32)), rows

    def _values_of(self, name: int, size: int) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
        """Rows that have the property of this name, and where its value lies; the last one where it stands twice."""
        candidates = np.flatnonzero(self._name_size == size)
        words = windows(self._raw, f">u{size}")[self._name_start[candidates]]
        matching = candidates[words == name]
        rows = self._rows[matching]
        if len(rows) > 1 and (rows[1:] == rows[:-1]).any():
            keep = np.append(rows[1:] != rows[:-1], True)
            rows, matching = rows[keep], matching[keep]
        return rows, self._value_start[matching], self._value_end[matching]

    def _hashes(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.uint32]:
        powers, _ = _weights()
        difference: NDArray[np.uint32] = self._sums[ends] - self._sums[starts]
        return difference * powers[ends - 1]

    def _split_tokens(
        self, rows: NDArray[np.intp], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
        raw = self._raw
        spaces = np.flatnonzero(raw == _SPACE)
        if not len(spaces):
            return rows, starts, ends
        has_space = np.searchsorted(spaces, starts) < np.searchsorted(spaces, ends)
        if not has_space.any():
            return rows, starts, ends
        token_rows: list[int] = []
        token_starts: list[int] = []
        token_ends: list[int] = []
        for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
            position = start
            for token in bytes(raw[start:end]).split(b" "):
                if token:
                    token_rows.append(row)
                    token_starts.append(position)
                    token_ends.append(position + len(token))
                position += len(token) + 1
        return np.array(token_rows, np.intp), np.array(token_starts, np.int64), np.array(token_ends, np.int64)

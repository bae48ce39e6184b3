"""Java's `String.hashCode` of many keys at once, and the hash that an index file stores.

The hash of a text is the sum of its UTF-16 units u[i], weighed with 31**(n-1-i), modulo 2**32. Weights differ with
the length of each text, which would cost a table look-up per unit. But 31 is odd, so it has an inverse modulo 2**32:
all texts are laid end to end, unit number j of the whole is weighed with 31**-j, each text is summed, and its sum is
multiplied by 31**(its last unit's number). The weights of the long row are the same for every batch.

An index hashes `topic#key`. The hash of two texts joined is hash(first) * 31**len(second) + hash(second), so that
`topic#` is hashed once and only the keys are looked at.

`message.hashing.java_string_hash` does one text at a time; the two agree on every text.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from fusee.message.hashing import java_string_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_UNITS_MAX: Final = 1 << 16
_INVERSE_OF_31: Final = pow(31, -1, 1 << 32)
_UTF16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


def _powers(factor: int) -> NDArray[np.uint32]:
    row = np.full(_UNITS_MAX + 1, factor, dtype=np.uint32)
    row[0] = 1
    return np.multiply.accumulate(row, dtype=np.uint32)


POWERS_OF_31: Final = _powers(31)
_INVERSES: Final = _powers(_INVERSE_OF_31)


@lru_cache(maxsize=16_384)
def topic_prefix_hash(topic: str) -> int:
    """Hash of `topic#`, in 0 .. 2**32-1, for `joined_hashes`."""
    return java_string_hash(topic + "#") & 0xFFFFFFFF


def java_string_hashes(texts: Sequence[str]) -> NDArray[np.int32]:
    """`hashCode()` of each text."""
    hashes, _ = _hashes(texts)
    return hashes.view(np.int32)


def joined_hashes(prefix_hashes: Sequence[int], keys: Sequence[str]) -> NDArray[np.int32]:
    """`hashCode()` of each key behind a text of which only the hash (as 0 .. 2**32-1) is given."""
    hashes, sizes = _hashes(keys)
    if len(sizes) and int(sizes.max()) > _UNITS_MAX:
        weights = np.array([pow(31, int(size), 1 << 32) for size in sizes], dtype=np.uint32)
    else:
        weights = POWERS_OF_31[sizes]
    return (np.array(prefix_hashes, dtype=np.uint32) * weights + hashes).view(np.int32)


def index_hashes(hashes: NDArray[np.int32]) -> NDArray[np.int64]:
    """What an index file stores for these hash codes: without sign, and 0 for the one that has no counterpart."""
    positive = np.abs(hashes.astype(np.int64))
    positive[positive == 1 << 31] = 0
    return positive


def index_hash(topic: str, key: str) -> int:
    """What an index file stores for one key of a topic."""
    code = abs(java_string_hash(f"{topic}#{key}"))
    return 0 if code == 1 << 31 else code


def _hashes(texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Hash codes and lengths in units."""
    whole = "".join(texts)
    if whole.isascii():
        sizes = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        units: NDArray[np.uint8] | NDArray[np.uint16] = np.frombuffer(whole.encode(), dtype=np.uint8)
    else:
        parts = [text.encode(_UTF16, "surrogatepass") for text in texts]
        sizes = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)) >> 1
        units = np.frombuffer(b"".join(parts), dtype=np.uint16)
    if len(units) <= _UNITS_MAX:
        return _sums(units, sizes), sizes
    hashes = np.empty(len(texts), dtype=np.uint32)
    first = start = 0
    while first < len(texts):
        ends = np.cumsum(sizes[first:])
        count = int(np.searchsorted(ends, _UNITS_MAX, side="right"))
        if count == 0:
            # One text longer than the row of weights.
            hashes[first] = java_string_hash(texts[first]) & 0xFFFFFFFF
            count = 1
        else:
            hashes[first : first + count] = _sums(
                units[start : start + int(ends[count - 1])], sizes[first : first + count]
            )
        start += int(ends[count - 1])
        first += count
    return hashes, sizes


def _sums(units: NDArray[np.uint8] | NDArray[np.uint16], sizes: NDArray[np.int64]) -> NDArray[np.uint32]:
    if len(units) == 0:
        return np.zeros(len(sizes), dtype=np.uint32)
    if not sizes.all():
        # reduceat has no empty sums
        sums = np.zeros(len(sizes), dtype=np.uint32)
        sums[sizes > 0] = _sums(units, sizes[sizes > 0])
        return sums
    ends = np.cumsum(sizes)
    weighed = np.multiply(units, _INVERSES[: len(units)], dtype=np.uint32)
    return np.add.reduceat(weighed, ends - sizes, dtype=np.uint32) * POWERS_OF_31[ends - 1]

"""Rows of files as such: whether they follow each other in one size, and their entries in blocks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from fusee.store.offline.files import OfflineStore, SegmentFile, SegmentRow
    from fusee.store.offline.findings import Findings

BLOCK_SIZE: Final = 4 << 20


def usual_size(rows: Iterable[SegmentRow]) -> int:
    """The size that most files of these rows have; the larger one when in doubt."""
    sizes: Counter[int] = Counter()
    for row in rows:
        sizes.update(segment.size for segment in row.segments)
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


def check_row(
    store: OfflineStore, findings: Findings, row: SegmentRow, kind: str, size: int, entry_size: int = 1
) -> None:
    """Tell which files of a row do not have this size, do not follow each other, or do not belong."""
    end: int | None = None
    for segment in row.segments:
        file = store.relative(segment.path)
        if segment.size == 0 and segment is row.segments[-1]:
            findings.note(f"{kind}-file-empty", file, "the last file is empty: its owner stopped while making it")
        elif segment.size != size:
            findings.error(f"{kind}-file-size", file, f"it has {segment.size} bytes where the others have {size}")
        elif size % entry_size:
            findings.error(
                f"{kind}-file-size", file, f"its {size} bytes are no whole number of {entry_size}-byte entries"
            )
        if end is not None and segment.base_offset != end:
            findings.error(
                f"{kind}-file-missing",
                file,
                f"the file before it is missing: nothing covers {end} to {segment.base_offset}",
            )
        elif size and segment.base_offset % size:
            findings.error(f"{kind}-file-name", file, f"the name is no multiple of the file size {size}")
        end = segment.base_offset + size
    for name in row.foreign:
        findings.note(
            "foreign", store.relative(row.folder / name), "this is no file of a store; a broker may refuse it"
        )


def entry_blocks(row: SegmentRow, segment: SegmentFile, dtype: np.dtype[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """(position, entries) of what is written in a segment of entries of one size; holes are left out."""
    step = dtype.itemsize
    done = 0
    for start, hole in row.written_ranges(segment, 0):
        # A hole begins and ends at pages, an entry does not.
        position = max(start - start % step, done)
        end = min(hole + step - 1 - (hole - 1) % step, segment.size - segment.size % step)
        while position < end:
            data = row.read(segment.base_offset + position, min(BLOCK_SIZE // step * step, end - position))
            count = len(data) // step
            if count == 0:
                return
            yield position, np.frombuffer(data, dtype, count)
            position += count * step
        done = position

"""What the walk over the log has shown so far, for those who check what was made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fusee.store.offline.files import OfflineStore
    from fusee.store.offline.findings import Findings


class LogFacts:
    """Limits of the log, its damaged places, and whether the store was closed."""

    def __init__(self, store: OfflineStore, *, is_unclean: bool) -> None:
        self._store = store
        self.is_unclean = is_unclean
        """Whether the store is open or was not closed: its files may be at different points in time."""
        self.min_offset = store.log.min_offset
        self.end_offset = store.log.min_offset
        self.last_timestamp_ms = 0
        self.damages: list[tuple[int, int]] = []

    def place(self, log_offset: int) -> tuple[str, int]:
        """The file and the position in it of a log offset."""
        segment = self._store.log.locate(log_offset)
        if segment is None:
            return self._store.relative(self._store.log.folder), log_offset
        return self._store.relative(segment.path), log_offset - segment.base_offset

    def in_damage(self, log_offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these lie in a damaged place."""
        inside = np.zeros(len(log_offsets), bool)
        for start, end in self.damages:
            inside |= (log_offsets >= start) & (log_offsets < end)
        return inside

    def tell_beyond(self, findings: Findings, kind: str, path: Path, name: str, count: int) -> None:
        """Report entries that point behind the end of the log: an unclean stop may leave some."""
        file = self._store.relative(path)
        text = f"{count} entries of {name} point behind the end of the log at {self.end_offset}"
        if self.is_unclean:
            findings.note(kind, file, f"{text}; recovery cuts them")
        else:
            findings.error(kind, file, text)

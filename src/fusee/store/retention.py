"""Which segments may go, and whether the disk takes more (Java: CleanCommitLogService).

Whole segments of the commit log expire, oldest first, never the last: by age (`file_reserved_time` hours after the last
write) at the hours of `delete_when`, or at any hour when the disk is fuller than `disk_max_used_space_ratio`, or when
told by hand; and without regard to age above `disk_space_clean_forcibly_ratio`. Above `disk_space_warning_level_ratio`
puts are refused until there is space again.

Percentages mislead on large disks and on small ones, so free bytes count too: with `disk_free_bytes_enough` free no
percentage matters, with less than `disk_free_bytes_min` puts are refused whatever the percentage says.
"""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from fusee.store.config import StoreConfig
    from fusee.store.filesystem import FileSystem, Space

_HOUR_MS: Final = 3_600_000
_MANUAL_ROUNDS: Final = 20


class DiskState(Enum):
    """How full the disk is, by what follows from it."""

    FINE = "fine"
    EXPIRE_NOW = "expired segments go at any hour"
    FORCE = "the oldest segments go though they have not expired"
    FULL = "puts are refused"


class Decision(NamedTuple):
    """What one round found."""

    expired: int
    state: DiskState
    space: Space


class Retention:
    """Decides; the engine deletes."""

    def __init__(self, config: StoreConfig, files: FileSystem) -> None:
        self.config = config
        self._files = files
        self._manual_rounds = 0

    def delete_by_hand(self) -> None:
        """Delete what has expired in the next rounds, at whatever hour."""
        self._manual_rounds = _MANUAL_ROUNDS

    def disk_state(self, folder: Path) -> tuple[DiskState, Space]:
        """How full the disk of this folder is."""
        config = self.config
        space = self._files.space(folder)
        if space.free < config.disk_free_bytes_min:
            return DiskState.FULL, space
        if space.free >= config.disk_free_bytes_enough:
            return DiskState.FINE, space
        percent = space.used_ratio * 100
        if percent > config.disk_space_warning_level_ratio:
            return DiskState.FULL, space
        if percent > config.disk_space_clean_forcibly_ratio:
            return DiskState.FORCE, space
        if percent > config.disk_max_used_space_ratio:
            return DiskState.EXPIRE_NOW, space
        return DiskState.FINE, space

    def decide(self, folder: Path, segments: list[Path], now_ms: int) -> Decision:
        """How many of these segments, from the first, are to go in this round."""
        config = self.config
        state, space = self.disk_state(folder)
        hour = time.localtime(now_ms / 1000).tm_hour
        by_hour = hour in {int(text) for text in config.delete_when.split(";")}
        by_hand = self._manual_rounds > 0
        self._manual_rounds = max(self._manual_rounds - 1, 0)
        if not (by_hour or by_hand or state is not DiskState.FINE):
            return Decision(0, state, space)
        force = config.clean_file_forcibly_enable and state in (DiskState.FORCE, DiskState.FULL)
        expired = 0
        for path in segments[:-1][: config.delete_file_batch_max]:
            age_ms = now_ms - self._files.modified_ms(path)
            if not force and age_ms < config.file_reserved_time * _HOUR_MS:
                break
            expired += 1
        return Decision(expired, state, space)

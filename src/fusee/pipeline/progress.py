"""How far a range is read, and the ways in which it cannot be read on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusee.pipeline.ranges import QueueRange


class RangeProgress:
    """A range, and the offset up to which its messages were handed on."""

    __slots__ = ("position", "range")

    def __init__(self, asked: QueueRange) -> None:
        self.range = asked
        self.position = asked.start_offset

    @property
    def is_done(self) -> bool:
        return self.position >= self.range.end_offset


class OffsetsGoneError(Exception):
    """A broker says that the next offsets of a range are not in its queue, or no longer.

    Not for users: whoever reads decides whether that is a loss, a gap to skip, or a slave that is behind.
    """

    def __init__(
        self, progress: RangeProgress, min_offset: int, max_offset: int, *, skip_to: int, remark: str = ""
    ) -> None:
        super().__init__(f"the queue has offsets {min_offset} to {max_offset - 1} ({remark})")
        self.progress = progress
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.skip_to = skip_to

    @property
    def is_at_end(self) -> bool:
        """Whether the queue ends before what was asked for."""
        return self.progress.position >= self.max_offset

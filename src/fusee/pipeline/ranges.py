"""What one task reads of one queue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """The messages of one queue from `start_offset` up to, and without, `end_offset`. It travels to the workers."""

    topic: str
    broker_name: str
    queue_id: int
    start_offset: int
    end_offset: int

    @property
    def count(self) -> int:
        """How many places it has; fewer messages where a filter left gaps."""
        return max(0, self.end_offset - self.start_offset)

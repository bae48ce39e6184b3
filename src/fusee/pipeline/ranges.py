"""What one task reads: of a queue, of a store directory."""

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


@dataclass(frozen=True, slots=True)
class StoreRange:
    """What one task reads of one store directory. It travels to the workers."""

    directory: str
    broker_name: str
    ranges: tuple[QueueRange, ...]
    is_of_batches: bool = False
    verify: bool = True
    """Whether the checksum of each body is compared."""

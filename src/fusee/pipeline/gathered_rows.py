"""A request that is being filled: rows of one batch after the other, until it is as large as a broker takes.

Spark's batches are smaller than a broker's requests, because they are copied several times on their way and should stay
in the processor's cache. What a request costs whoever sends it and whoever takes it is divided among all its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.message.batch import BATCH_COUNT_MAX
from fusee.pipeline.write_routes import STORED_BYTES_MAX

if TYPE_CHECKING:
    from fusee.pipeline.row_encoding import EncodedRows
    from fusee.pipeline.send_memory import Piece
    from fusee.pipeline.write_routes import WriteQueue


class GatheredRows:
    """Rows for one queue, end to end at the beginning of some memory."""

    __slots__ = ("_memory", "_stored_extra", "count", "piece", "queue", "size")

    def __init__(self, queue: WriteQueue, memory: memoryview, piece: Piece | None, stored_extra: int) -> None:
        """`piece` is where the memory is from; a broker makes each row larger by `stored_extra` bytes."""
        self.queue = queue
        self.piece = piece
        self.size = 0
        self.count = 0
        self._memory = memory
        self._stored_extra = stored_extra

    @property
    def capacity(self) -> int:
        return len(self._memory)

    @property
    def body(self) -> memoryview:
        return self._memory[: self.size]

    def take(self, rows: EncodedRows, first: int) -> int:
        """Fill in what fits of these rows, from `first` on; where the rest begins.

        The first row of all must fit into the memory, and is taken however large a broker makes it.
        """
        size = self.size
        end = rows.end(
            first,
            len(self._memory) - size,
            BATCH_COUNT_MAX - self.count,
            stored_max=STORED_BYTES_MAX - size - self.count * self._stored_extra,
            stored_extra=self._stored_extra,
        )
        if not self.count:
            end = max(end, first + 1)
        if end > first:
            self.size = size + rows.size(first, end)
            self.count += end - first
            rows.fill(first, end, self._memory[size : self.size])
        return end

"""Where arriving bytes are put: a scratch that all connections of a thread share, or the body that they belong to.

A connection that is told where to read to needs no copy of what it reads. Most reads bring small frames, several at
once: they go to the scratch and are copied out of it, which costs little. The body of a large frame is read straight
into its own memory. That grows with what has arrived, so that a peer who only announces much is given nothing.

The compiled form is `arrival.pyx`, a twin of this module written for C: there the memory of a body is the `bytes`
object that it becomes.
"""

from __future__ import annotations

from typing import Final

SCRATCH_SIZE: Final = 256 * 1024
FIRST_SIZE: Final = 256 * 1024
"""What a body is given at first, if it wants as much; later twice as much as has arrived."""


class Scratch:
    """Memory for one read at a time."""

    __slots__ = ("_data",)

    def __init__(self, size: int = SCRATCH_SIZE) -> None:
        self._data = bytearray(size)

    def room(self, limit: int) -> memoryview:
        """Where up to this many bytes may be put."""
        return memoryview(self._data)[: max(limit, 0)]

    def taken(self, count: int) -> bytes:
        """The first bytes of what was put there. Raises ValueError when it has not as many."""
        if not 0 <= count <= len(self._data):
            raise ValueError(f"{count} bytes were put into {len(self._data)}")
        return bytes(self._data[:count])


class ArrivingBody:
    """The body of a frame, of which more is to come."""

    __slots__ = ("_data", "_size", "count")

    def __init__(self, size: int, begun: bytes) -> None:
        """`begun` has arrived already; it is less than all."""
        if len(begun) > size:
            raise ValueError(f"{len(begun)} bytes of {size} have arrived")
        self._size = size
        self.count = len(begun)
        """Bytes that are there."""
        self._data = bytearray(min(size, max(FIRST_SIZE, 2 * len(begun))))
        self._data[: len(begun)] = begun

    def room(self) -> memoryview:
        """Where the next bytes may be put."""
        if self.count == len(self._data):
            larger = bytearray(min(self._size, 2 * self.count))
            larger[: self.count] = self._data
            self._data = larger
        return memoryview(self._data)[self.count :]

    def add(self, count: int) -> bool:
        """Count what was put there; whether that was the last of it. Raises ValueError for more than there was room."""
        if not 0 <= count <= len(self._data) - self.count:
            raise ValueError(f"{count} bytes were put into {len(self._data) - self.count}")
        self.count += count
        return self.count == self._size

    def taken(self) -> bytes:
        """The body. Raises ValueError before it is whole."""
        if self.count != self._size:
            raise ValueError(f"{self.count} bytes of {self._size} have arrived")
        return bytes(self._data)

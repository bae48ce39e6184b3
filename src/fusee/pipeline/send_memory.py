"""Memory in which requests wait for their answers: pieces of one ring, taken in order and free again when answered.

A request may have to be sent again, so its bytes stay until its answer is there. With fresh memory for each the system
would clear pages all the time; this is a few megabytes that are always the same.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Piece:
    """A part of the ring."""

    memory: SendMemory
    start: int
    end: int
    is_free: bool = False

    @property
    def view(self) -> memoryview:
        return self.memory.view[self.start : self.end]


class SendMemory:
    """The ring. What is shared with a broker is `is_shared`: a request then need only say where its bytes lie."""

    def __init__(self, view: memoryview, *, first: int = 0, is_shared: bool = False) -> None:
        """Bytes before `first` are not given out."""
        self.view = view
        self.is_shared = is_shared
        self._first = first
        self._pieces: deque[Piece] = deque()

    @property
    def size_max(self) -> int:
        """What a piece can have at most."""
        return len(self.view) - self._first

    @property
    def is_free(self) -> bool:
        """Whether nobody has a piece of it."""
        return not self._pieces

    def take(self, size: int) -> Piece | None:
        """The next so many bytes; None when they are not free yet."""
        start = self._place(size)
        if start is None:
            return None
        piece = Piece(self, start, start + size)
        self._pieces.append(piece)
        return piece

    def _place(self, size: int) -> int | None:
        if not self._pieces:
            return self._first if size <= self.size_max else None
        oldest, newest = self._pieces[0], self._pieces[-1]
        if newest.start < oldest.start:  # gone round already
            return newest.end if size <= oldest.start - newest.end else None
        if size <= len(self.view) - newest.end:
            return newest.end
        return self._first if size <= oldest.start - self._first else None

    def release(self, piece: Piece) -> None:
        """Its request is answered."""
        piece.is_free = True
        while self._pieces and self._pieces[0].is_free:
            self._pieces.popleft()

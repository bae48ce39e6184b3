"""Memory in which requests wait for their answers: pieces of a few megabytes, free again when answered.

A request may have to be sent again, so its bytes stay until its answer is there. With fresh memory for each the system
would clear pages all the time. The first place that is free is given out, so that what was used last is used again:
while answers come quickly, the pieces under way fit into the processor's cache.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

_START: Final = attrgetter("start")


@dataclass(slots=True, eq=False)
class Piece:
    """A part of the memory."""

    memory: SendMemory
    start: int
    end: int

    @property
    def view(self) -> memoryview:
        return self.memory.view[self.start : self.end]


class SendMemory:
    """All of it. What is shared with a broker is `is_shared`: a request then need only say where its bytes lie."""

    def __init__(self, view: memoryview, *, first: int = 0, is_shared: bool = False) -> None:
        """Bytes before `first` are not given out."""
        self.view = view
        self.is_shared = is_shared
        self._first = first
        # By their places.
        self._pieces: list[Piece] = []

    @property
    def size_max(self) -> int:
        """What a piece can have at most."""
        return len(self.view) - self._first

    @property
    def is_free(self) -> bool:
        """Whether nobody has a piece of it."""
        return not self._pieces

    def take(self, size: int) -> Piece | None:
        """So many bytes; None when there are not so many free in one place."""
        start = self._first
        for taken in self._pieces:
            if size <= taken.start - start:
                break
            start = taken.end
        if size > len(self.view) - start:
            return None
        piece = Piece(self, start, start + size)
        insort(self._pieces, piece, key=_START)
        return piece

    def trim(self, piece: Piece, size: int) -> None:
        """So much of it is needed, from its beginning; the rest is free."""
        piece.end = min(piece.end, piece.start + size)

    def release(self, piece: Piece) -> None:
        """Its request is answered."""
        self._pieces.remove(piece)

"""Answers remembered by the text of the request: the same question gets the same answer until a table changes.

Clients of a name server repeat themselves. Two requests of one client for one topic differ in nothing but the digits
of `opaque`, and the answer, apart from those digits, follows from the tables. So for questions that only read, the
header without its opaque is the key under which the finished answer is kept; a repeated question is neither decoded nor
dispatched. Whatever differs in any other byte (version, language, zone, an unknown field) is another question.

Only headers with the word `opaque` once are learned, so that cutting out its digits cannot confuse two questions.
Everything is forgotten when `stamp` changes, which must cover all that an answer depends on.

The compiled form is `recall.pyx`, a twin of this module written for C: with one request per connection this is all that
happens between a read and a write.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.wire.command import Command
    from fusee.wire.hot_encode import PreparedAnswer

_WORDS: Final = Struct(">iI")
_OPAQUE: Final = b'"opaque":'
_DIGITS_MAX: Final = 10
_HEADER_SIZE_MAX: Final = 1024


class Recall:
    """The memory of one name server; bounded, and emptied when it is full."""

    def __init__(self, stamp: Callable[[], object], entries_max: int) -> None:
        self._stamp = stamp
        self._stamp_of_answers: object = None
        self._answers: dict[bytes, PreparedAnswer] = {}
        self._entries_max = entries_max

    def __len__(self) -> int:
        return len(self._answers)

    def answers(self, data: bytes) -> bytes | None:
        """The frames of the answers to the requests in these bytes; None unless all are whole, bare, and known.

        (Bare: with a JSON header and no body.)
        """
        if not self._answers:
            return None
        if self._stamp() != self._stamp_of_answers:
            self._answers.clear()
            return None
        frames: list[bytes] = []
        position, size = 0, len(data)
        while size - position >= 8:
            length, header_size = _WORDS.unpack_from(data, position)
            end = position + 4 + length
            if header_size + 4 != length or end > size:
                return None
            frame = self._answer(data[position + 8 : end])
            if frame is None:
                return None
            frames.append(frame)
            position = end
        return b"".join(frames) if position == size and frames else None

    def _answer(self, header: bytes) -> bytes | None:
        start = header.find(_OPAQUE) + 9
        end = header.find(b",", start)
        digits = header[start:end]
        prepared = self._answers.get(header[:start] + header[end:])
        if prepared is None or not digits.isdigit() or len(digits) > _DIGITS_MAX:
            return None
        if digits[:1] == b"0" and len(digits) > 1:
            return None  # no number of JSON begins so
        return prepared.frame_of(digits)

    def learn(self, request: Command, prepared: PreparedAnswer) -> None:
        """Keep this answer for when the question comes again."""
        header = request.raw_header
        if header is None or request.body or len(header) > _HEADER_SIZE_MAX or header.count(b"opaque") != 1:
            return
        start = header.find(_OPAQUE) + 9
        end = header.find(b",", start)
        if start < 9 or end < 0:
            return
        stamp = self._stamp()
        if stamp != self._stamp_of_answers or len(self._answers) >= self._entries_max:
            self._answers.clear()
            self._stamp_of_answers = stamp
        self._answers[header[:start] + header[end:]] = prepared

"""The compiled twin of recall.py, where the theory is: the same memory, found and copied by C."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp, memcpy

cdef const char *OPAQUE = b'"opaque":'
cdef enum:
    OPAQUE_SIZE = 9
    DIGITS_MAX = 10
    HEADER_SIZE_MAX = 1024


cdef inline uint32_t word(const unsigned char *at) noexcept:
    return (<uint32_t>at[0]) << 24 | (<uint32_t>at[1]) << 16 | (<uint32_t>at[2]) << 8 | at[3]


cdef Py_ssize_t find_opaque(const char *text, Py_ssize_t size) noexcept:
    """Where the value of the first opaque begins; -1 without one."""
    cdef const char *at = text
    cdef const char *end = text + size - OPAQUE_SIZE
    while at <= end:
        at = <const char *>memchr(at, c'"', end - at + 1)
        if at == NULL:
            return -1
        if memcmp(at, OPAQUE, OPAQUE_SIZE) == 0:
            return at - text + OPAQUE_SIZE
        at += 1
    return -1


cdef class Recall:
    """The memory of one name server; bounded, and emptied when it is full."""

    cdef object _stamp
    cdef object _stamp_of_answers
    cdef dict _answers
    cdef Py_ssize_t _entries_max
    # Where the opaque was in the last header. One that is found there need not be looked for: a header in which it is
    # not the first is never known, because those that are learned have the word once.
    cdef Py_ssize_t _likely

    def __init__(self, stamp, Py_ssize_t entries_max):
        self._stamp = stamp
        self._stamp_of_answers = None
        self._answers = {}
        self._entries_max = entries_max
        self._likely = OPAQUE_SIZE

    def __len__(self):
        return len(self._answers)

    def answers(self, bytes data not None):
        """The frames of the answers to the requests in these bytes; None unless all are whole, bare, and known."""
        cdef const unsigned char *at
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t size = len(data)
        cdef uint32_t header_size
        cdef bytes frame
        cdef list frames = None
        if not self._answers:
            return None
        if self._stamp() != self._stamp_of_answers:
            self._answers.clear()
            return None
        at = <const unsigned char *>PyBytes_AS_STRING(data)
        while size - position >= 8:
            header_size = word(at + position + 4)
            if header_size > HEADER_SIZE_MAX + DIGITS_MAX or word(at + position) != header_size + 4:
                return None
            if <Py_ssize_t>header_size > size - position - 8:
                return None
            frame = self._answer(<const char *>at + position + 8, header_size)
            if frame is None:
                return None
            position += 8 + <Py_ssize_t>header_size
            if position == size and frames is None:
                return frame
            if frames is None:
                frames = []
            frames.append(frame)
        return b"".join(frames) if position == size and frames else None

    cdef bytes _answer(self, const char *header, Py_ssize_t size):
        cdef Py_ssize_t start = self._likely
        cdef Py_ssize_t end, place, head_size, rest_size
        cdef const char *comma
        cdef bytes key, head, rest, frame
        cdef char *into
        if start > size or memcmp(header + start - OPAQUE_SIZE, OPAQUE, OPAQUE_SIZE) != 0:
            start = find_opaque(header, size)
            if start < 0:
                return None
            self._likely = start
        comma = <const char *>memchr(header + start, c",", size - start)
        if comma == NULL:
            return None
        end = comma - header
        if not 0 < end - start <= DIGITS_MAX or (header[start] == c"0" and end - start > 1):
            return None
        for place in range(start, end):
            if not c"0" <= header[place] <= c"9":
                return None
        key = PyBytes_FromStringAndSize(NULL, size - (end - start))
        into = PyBytes_AS_STRING(key)
        memcpy(into, header, start)
        memcpy(into + start, comma, size - end)
        entry = self._answers.get(key)
        if entry is None:
            return None
        head = (<list>(<tuple>entry)[0])[end - start]
        rest = (<tuple>entry)[1]
        head_size, rest_size = len(head), len(rest)
        frame = PyBytes_FromStringAndSize(NULL, head_size + (end - start) + rest_size)
        into = PyBytes_AS_STRING(frame)
        memcpy(into, PyBytes_AS_STRING(head), head_size)
        memcpy(into + head_size, header + start, end - start)
        memcpy(into + head_size + (end - start), PyBytes_AS_STRING(rest), rest_size)
        return frame

    def learn(self, request, prepared):
        """Keep this answer for when the question comes again."""
        cdef Py_ssize_t start, end
        header = request.raw_header
        if header is None or request.body or len(header) > HEADER_SIZE_MAX or header.count(b"opaque") != 1:
            return
        start = header.find(OPAQUE) + OPAQUE_SIZE
        end = header.find(b",", start)
        if start < OPAQUE_SIZE or end < 0:
            return
        stamp = self._stamp()
        if stamp != self._stamp_of_answers or len(self._answers) >= self._entries_max:
            self._answers.clear()
            self._stamp_of_answers = stamp
        self._answers[header[:start] + header[end:]] = (prepared.heads, prepared.rest)

"""The compiled twin of record_keys.py: the same hashes, found from byte to byte."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memchr, memcmp

import numpy as np

cdef enum:
    PLACES = 3
    TAG = 0
    UNIQUE = 1
    KEYS = 2


def find_keys_of(view, starts, ends):
    """The keys in the properties view[starts[r]:ends[r]] of each row; None when they are not all ASCII."""
    keys = RecordKeys(view, starts, ends)
    return keys if keys.is_ascii else None


cdef inline uint32_t hashed(uint32_t code, const unsigned char *at, Py_ssize_t size) noexcept nogil:
    """Java's hash of a text that begins with one of this hash and goes on with these bytes."""
    cdef Py_ssize_t place
    for place in range(size):
        code = code * 31 + at[place]
    return code


cdef inline int64_t stored(uint32_t code) noexcept nogil:
    """What an index file stores for this hash: without sign, and 0 for the one that has no counterpart."""
    cdef int64_t value = <int32_t>code
    if value == -2147483648:
        return 0
    return -value if value < 0 else value


@cython.boundscheck(False)
@cython.wraparound(False)
cdef class RecordKeys:
    """Tags and keys of many records, as hashes."""

    cdef const unsigned char[::1] _view
    # Where the value of each kind lies in each row, begin and end; the end is 0 where there is none.
    cdef int64_t[:, :, ::1] _places
    cdef readonly object tags_codes
    cdef readonly bint is_ascii

    def __init__(self, view, starts, ends):
        cdef const int64_t[::1] first = np.ascontiguousarray(starts, np.int64)
        cdef const int64_t[::1] last = np.ascontiguousarray(ends, np.int64)
        cdef Py_ssize_t count = first.shape[0]
        cdef Py_ssize_t row
        self._view = view
        self.is_ascii = True
        if last.shape[0] != count:
            raise ValueError("as many ends as starts are needed")
        for row in range(count):
            if not 0 <= first[row] <= last[row] <= self._view.shape[0]:
                raise ValueError(f"properties at {first[row]}..{last[row]} lie outside the data")
        self._places = np.zeros((count, PLACES, 2), np.int64)
        self.tags_codes = np.zeros(count, np.int64)
        cdef int64_t[::1] codes = self.tags_codes
        for row in range(count):
            if not self._scan(row, first[row], last[row]):
                self.is_ascii = False
                return
            if self._places[row, TAG, 1]:
                codes[row] = <int32_t>hashed(
                    0, &self._view[self._places[row, TAG, 0]], self._places[row, TAG, 1] - self._places[row, TAG, 0]
                )

    cdef bint _scan(self, Py_ssize_t row, int64_t position, int64_t end) noexcept:
        """Note where the values of one row lie; whether all of it is ASCII."""
        cdef const unsigned char *at
        cdef const unsigned char *mark
        cdef const unsigned char *stop
        cdef int64_t entry_end, name_size, place
        cdef int kind
        if position == end:
            return True
        at = &self._view[0]
        cdef unsigned char seen = 0
        for place in range(position, end):
            seen |= at[place]
        if seen & 0x80:
            return False
        while position < end:
            stop = <const unsigned char *>memchr(at + position, 2, end - position)
            entry_end = end if stop == NULL else stop - at
            mark = <const unsigned char *>memchr(at + position, 1, entry_end - position)
            if mark != NULL:
                name_size = mark - at - position
                kind = -1
                if name_size == 4:
                    if memcmp(at + position, b"TAGS", 4) == 0:
                        kind = TAG
                    elif memcmp(at + position, b"KEYS", 4) == 0:
                        kind = KEYS
                elif name_size == 8 and memcmp(at + position, b"UNIQ_KEY", 8) == 0:
                    kind = UNIQUE
                if kind >= 0 and position + name_size + 1 < entry_end:
                    self._places[row, kind, 0] = position + name_size + 1
                    self._places[row, kind, 1] = entry_end
            position = entry_end + 1
        return True

    def index_keys(self, prefixes, topic_ids, is_kept):
        """(hash as an index stores it, row) of the unique key, the keys and the tag of each row that is kept, in order."""
        cdef const uint32_t[:, ::1] before = np.ascontiguousarray(prefixes, np.uint32)
        cdef const int64_t[::1] topics = np.ascontiguousarray(topic_ids, np.int64)
        cdef const unsigned char[::1] kept = np.ascontiguousarray(is_kept).view(np.uint8)
        cdef Py_ssize_t count = self._places.shape[0]
        cdef Py_ssize_t row, found = 0
        cdef int64_t start, end, position
        cdef const unsigned char *at
        cdef const unsigned char *space
        if topics.shape[0] != count or kept.shape[0] != count or before.shape[1] != 2:
            raise ValueError("one topic and one verdict are needed for each row")
        for row in range(count):
            if not 0 <= topics[row] < before.shape[0]:
                raise ValueError(f"there is no topic {topics[row]}")
        # A token takes two bytes of KEYS with the space behind it.
        cdef Py_ssize_t room = 0
        for row in range(count):
            room += 3 + (self._places[row, KEYS, 1] - self._places[row, KEYS, 0]) // 2
        hash_array = np.empty(room, np.int64)
        row_array = np.empty(room, np.intp)
        cdef int64_t[::1] hashes = hash_array
        cdef Py_ssize_t[::1] rows = row_array
        if count == 0 or room == 0 or self._view.shape[0] == 0:
            return hash_array[:0], row_array[:0]
        at = &self._view[0]
        for row in range(count):
            if not kept[row]:
                continue
            start, end = self._places[row, UNIQUE, 0], self._places[row, UNIQUE, 1]
            if end:
                hashes[found] = stored(hashed(before[topics[row], 0], at + start, end - start))
                rows[found] = row
                found += 1
            position, end = self._places[row, KEYS, 0], self._places[row, KEYS, 1]
            while position < end:
                space = <const unsigned char *>memchr(at + position, c" ", end - position)
                start = position
                position = end if space == NULL else space - at
                if position > start:
                    hashes[found] = stored(hashed(before[topics[row], 0], at + start, position - start))
                    rows[found] = row
                    found += 1
                position += 1
            start, end = self._places[row, TAG, 0], self._places[row, TAG, 1]
            if end:
                hashes[found] = stored(hashed(before[topics[row], 1], at + start, end - start))
                rows[found] = row
                found += 1
        return hash_array[:found], row_array[:found]

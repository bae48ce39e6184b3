"""The compiled twin of record_keys.py: the same hashes, found from byte to byte."""

cimport cython
from libc.stdint cimport int64_t, uint32_t

import numpy as np

include "../message/property_keys.pxi"


def find_keys_of(view, starts, ends):
    """The keys in the properties view[starts[r]:ends[r]] of each row; None when they are not all ASCII."""
    keys = RecordKeys(view, starts, ends)
    return keys if keys.is_ascii else None


@cython.boundscheck(False)
@cython.wraparound(False)
cdef class RecordKeys:
    """Tags and keys of many records, as hashes."""

    cdef const unsigned char[::1] _view
    cdef const int64_t[::1] _starts
    # Where the value of each kind lies in the properties of each row.
    cdef int64_t[:, :, ::1] _places
    cdef readonly object tags_codes
    cdef readonly bint is_ascii

    def __init__(self, view, starts, ends):
        cdef const int64_t[::1] last = np.ascontiguousarray(ends, np.int64)
        self._starts = np.ascontiguousarray(starts, np.int64)
        cdef Py_ssize_t count = self._starts.shape[0]
        cdef Py_ssize_t row
        cdef fusee_value *found
        cdef const unsigned char *at
        self._view = view
        self.is_ascii = True
        if last.shape[0] != count:
            raise ValueError("as many ends as starts are needed")
        for row in range(count):
            if not 0 <= self._starts[row] <= last[row] <= self._view.shape[0]:
                raise ValueError(f"properties at {self._starts[row]}..{last[row]} lie outside the data")
        self._places = np.zeros((count, FUSEE_KEY_KINDS, 2), np.int64)
        self.tags_codes = np.zeros(count, np.int64)
        cdef int64_t[::1] codes = self.tags_codes
        for row in range(count):
            if self._starts[row] == last[row]:
                continue
            at = &self._view[self._starts[row]]
            found = <fusee_value *>&self._places[row, 0, 0]
            if not fusee_find_keys(at, last[row] - self._starts[row], found):
                self.is_ascii = False
                return
            codes[row] = fusee_tags_code(at, found)

    def index_keys(self, prefixes, topic_ids, is_kept):
        """(hash as an index stores it, row) of the unique key, the keys and the tag of each row that is kept, in order."""
        cdef const uint32_t[:, ::1] before = np.ascontiguousarray(prefixes, np.uint32)
        cdef const int64_t[::1] topics = np.ascontiguousarray(topic_ids, np.int64)
        cdef const unsigned char[::1] kept = np.ascontiguousarray(is_kept).view(np.uint8)
        cdef Py_ssize_t count = self._starts.shape[0]
        cdef Py_ssize_t row
        cdef int64_t found = 0
        cdef int64_t end
        cdef int64_t room = 0
        cdef const fusee_value *places
        if topics.shape[0] != count or kept.shape[0] != count or before.shape[1] != 2:
            raise ValueError("one topic and one verdict are needed for each row")
        for row in range(count):
            if not 0 <= topics[row] < before.shape[0]:
                raise ValueError(f"there is no topic {topics[row]}")
            room += fusee_key_hashes_max(<const fusee_value *>&self._places[row, 0, 0])
        hash_array = np.empty(room, np.int64)
        row_array = np.empty(room, np.intp)
        cdef int64_t[::1] hashes = hash_array
        cdef Py_ssize_t[::1] rows = row_array
        if room == 0 or self._view.shape[0] == 0:
            return hash_array[:0], row_array[:0]
        for row in range(count):
            if not kept[row]:
                continue
            places = <const fusee_value *>&self._places[row, 0, 0]
            end = found + fusee_key_hashes(
                &self._view[0] + self._starts[row],
                places,
                before[topics[row], 0],
                before[topics[row], 1],
                &hashes[found],
            )
            while found < end:
                rows[found] = row
                found += 1
        return hash_array[:found], row_array[:found]

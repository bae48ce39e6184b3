"""The compiled twin of record_parts.py: the same, from part to part."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy

import numpy as np

cdef extern from "crc32.h":
    void fusee_crc_begin() noexcept
    uint32_t fusee_crc32(const unsigned char *at, size_t size) noexcept nogil

SIZE_MAX = (1 << 31) - 2

cdef int64_t MOST = SIZE_MAX

fusee_crc_begin()


@cython.boundscheck(False)
@cython.wraparound(False)
cdef int64_t checked(int64_t size, const int64_t[::1] starts, const int64_t[::1] ends) except -1:
    """How many bytes these parts of a view of this size have together."""
    cdef Py_ssize_t row
    cdef int64_t total = 0
    if starts.shape[0] != ends.shape[0]:
        raise ValueError(f"{starts.shape[0]} parts begin and {ends.shape[0]} end")
    for row in range(starts.shape[0]):
        if starts[row] < 0 or ends[row] < starts[row] or ends[row] > size:
            raise ValueError(f"a part does not lie in the {size} bytes given")
        total += ends[row] - starts[row]
    return total


@cython.boundscheck(False)
@cython.wraparound(False)
def copy_parts(view, starts, ends):
    """view[starts[i]:ends[i]] of each i, end to end: where each begins in the copy, and its end; and the copy."""
    cdef const unsigned char[::1] data = view
    cdef const int64_t[::1] begins = np.ascontiguousarray(starts, np.int64)
    cdef const int64_t[::1] stops = np.ascontiguousarray(ends, np.int64)
    cdef Py_ssize_t count = begins.shape[0]
    cdef int64_t total = checked(data.shape[0], begins, stops)
    cdef Py_ssize_t row
    cdef size_t size
    cdef int32_t at = 0
    if total > MOST:
        raise ValueError(f"parts of {total} bytes are larger than {SIZE_MAX}")
    offset_array = np.empty(count + 1, np.int32)
    copied = np.empty(total, np.uint8)
    cdef int32_t[::1] offsets = offset_array
    cdef unsigned char[::1] memory = copied
    cdef unsigned char *into = &memory[0] if total else NULL
    offsets[0] = 0
    for row in range(count):
        size = <size_t>(stops[row] - begins[row])
        if size:
            memcpy(into + at, &data[begins[row]], size)
            at += <int32_t>size
        offsets[row + 1] = at
    return offset_array, copied


@cython.boundscheck(False)
@cython.wraparound(False)
def checksums(view, starts, ends):
    """The checksum of each part, as it is stored with a body."""
    cdef const unsigned char[::1] data = view
    cdef const int64_t[::1] begins = np.ascontiguousarray(starts, np.int64)
    cdef const int64_t[::1] stops = np.ascontiguousarray(ends, np.int64)
    cdef Py_ssize_t count = begins.shape[0]
    cdef Py_ssize_t row
    checked(data.shape[0], begins, stops)
    found = np.zeros(count, np.int32)
    cdef int32_t[::1] sums = found
    for row in range(count):
        if stops[row] > begins[row]:
            sums[row] = <int32_t>(fusee_crc32(&data[begins[row]], <size_t>(stops[row] - begins[row])) & 0x7FFFFFFF)
    return found


@cython.boundscheck(False)
@cython.wraparound(False)
def find_values(view, starts, ends, bytes name not None):
    """Where the value of this property begins and ends in each string of properties; -1 twice where there is none."""
    cdef const unsigned char[::1] data = view
    cdef const int64_t[::1] begins = np.ascontiguousarray(starts, np.int64)
    cdef const int64_t[::1] stops = np.ascontiguousarray(ends, np.int64)
    cdef Py_ssize_t count = begins.shape[0]
    cdef Py_ssize_t row
    cdef const unsigned char *text = name
    cdef Py_ssize_t size = len(name)
    cdef const unsigned char *at
    cdef const unsigned char *end
    cdef const unsigned char *entry_end
    cdef const unsigned char *base = &data[0] if data.shape[0] else NULL
    checked(data.shape[0], begins, stops)
    start_array, end_array = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    cdef int64_t[::1] value_starts = start_array
    cdef int64_t[::1] value_ends = end_array
    if not size or memchr(text, 1, size) != NULL or memchr(text, 2, size) != NULL:
        return start_array, end_array
    for row in range(count):
        at, end = base + begins[row], base + stops[row]
        while end - at > size + 1:
            # what is named so has its separator where it must be, and no entry ends before
            entry_end = <const unsigned char *>memchr(at, 2, end - at)
            if entry_end == NULL:
                entry_end = end
            if entry_end - at > size + 1 and at[size] == 1 and memcmp(at, text, size) == 0:
                value_starts[row] = at + size + 1 - base
                value_ends[row] = entry_end - base
            at = entry_end + 1
    return start_array, end_array

"""The compiled twin of index_entries.py: the same entries, from one to the next."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint32_t

import numpy as np

cdef enum:
    ENTRY_SIZE = 20


cdef inline void write_int(unsigned char *at, uint32_t value) noexcept:
    at[0] = value >> 24
    at[1] = value >> 16 & 0xFF
    at[2] = value >> 8 & 0xFF
    at[3] = value & 0xFF


@cython.boundscheck(False)
@cython.wraparound(False)
def enter(slots, hashes, log_offsets, timestamps_ms, int64_t begin_timestamp_ms, int64_t first_number):
    """The entries of these keys as they are stored; the slot of each, what it held before it, how many were empty."""
    cdef int32_t[::1] table = slots
    cdef const int64_t[::1] keys = np.ascontiguousarray(hashes, np.int64)
    cdef const int64_t[::1] offsets = np.ascontiguousarray(log_offsets, np.int64)
    cdef const int64_t[::1] times = np.ascontiguousarray(timestamps_ms, np.int64)
    cdef Py_ssize_t size = keys.shape[0]
    cdef Py_ssize_t row
    cdef int64_t count = table.shape[0]
    cdef int64_t seconds, place
    cdef Py_ssize_t new_slots = 0
    if offsets.shape[0] != size or times.shape[0] != size:
        raise ValueError("one place and one time are needed for each hash")
    for row in range(size):
        if keys[row] < 0:
            raise ValueError("a hash is negative")
    place_array, previous_array = np.empty(size, np.int64), np.empty(size, np.int32)
    cdef int64_t[::1] places = place_array
    cdef int32_t[::1] previous = previous_array
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, size * ENTRY_SIZE)
    cdef unsigned char *into = <unsigned char *>PyBytes_AS_STRING(packed)
    if size and not count:
        raise ValueError("there are no slots")
    for row in range(size):
        place = keys[row] % count
        places[row] = place
        previous[row] = table[place]
        new_slots += table[place] == 0
        table[place] = <int32_t>(first_number + row)
        seconds = times[row] - begin_timestamp_ms
        seconds = 0 if seconds < 0 else seconds // 1000
        if seconds > 0x7FFFFFFF:
            seconds = 0x7FFFFFFF
        write_int(into, <uint32_t>keys[row])
        write_int(into + 4, <uint32_t>(offsets[row] >> 32))
        write_int(into + 8, <uint32_t>offsets[row])
        write_int(into + 12, <uint32_t>seconds)
        write_int(into + 16, <uint32_t>previous[row])
        into += ENTRY_SIZE
    return packed, place_array, previous_array, new_slots


@cython.boundscheck(False)
@cython.wraparound(False)
def leave(slots, places, previous):
    """Give the slots what they held before."""
    cdef int32_t[::1] table = slots
    cdef const int64_t[::1] taken = np.ascontiguousarray(places, np.int64)
    cdef const int32_t[::1] held = np.ascontiguousarray(previous, np.int32)
    cdef Py_ssize_t row
    if held.shape[0] != taken.shape[0]:
        raise ValueError("one number is needed for each place")
    for row in range(taken.shape[0]):
        if not 0 <= taken[row] < table.shape[0]:
            raise IndexError(f"there is no slot {taken[row]}")
    for row in range(taken.shape[0] - 1, -1, -1):
        table[taken[row]] = held[row]

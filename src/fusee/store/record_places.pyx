"""The compiled twin of record_places.py: the same places, found from record to record."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t

import numpy as np

from fusee.store.record_fields import HEAD, TAIL, windows

cdef enum:
    BLANK_SIZE_MIN = 8
    RECORD_SIZE_MIN = 91
    PLACES = 7
    STEP = 1024

cdef uint32_t MAGIC_V1 = 0xDAA320A7
cdef uint32_t MAGIC_V2 = 0xDAA320AB


cdef inline int32_t read_int(const unsigned char *at) noexcept nogil:
    return <int32_t>((<uint32_t>at[0]) << 24 | (<uint32_t>at[1]) << 16 | (<uint32_t>at[2]) << 8 | at[3])


@cython.boundscheck(False)
@cython.wraparound(False)
def walk(data, int64_t position, int64_t stop):
    """Positions from here on by their total sizes, and the end of the last one, which may lie beyond the data."""
    cdef const unsigned char[::1] view = data
    cdef int64_t end = view.shape[0]
    cdef int64_t size
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t room = STEP
    if position < 0 or stop > end:
        raise ValueError(f"a walk from {position} to {stop} leaves the {end} bytes given")
    found = np.empty(room, np.int64)
    cdef int64_t[::1] positions = found
    while position < stop and end - position >= 4:
        size = read_int(&view[position])
        if size < BLANK_SIZE_MIN:
            break
        if count == room:
            room *= 4
            found = np.concatenate((found, np.empty(room - count, np.int64)))
            positions = found
        positions[count] = position
        count += 1
        position += size
    return found[:count].copy(), position


@cython.boundscheck(False)
@cython.wraparound(False)
def places_of(view, positions):
    """What `record_scan.RecordParts` holds behind the positions, in its order; None when anything contradicts itself."""
    cdef const unsigned char[::1] data = view
    cdef const int64_t[::1] begins = np.ascontiguousarray(positions, np.int64)
    cdef Py_ssize_t count = begins.shape[0]
    cdef int64_t end = data.shape[0]
    found = np.empty((PLACES, count), np.int64)
    cdef int64_t[:, ::1] into = found
    cdef Py_ssize_t row
    cdef int64_t position, total, record_end, stored, body_start, body_size, body_end, topic_start, topic_size, topic_end
    cdef int64_t properties_start, properties_size
    cdef int64_t before_end = 0
    cdef uint32_t magic
    cdef bint is_long
    for row in range(count):
        position = begins[row]
        if position < before_end or end - position < RECORD_SIZE_MIN:
            return None
        total = read_int(&data[position])
        magic = <uint32_t>read_int(&data[position + 4])
        is_long = magic == MAGIC_V2
        if (magic != MAGIC_V1 and not is_long) or total < RECORD_SIZE_MIN or total > end - position:
            return None
        record_end = position + total
        stored = position + 56 + (12 if data[position + 39] & 0x10 else 0)
        body_start = stored + 32 + (12 if data[position + 39] & 0x20 else 0)
        if body_start + 3 > record_end:
            return None
        body_size = read_int(&data[body_start - 4])
        if body_size < 0 or body_size > record_end - body_start:
            return None
        body_end = body_start + body_size
        topic_start = body_end + (2 if is_long else 1)
        if topic_start + 2 > record_end:
            return None
        topic_size = data[body_end]
        if is_long:
            topic_size = topic_size << 8 | data[body_end + 1]
        topic_end = topic_start + topic_size
        properties_start = topic_end + 2
        if topic_size > (32767 if is_long else 127) or properties_start > record_end:
            return None
        properties_size = <int64_t>data[topic_end] << 8 | data[topic_end + 1]
        if properties_size > 32767 or properties_start + properties_size != record_end:
            return None
        into[0, row] = stored
        into[1, row] = body_start
        into[2, row] = body_end
        into[3, row] = topic_start
        into[4, row] = topic_end
        into[5, row] = properties_start
        into[6, row] = record_end
        before_end = record_end
    head = windows(view, f"V{HEAD.itemsize}")[positions].view(HEAD)
    tail = windows(view, f"V{TAIL.itemsize}")[found[1] - TAIL.itemsize].view(TAIL)
    return (head, tail, *found)

"""The compiled twin of record_places.py: the same places, found from record to record."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp

import numpy as np

from fusee.store.record_fields import HEAD, TAIL, windows

cdef enum:
    BLANK_SIZE_MIN = 8
    RECORD_SIZE_MIN = 91
    PLACES = 7
    FIELDS = 9
    STEP = 1024
    AHEAD = 6
    LINE = 64

cdef extern from "prefetch.h":
    void fusee_prefetch(const void *at) noexcept nogil

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
    cdef int64_t size, guess
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
        # Records lie too far apart for the processor to guess the next; most are as large as the one before. Whoever
        # walks reads beginnings and ends soon.
        guess = position + AHEAD * size
        if 2 * LINE <= guess < end - 2 * LINE:
            fusee_prefetch(&view[guess - 2 * LINE])
            fusee_prefetch(&view[guess - LINE])
            fusee_prefetch(&view[guess])
            fusee_prefetch(&view[guess + LINE])
        position += size
    return found[:count].copy(), position


cdef inline int64_t read_long(const unsigned char *at) noexcept nogil:
    return <int64_t>(<uint64_t><uint32_t>read_int(at) << 32 | <uint32_t>read_int(at + 4))


cdef struct Places:
    int64_t stored
    int64_t body_start
    int64_t body_end
    int64_t topic_start
    int64_t topic_end
    int64_t properties_start
    int64_t record_end


cdef inline bint locate(
    const unsigned char *data, int64_t end, int64_t position, int64_t before_end, Places *found
) noexcept nogil:
    """Where the parts of the record at this position lie; False when it contradicts itself."""
    cdef int64_t total, body_size, topic_size, properties_size
    cdef uint32_t magic
    cdef bint is_long
    if position < before_end or end - position < RECORD_SIZE_MIN:
        return False
    total = read_int(data + position)
    magic = <uint32_t>read_int(data + position + 4)
    is_long = magic == MAGIC_V2
    if (magic != MAGIC_V1 and not is_long) or total < RECORD_SIZE_MIN or total > end - position:
        return False
    found.record_end = position + total
    found.stored = position + 56 + (12 if data[position + 39] & 0x10 else 0)
    found.body_start = found.stored + 32 + (12 if data[position + 39] & 0x20 else 0)
    if found.body_start + 3 > found.record_end:
        return False
    body_size = read_int(data + found.body_start - 4)
    if body_size < 0 or body_size > found.record_end - found.body_start:
        return False
    found.body_end = found.body_start + body_size
    found.topic_start = found.body_end + (2 if is_long else 1)
    if found.topic_start + 2 > found.record_end:
        return False
    topic_size = data[found.body_end]
    if is_long:
        topic_size = topic_size << 8 | data[found.body_end + 1]
    found.topic_end = found.topic_start + topic_size
    found.properties_start = found.topic_end + 2
    if topic_size > (32767 if is_long else 127) or found.properties_start > found.record_end:
        return False
    properties_size = <int64_t>data[found.topic_end] << 8 | data[found.topic_end + 1]
    return properties_size <= 32767 and found.properties_start + properties_size == found.record_end


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
    cdef int64_t before_end = 0
    cdef Places places
    for row in range(count):
        if begins[row] < 0 or not locate(&data[0], end, begins[row], before_end, &places):
            return None
        into[0, row] = places.stored
        into[1, row] = places.body_start
        into[2, row] = places.body_end
        into[3, row] = places.topic_start
        into[4, row] = places.topic_end
        into[5, row] = places.properties_start
        into[6, row] = places.record_end
        before_end = places.record_end
    head = windows(view, f"V{HEAD.itemsize}")[positions].view(HEAD)
    tail = windows(view, f"V{TAIL.itemsize}")[found[1] - TAIL.itemsize].view(TAIL)
    return (head, tail, *found)


@cython.boundscheck(False)
@cython.wraparound(False)
def fields_of(view, positions):
    """What dispatching asks of the records at these positions; None as `places_of`."""
    cdef const unsigned char[::1] data = view
    cdef const int64_t[::1] begins = np.ascontiguousarray(positions, np.int64)
    cdef Py_ssize_t count = begins.shape[0]
    cdef int64_t end = data.shape[0]
    found = np.empty((FIELDS, count), np.int64)
    cdef int64_t[:, ::1] into = found
    cdef Py_ssize_t row
    cdef int64_t before_end = 0
    cdef const unsigned char *at
    cdef Places places
    for row in range(count):
        if begins[row] < 0 or not locate(&data[0], end, begins[row], before_end, &places):
            return None
        at = &data[begins[row]]
        into[0, row] = read_int(at)
        into[1, row] = read_int(at + 12)
        into[2, row] = read_long(at + 20)
        into[3, row] = read_int(at + 36)
        into[4, row] = read_long(&data[places.stored])
        into[5, row] = places.topic_start
        into[6, row] = places.topic_end
        into[7, row] = places.properties_start
        into[8, row] = places.record_end
        before_end = places.record_end
    return tuple(found)


@cython.boundscheck(False)
@cython.wraparound(False)
def are_equal(view, starts, ends):
    """Whether view[starts[i]:ends[i]] is the same for all i; all of them lie in the view."""
    cdef const unsigned char[::1] data = view
    cdef const int64_t[::1] begins = np.ascontiguousarray(starts, np.int64)
    cdef const int64_t[::1] stops = np.ascontiguousarray(ends, np.int64)
    cdef Py_ssize_t count = begins.shape[0]
    cdef Py_ssize_t row
    cdef int64_t size
    if stops.shape[0] != count:
        raise ValueError("as many ends as starts are needed")
    for row in range(count):
        if begins[row] < 0 or stops[row] < begins[row] or stops[row] > data.shape[0]:
            raise ValueError(f"a part does not lie in the {data.shape[0]} bytes given")
        size = stops[row] - begins[row]
        if size != stops[0] - begins[0] or (size and memcmp(&data[begins[row]], &data[begins[0]], size) != 0):
            return False
    return True

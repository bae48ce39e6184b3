"""The compiled twin of batch_body.py, where the forms are named: the same records, each body copied once.

The bytes may be memory that somebody else can write to. So sizes are read once, checked, and kept: whatever becomes of
the bytes meanwhile, nothing is read or written outside, and records have the sizes that they say.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

import numpy as np

from fusee.errors import MessageError
from fusee.message.batch import BATCH_COUNT_MAX, split_batch
from fusee.message.record_layout import MAGIC_V1

cdef extern from "crc32.h":
    void fusee_crc_begin() noexcept
    uint32_t fusee_copy_crc32(unsigned char *into, const unsigned char *at, size_t size) noexcept nogil

include "../message/property_keys.pxi"

cdef enum:
    ELEMENT_SIZE_MIN = 22
    RECORD_SIZE_MIN = 91
    PROPERTIES_SIZE_MAX = 32767
    HOST_SIZE = 8
    HEAD_SIZE = 88
    FIRST_ROOM = 256
    AHEAD = 6
    # So many messages before one is copied its lines are asked for, the first of them.
    COPIES_AHEAD = 2
    COPY_SIZE_MAX = 2048
    LINE = 64

cdef extern from "prefetch.h":
    void fusee_prefetch(const void *at) noexcept nogil
    void fusee_prefetch_copy(void *into, const void *at, size_t size) noexcept nogil

cdef uint32_t _MAGIC = MAGIC_V1
cdef str _CHANGED = "the batch was changed while it was taken; leave it alone until it is answered"

fusee_crc_begin()


cdef inline int32_t read_int(const unsigned char *at) noexcept:
    return <int32_t>((<uint32_t>at[0]) << 24 | (<uint32_t>at[1]) << 16 | (<uint32_t>at[2]) << 8 | at[3])


cdef inline void write_int(unsigned char *at, uint32_t value) noexcept:
    at[0] = value >> 24
    at[1] = value >> 16 & 0xFF
    at[2] = value >> 8 & 0xFF
    at[3] = value & 0xFF


cdef inline void write_long(unsigned char *at, uint64_t value) noexcept:
    write_int(at, <uint32_t>(value >> 32))
    write_int(at + 4, <uint32_t>value)


cdef inline bint contains(const unsigned char *at, Py_ssize_t size, bytes mark) noexcept:
    cdef const unsigned char *wanted = <const unsigned char *>PyBytes_AS_STRING(mark)
    cdef Py_ssize_t wanted_size = len(mark)
    cdef const unsigned char *end = at + size - wanted_size
    if not wanted_size:
        return True
    while at <= end:
        at = <const unsigned char *>memchr(at, wanted[0], end - at + 1)
        if at == NULL:
            return False
        if memcmp(at, wanted, wanted_size) == 0:
            return True
        at += 1
    return False


cdef struct Sizes:
    int32_t total
    int32_t body


@cython.boundscheck(False)
@cython.wraparound(False)
cdef class BatchBody:
    """The messages of a batch, as they came."""

    cdef object _given
    cdef const unsigned char[::1] _view
    cdef Sizes *_sizes
    cdef list _elements
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t body_size_largest
    cdef readonly bint has_zero_properties

    def __init__(self, data not None, Py_ssize_t count_max=BATCH_COUNT_MAX):
        """Raises MessageError, naming the position, when it is malformed or has too many messages."""
        cdef const unsigned char *at
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t end, left, size, body_size, properties_size, guess
        cdef Py_ssize_t room = 0
        self._given = data
        self._view = data
        end = self._view.shape[0]
        at = &self._view[0] if end else NULL
        while position < end:
            left = end - position
            if self.count == count_max or left < ELEMENT_SIZE_MIN:
                break
            size = read_int(at + position)
            body_size = read_int(at + position + 16)
            if not ELEMENT_SIZE_MIN <= size <= left or not 0 <= body_size <= size - ELEMENT_SIZE_MIN:
                break
            # Most messages are as large as the one before.
            guess = position + AHEAD * size
            if LINE <= guess < end - LINE:
                fusee_prefetch(at + guess - LINE)
                fusee_prefetch(at + guess)
            properties_size = size - ELEMENT_SIZE_MIN - body_size
            if (
                properties_size > PROPERTIES_SIZE_MAX
                or (<Py_ssize_t>at[position + 20 + body_size] << 8 | at[position + 21 + body_size]) != properties_size
            ):
                break
            if body_size > self.body_size_largest:
                self.body_size_largest = body_size
            if memchr(at + position + 22 + body_size, 0, properties_size) != NULL:
                self.has_zero_properties = True
            if self.count == room:
                room = 4 * room or FIRST_ROOM
                self._make_room(room)
            self._sizes[self.count].total = <int32_t>size
            self._sizes[self.count].body = <int32_t>body_size
            self.count += 1
            position += size
        if position < end:
            split_batch(bytes(data), count_max=count_max)  # which says what is wrong
            raise MessageError(f"batch element at {position}: it cannot be read")

    def __dealloc__(self):
        PyMem_Free(self._sizes)

    cdef int _make_room(self, Py_ssize_t room) except -1:
        cdef Sizes *larger = <Sizes *>PyMem_Realloc(self._sizes, room * sizeof(Sizes))
        if larger == NULL:
            raise MemoryError
        self._sizes = larger
        return 0

    def __len__(self):
        return self.count

    @property
    def elements(self):
        """Every message by itself."""
        if self._elements is None:
            elements = split_batch(bytes(self._given), count_max=self.count)
            if len(elements) != self.count:
                raise MessageError(_CHANGED)
            self._elements = elements
        return self._elements

    def has_in_properties(self, bytes mark not None):
        """Whether these bytes stand in the properties of any message."""
        cdef const unsigned char *at
        cdef Py_ssize_t number
        cdef Sizes sizes
        if not self.count:
            return False
        at = &self._view[0]
        for number in range(self.count):
            sizes = self._sizes[number]
            if contains(at + 22 + sizes.body, sizes.total - ELEMENT_SIZE_MIN - sizes.body, mark):
                return True
            at += sizes.total
        return False

    def packed_size(self, Py_ssize_t topic_size):
        """What the records of a plain batch take, for a topic of this many bytes."""
        return self._view.shape[0] + self.count * (RECORD_SIZE_MIN + topic_size - ELEMENT_SIZE_MIN)

    def pack(
        self,
        bytes topic not None,
        queue_id,
        queue_offset,
        log_offset,
        sys_flag,
        born_timestamp_ms,
        bytes born_host not None,
        store_timestamp_ms,
        bytes store_host not None,
        reconsume_times,
        prepared_transaction_offset,
        key_prefixes=None,
    ):
        """The records of a plain batch from these offsets on, where they lie, and their keys."""
        cdef int32_t queue_number, flags, times
        cdef int64_t queue_place, log_place, last_place, born, stored, prepared
        try:
            queue_number, flags, times = queue_id, sys_flag, reconsume_times
            queue_place, log_place, prepared = queue_offset, log_offset, prepared_transaction_offset
            born, stored = born_timestamp_ms, store_timestamp_ms
            # the last record's offsets are the largest
            last_place = queue_offset + self.count
            last_place = log_offset + self.packed_size(len(topic) - 1)
        except OverflowError as error:
            raise MessageError(f"a number does not fit its field of the record: {error}") from error
        if len(born_host) != HOST_SIZE or len(store_host) != HOST_SIZE:
            raise MessageError("a plain batch has IPv4 hosts")
        cdef Py_ssize_t topic_size = len(topic)
        cdef Py_ssize_t total = self.packed_size(topic_size - 1)
        cdef bytes packed = PyBytes_FromStringAndSize(NULL, total)
        starts = np.empty(self.count + 1, np.int64)
        cdef int64_t[::1] begins = starts
        cdef FoundKeys keys = None if key_prefixes is None else FoundKeys(self.count, key_prefixes)
        cdef unsigned char head[HEAD_SIZE]
        cdef const unsigned char *source = &self._view[0] if self.count else NULL
        cdef unsigned char *into = <unsigned char *>PyBytes_AS_STRING(packed)
        cdef Py_ssize_t number, properties_size
        cdef int64_t position = 0
        cdef int64_t record_size
        cdef Sizes sizes
        # What all records have in common is written once.
        write_int(head + 4, _MAGIC)
        write_int(head + 12, <uint32_t>queue_number)
        write_int(head + 36, <uint32_t>flags)
        write_long(head + 40, <uint64_t>born)
        memcpy(head + 48, PyBytes_AS_STRING(born_host), HOST_SIZE)
        write_long(head + 56, <uint64_t>stored)
        memcpy(head + 64, PyBytes_AS_STRING(store_host), HOST_SIZE)
        write_int(head + 72, <uint32_t>times)
        write_long(head + 76, <uint64_t>prepared)
        for number in range(self.count):
            sizes = self._sizes[number]
            properties_size = sizes.total - ELEMENT_SIZE_MIN - sizes.body
            record_size = RECORD_SIZE_MIN - 1 + topic_size + sizes.body + properties_size
            begins[number] = position
            # Most messages are as large as the one before.
            fusee_prefetch_copy(
                into + COPIES_AHEAD * record_size, source + COPIES_AHEAD * sizes.total, min(sizes.total, COPY_SIZE_MAX)
            )
            memcpy(into, head, HEAD_SIZE)
            write_int(into, <uint32_t>record_size)
            memcpy(into + 16, source + 12, 4)  # the flag, as it came
            write_long(into + 20, <uint64_t>queue_place)
            write_long(into + 28, <uint64_t>log_place)
            write_int(into + 84, <uint32_t>sizes.body)
            # of what was copied, which nobody else can change
            write_int(
                into + 8, fusee_copy_crc32(into + HEAD_SIZE, source + 20, <size_t>sizes.body) & 0x7FFFFFFF
            )
            into += HEAD_SIZE + sizes.body
            memcpy(into, PyBytes_AS_STRING(topic), topic_size)
            into += topic_size
            into[0] = properties_size >> 8
            into[1] = properties_size & 0xFF
            memcpy(into + 2, source + 22 + sizes.body, properties_size)
            if memchr(into + 2, 0, properties_size) != NULL and not self.has_zero_properties:
                raise MessageError(_CHANGED)
            if keys is not None and not keys.add(number, into + 2, properties_size):
                keys = None
            into += 2 + properties_size
            source += sizes.total
            position += record_size
            log_place += record_size
            queue_place += 1
        begins[self.count] = position
        return packed, starts, None if keys is None else keys.result()


@cython.boundscheck(False)
@cython.wraparound(False)
cdef class FoundKeys:
    """Tags and keys of the records so far."""

    cdef object _tags_codes
    cdef int64_t[::1] _codes
    cdef object _hashes
    cdef object _rows
    cdef int64_t[::1] _hash_view
    cdef int64_t[::1] _row_view
    cdef int64_t _count
    cdef uint32_t _before_key
    cdef uint32_t _before_tag

    def __init__(self, Py_ssize_t rows, prefixes):
        self._before_key, self._before_tag = prefixes
        self._codes = self._tags_codes = np.zeros(rows, np.int64)
        self._make_room(2 * rows + FIRST_ROOM)

    cdef int _make_room(self, Py_ssize_t room) except -1:
        hashes, rows = np.empty(room, np.int64), np.empty(room, np.int64)
        if self._count:
            hashes[: self._count], rows[: self._count] = self._hashes[: self._count], self._rows[: self._count]
        self._hashes = self._hash_view = hashes
        self._rows = self._row_view = rows
        return 0

    cdef bint add(self, Py_ssize_t row, const unsigned char *at, Py_ssize_t size) except -1:
        """Note what these properties say; False when they are not ASCII."""
        cdef fusee_value found[FUSEE_KEY_KINDS]
        cdef int64_t end
        if not fusee_find_keys(at, size, found):
            return False
        end = self._count + fusee_key_hashes_max(found)
        if end > self._hash_view.shape[0]:
            self._make_room(2 * end)
        self._codes[row] = fusee_tags_code(at, found)
        end = self._count + fusee_key_hashes(
            at, found, self._before_key, self._before_tag, &self._hash_view[self._count]
        )
        while self._count < end:
            self._row_view[self._count] = row
            self._count += 1
        return True

    cdef tuple result(self):
        return self._tags_codes, self._hashes[: self._count], self._rows[: self._count].view(np.intp)

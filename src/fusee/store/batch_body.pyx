"""The compiled twin of batch_body.py, where the forms are named: the same records, each body copied once."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from fusee.errors import MessageError
from fusee.message.batch import BATCH_COUNT_MAX, split_batch
from fusee.message.record_layout import MAGIC_V1

cdef extern from "crc32.h":
    void fusee_crc_begin() noexcept
    uint32_t fusee_crc32(const unsigned char *at, size_t size) noexcept nogil

cdef enum:
    ELEMENT_SIZE_MIN = 22
    RECORD_SIZE_MIN = 91
    PROPERTIES_SIZE_MAX = 32767
    HOST_SIZE = 8
    HEAD_SIZE = 88

cdef uint32_t _MAGIC = MAGIC_V1

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
    write_int(at + 4, <uint32_t>(value & 0xFFFFFFFF))


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


cdef class BatchBody:
    """The messages of a batch, as they came."""

    cdef bytes _data
    cdef list _elements
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t body_size_largest
    cdef readonly bint has_zero_properties

    def __init__(self, bytes data not None, Py_ssize_t count_max=BATCH_COUNT_MAX):
        """Raises MessageError, naming the position, when it is malformed or has too many messages."""
        cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t end = len(data)
        cdef Py_ssize_t left, size, body_size, properties_size
        self._data = data
        while position < end:
            left = end - position
            if self.count == count_max or left < ELEMENT_SIZE_MIN:
                break
            size = read_int(at + position)
            body_size = read_int(at + position + 16)
            if not ELEMENT_SIZE_MIN <= size <= left or not 0 <= body_size <= size - ELEMENT_SIZE_MIN:
                break
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
            self.count += 1
            position += size
        if position < end:
            split_batch(data, count_max=count_max)  # which says what is wrong
            raise MessageError(f"batch element at {position}: it cannot be read")

    def __len__(self):
        return self.count

    @property
    def elements(self):
        """Every message by itself."""
        if self._elements is None:
            self._elements = split_batch(self._data, count_max=self.count)
        return self._elements

    def has_in_properties(self, bytes mark not None):
        """Whether these bytes stand in the properties of any message."""
        cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(self._data)
        cdef Py_ssize_t number, size, body_size
        for number in range(self.count):
            size = read_int(at)
            body_size = read_int(at + 16)
            if contains(at + 22 + body_size, size - ELEMENT_SIZE_MIN - body_size, mark):
                return True
            at += size
        return False

    def packed_size(self, Py_ssize_t topic_size):
        """What the records of a plain batch take, for a topic of this many bytes."""
        return len(self._data) + self.count * (RECORD_SIZE_MIN + topic_size - ELEMENT_SIZE_MIN)

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
    ):
        """The records of a plain batch from these offsets on, end to end, and the log offset of each."""
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
        cdef const unsigned char *source = <const unsigned char *>PyBytes_AS_STRING(self._data)
        cdef Py_ssize_t topic_size = len(topic)
        cdef Py_ssize_t total = len(self._data) + self.count * (RECORD_SIZE_MIN - 1 + topic_size - ELEMENT_SIZE_MIN)
        cdef bytes packed = PyBytes_FromStringAndSize(NULL, total)
        cdef unsigned char *into = <unsigned char *>PyBytes_AS_STRING(packed)
        cdef Py_ssize_t number, size, body_size, properties_size, record_size
        cdef list log_offsets = []
        for number in range(self.count):
            size = read_int(source)
            body_size = read_int(source + 16)
            properties_size = size - ELEMENT_SIZE_MIN - body_size
            record_size = RECORD_SIZE_MIN - 1 + topic_size + body_size + properties_size
            write_int(into, <uint32_t>record_size)
            write_int(into + 4, _MAGIC)
            write_int(into + 8, fusee_crc32(source + 20, <size_t>body_size) & 0x7FFFFFFF)
            write_int(into + 12, <uint32_t>queue_number)
            memcpy(into + 16, source + 12, 4)  # the flag, as it came
            write_long(into + 20, <uint64_t>queue_place)
            write_long(into + 28, <uint64_t>log_place)
            write_int(into + 36, <uint32_t>flags)
            write_long(into + 40, <uint64_t>born)
            memcpy(into + 48, PyBytes_AS_STRING(born_host), HOST_SIZE)
            write_long(into + 56, <uint64_t>stored)
            memcpy(into + 64, PyBytes_AS_STRING(store_host), HOST_SIZE)
            write_int(into + 72, <uint32_t>times)
            write_long(into + 76, <uint64_t>prepared)
            # size and bytes of the body stand next to each other in both forms, and so do those of the properties
            memcpy(into + 84, source + 16, 4 + body_size)
            into += HEAD_SIZE + body_size
            memcpy(into, PyBytes_AS_STRING(topic), topic_size)
            into += topic_size
            memcpy(into, source + 20 + body_size, 2 + properties_size)
            into += 2 + properties_size
            source += size
            log_offsets.append(log_place)
            log_place += record_size
            queue_place += 1
        return packed, tuple(log_offsets)

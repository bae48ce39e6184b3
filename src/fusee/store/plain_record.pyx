"""The compiled twin of plain_record.py: the same bytes, each part copied once."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fusee.errors import MessageError
from fusee.message.record_layout import MAGIC_V1, PROPERTIES_SIZE_MAX

cdef extern from "crc32.h":
    void fusee_crc_begin() noexcept
    uint32_t fusee_copy_crc32(unsigned char *into, const unsigned char *at, size_t size) noexcept nogil

cdef enum:
    HEAD_SIZE = 88
    HOST_SIZE = 8

cdef uint32_t _MAGIC = MAGIC_V1
cdef Py_ssize_t _PROPERTIES_SIZE_MAX = PROPERTIES_SIZE_MAX

fusee_crc_begin()


cdef inline void write_int(unsigned char *at, uint32_t value) noexcept:
    at[0] = value >> 24
    at[1] = value >> 16 & 0xFF
    at[2] = value >> 8 & 0xFF
    at[3] = value & 0xFF


cdef inline void write_long(unsigned char *at, uint64_t value) noexcept:
    write_int(at, <uint32_t>(value >> 32))
    write_int(at + 4, <uint32_t>value)


def pack_plain_record(
    bytes topic not None,
    bytes body not None,
    bytes properties not None,
    queue_id,
    flag,
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
    """The record; `topic` stands behind its length. Raises MessageError when a number does not fit its field."""
    cdef int32_t queue_number, own_flag, flags, times
    cdef int64_t queue_place, log_place, born, stored, prepared
    cdef Py_ssize_t topic_size = len(topic)
    cdef Py_ssize_t body_size = len(body)
    cdef Py_ssize_t properties_size = len(properties)
    cdef Py_ssize_t size = HEAD_SIZE + body_size + topic_size + 2 + properties_size
    cdef int32_t total
    try:
        queue_number, own_flag, flags, times = queue_id, flag, sys_flag, reconsume_times
        queue_place, log_place, prepared = queue_offset, log_offset, prepared_transaction_offset
        born, stored = born_timestamp_ms, store_timestamp_ms
        total = size
    except OverflowError as error:
        raise MessageError(f"a number does not fit its field of the record: {error}") from error
    if size > 0x7FFFFFFF:
        raise MessageError("a number does not fit its field of the record: the size of the record")
    if len(born_host) != HOST_SIZE or len(store_host) != HOST_SIZE or properties_size > _PROPERTIES_SIZE_MAX:
        raise MessageError("a plain record has IPv4 hosts, and properties that fit")
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, size)
    cdef unsigned char *into = <unsigned char *>PyBytes_AS_STRING(packed)
    cdef uint32_t crc = fusee_copy_crc32(
        into + HEAD_SIZE, <const unsigned char *>PyBytes_AS_STRING(body), <size_t>body_size
    )
    write_int(into, <uint32_t>total)
    write_int(into + 4, _MAGIC)
    write_int(into + 8, crc & 0x7FFFFFFF)
    write_int(into + 12, <uint32_t>queue_number)
    write_int(into + 16, <uint32_t>own_flag)
    write_long(into + 20, <uint64_t>queue_place)
    write_long(into + 28, <uint64_t>log_place)
    write_int(into + 36, <uint32_t>flags)
    write_long(into + 40, <uint64_t>born)
    memcpy(into + 48, PyBytes_AS_STRING(born_host), HOST_SIZE)
    write_long(into + 56, <uint64_t>stored)
    memcpy(into + 64, PyBytes_AS_STRING(store_host), HOST_SIZE)
    write_int(into + 72, <uint32_t>times)
    write_long(into + 76, <uint64_t>prepared)
    write_int(into + 84, <uint32_t>body_size)
    into += HEAD_SIZE + body_size
    memcpy(into, PyBytes_AS_STRING(topic), topic_size)
    into += topic_size
    into[0] = properties_size >> 8
    into[1] = properties_size & 0xFF
    memcpy(into + 2, PyBytes_AS_STRING(properties), properties_size)
    return packed

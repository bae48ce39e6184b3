"""The compiled twin of gathered_entries.py: the same body, each message copied once."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy, memset

from fusee.client.results import SendResult

cdef enum:
    ELEMENT_SIZE_MIN = 22
    BODY_SIZE_MAX = 0x7FFF0000
    PROPERTIES_SIZE_MAX = 0xFFFF

Entry = "tuple[asyncio.Future[SendResult] | CalledBack, str, int, bytes, str]"

cdef object _SendResult = SendResult


cdef inline void write_int(unsigned char *at, uint32_t value) noexcept:
    at[0] = value >> 24
    at[1] = value >> 16 & 0xFF
    at[2] = value >> 8 & 0xFF
    at[3] = value & 0xFF


def without_cancelled(list entries not None):
    """Those whose senders still wait; the list itself when all do."""
    cdef tuple entry
    for entry in entries:
        if entry[0].cancelled():
            return [each for each in entries if not each[0].cancelled()]
    return entries


def join_entries(list entries not None):
    """The body of a batch of these (`fusee.message.batch` gives its form)."""
    cdef tuple entry
    cdef bytes body
    cdef str text
    cdef const char *properties
    cdef Py_ssize_t body_size, properties_size
    cdef Py_ssize_t total = 0
    cdef int32_t flag
    for entry in entries:
        if len(entry) != 5:
            raise ValueError("an entry has five parts")
        body, text = entry[3], entry[4]
        if body is None or text is None:
            raise TypeError("an entry has a body and properties")
        PyUnicode_AsUTF8AndSize(text, &properties_size)
        if len(body) > BODY_SIZE_MAX or properties_size > PROPERTIES_SIZE_MAX:
            raise OverflowError("a body or its properties do not fit into an element of a batch")
        total += ELEMENT_SIZE_MIN + len(body) + properties_size
    cdef bytes joined = PyBytes_FromStringAndSize(NULL, total)
    cdef unsigned char *into = <unsigned char *>PyBytes_AS_STRING(joined)
    for entry in entries:
        flag, body, text = entry[2], entry[3], entry[4]
        body_size = len(body)
        properties = PyUnicode_AsUTF8AndSize(text, &properties_size)
        write_int(into, <uint32_t>(ELEMENT_SIZE_MIN + body_size + properties_size))
        memset(into + 4, 0, 8)
        write_int(into + 12, <uint32_t>flag)
        write_int(into + 16, <uint32_t>body_size)
        memcpy(into + 20, PyBytes_AS_STRING(body), body_size)
        into += 20 + body_size
        into[0] = properties_size >> 8
        into[1] = properties_size & 0xFF
        memcpy(into + 2, properties, properties_size)
        into += 2 + properties_size
    return joined


def deliver_each(list entries not None, result):
    """Give every sender who still waits his part of the result of all; the whole of it when it has no parts."""
    cdef list offset_ids = result.offset_id.split(",")
    cdef tuple entry
    cdef Py_ssize_t place
    if len(offset_ids) != len(entries):
        for entry in entries:
            if not entry[0].done():
                entry[0].set_result(result)
        return
    status, queue, durability = result.status, result.queue, result.durability
    transaction_id, region_id, trace_on = result.transaction_id, result.region_id, result.trace_on
    cdef long long queue_offset = result.queue_offset
    for place in range(len(offset_ids)):
        entry = entries[place]
        future = entry[0]
        if not future.done():
            future.set_result(
                _SendResult(
                    status,
                    entry[1],
                    offset_ids[place],
                    queue,
                    queue_offset + place,
                    transaction_id,
                    region_id,
                    trace_on,
                    durability,
                )
            )

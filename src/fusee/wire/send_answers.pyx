"""The compiled twin of send_answers.py: the same bytes, written one behind the other."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fusee.wire.hot_encode import TAIL, quote

cdef enum:
    DIGITS_MAX = 20
    OFFSET_DIGITS = 16

cdef const char *_HEX = b"0123456789ABCDEF"


cdef inline char *write_bytes(char *at, bytes data) noexcept:
    memcpy(at, PyBytes_AS_STRING(data), len(data))
    return at + len(data)


cdef inline char *write_number(char *at, int64_t value) noexcept:
    cdef char digits[DIGITS_MAX]
    cdef int place = DIGITS_MAX
    cdef uint64_t rest = <uint64_t>value
    if value < 0:
        at[0] = c"-"
        at += 1
        rest = 0 - rest
    while True:
        place -= 1
        digits[place] = <char>(c"0" + rest % 10)
        rest //= 10
        if rest == 0:
            break
    memcpy(at, digits + place, DIGITS_MAX - place)
    return at + (DIGITS_MAX - place)


cdef inline char *write_offset(char *at, uint64_t value) noexcept:
    cdef int place
    for place in range(OFFSET_DIGITS):
        at[OFFSET_DIGITS - 1 - place] = _HEX[value & 15]
        value >>= 4
    return at + OFFSET_DIGITS


cdef inline bint is_plain(bytes text) noexcept:
    """Whether nothing in it has to be escaped: letters and digits only, and at least one."""
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(text)
    cdef Py_ssize_t place
    for place in range(len(text)):
        if not (c"0" <= at[place] <= c"9" or c"A" <= at[place] <= c"Z" or c"a" <= at[place] <= c"z"):
            return False
    return len(text) > 0


cdef bytes quoted(bytes text):
    return b'"%b"' % text if is_plain(text) else quote(text.decode("utf-8", "replace"))


cdef class SendAnswers:
    """The answers of one broker to sends: what is the same in all of them is formatted once."""

    cdef bytes _start
    cdef bytes _transaction
    cdef bytes _id
    cdef bytes _middle
    cdef bytes _behind
    cdef bytes _tail
    cdef bytes _host

    def __init__(self, bytes store_host not None, str region_id not None, trace_on):
        """`store_host` is the packed address that offset ids begin with."""
        self._host = store_host.hex().upper().encode()
        self._start = b'{"code":0,"extFields":{"queueId":"'
        self._transaction = b'","transactionId":'
        self._id = b',"msgId":"'
        self._middle = b'","TRACE_ON":"%b","MSG_REGION":%b,"queueOffset":"' % (
            b"true" if trace_on else b"false",
            quote(region_id),
        )
        self._behind = b'"},"flag":1,"language":"PYTHON","opaque":'
        self._tail = TAIL

    def frame(self, int32_t opaque, int64_t log_offset, int32_t queue_id, int64_t queue_offset, bytes unique_id not None):
        """The answer to one message."""
        return self._frame(opaque, &log_offset, 1, queue_id, queue_offset, quoted(unique_id))

    def batch_frame(self, int32_t opaque, log_offsets, int32_t queue_id, int64_t queue_offset, bytes unique_id not None):
        """The answer to a batch: the ids of all, joined; without a unique id of the batch it tells none."""
        cdef Py_ssize_t count = len(log_offsets)
        cdef bytes places = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
        cdef int64_t *place = <int64_t *>PyBytes_AS_STRING(places)
        cdef Py_ssize_t number
        for number in range(count):
            place[number] = log_offsets[number]
        return self._frame(opaque, place, count, queue_id, queue_offset, quoted(unique_id) if unique_id else None)

    cdef bytes _frame(
        self, int32_t opaque, const int64_t *log_offsets, Py_ssize_t count, int32_t queue_id, int64_t queue_offset, bytes name
    ):
        cdef Py_ssize_t room = (
            8 + len(self._start) + len(self._transaction) + len(self._id) + len(self._middle) + len(self._behind)
            + len(self._tail) + 3 * DIGITS_MAX + 3 + count * (len(self._host) + OFFSET_DIGITS + 1)
            + (len(name) if name is not None else 0)
        )
        cdef bytes work = PyBytes_FromStringAndSize(NULL, room)
        cdef char *begin = PyBytes_AS_STRING(work)
        cdef char *at = begin + 8
        cdef Py_ssize_t number
        at = write_bytes(at, self._start)
        at = write_number(at, queue_id)
        if name is not None:
            at = write_bytes(at, self._transaction)
            at = write_bytes(at, name)
            at = write_bytes(at, self._id)
        else:
            at = write_bytes(at, b'"')
            at = write_bytes(at, self._id)
        for number in range(count):
            if number:
                at[0] = c","
                at += 1
            at = write_bytes(at, self._host)
            at = write_offset(at, <uint64_t>log_offsets[number])
        at = write_bytes(at, self._middle)
        at = write_number(at, queue_offset)
        at = write_bytes(at, self._behind)
        at = write_number(at, opaque)
        at = write_bytes(at, self._tail)
        cdef uint32_t size = <uint32_t>(at - begin - 8)
        cdef uint32_t length = size + 4
        begin[0] = <char>(length >> 24)
        begin[1] = <char>(length >> 16 & 0xFF)
        begin[2] = <char>(length >> 8 & 0xFF)
        begin[3] = <char>(length & 0xFF)
        begin[4] = <char>(size >> 24)
        begin[5] = <char>(size >> 16 & 0xFF)
        begin[6] = <char>(size >> 8 & 0xFF)
        begin[7] = <char>(size & 0xFF)
        return PyBytes_FromStringAndSize(begin, at - begin)

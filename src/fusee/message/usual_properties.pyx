"""The compiled twin of usual_properties.py, where it is said what is unusual."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memchr, memcmp


cdef inline bint ends_with(const char *text, Py_ssize_t end, const char *name, Py_ssize_t size) noexcept:
    return end >= size and memcmp(text + end - size, name, size) == 0


def usual_unique_id(str properties not None):
    """The unique id in these properties; None when they are unusual, or have none, or two."""
    cdef Py_ssize_t size
    cdef const char *text = PyUnicode_AsUTF8AndSize(properties, &size)
    cdef const char *mark = text
    cdef const char *stop
    cdef Py_ssize_t at, start = -1
    cdef Py_ssize_t end = 0
    cdef bint waits = False
    cdef bint waits_truly = False
    if size == 0 or text[size - 1] != 2:
        return None
    while True:
        mark = <const char *>memchr(mark, 1, size - (mark - text))
        if mark == NULL:
            break
        at = mark - text
        if ends_with(text, at, b"UNIQ_KEY", 8):
            if start < 0:
                start = at + 1
                if at > 8 and text[at - 9] != 2:
                    return None
                stop = <const char *>memchr(mark, 2, size - at)
                end = stop - text  # there is one: the last byte
                if end == start:
                    return None
            elif at > end:
                return None
        elif (
            ends_with(text, at, b"DELAY", 5)
            or ends_with(text, at, b"TRAN_MSG", 8)
            or ends_with(text, at, b"MSG_REGION", 10)
            or ends_with(text, at, b"POP_CK", 6)
            or ends_with(text, at, b"INNER_NUM", 9)
        ):
            return None
        elif ends_with(text, at, b"WAIT", 4):
            waits = True
            if size - at >= 6 and memcmp(mark + 1, b"true\x02", 5) == 0:
                waits_truly = True
        mark += 1
    if start < 0 or (waits and not waits_truly):
        return None
    mark = text
    while True:
        mark = <const char *>memchr(mark, c"T", size - (mark - text))
        if mark == NULL:
            break
        if size - (mark - text) >= 7 and memcmp(mark, b"TIMER_D", 7) == 0:
            return None
        mark += 1
    return PyBytes_FromStringAndSize(text + start, end - start)

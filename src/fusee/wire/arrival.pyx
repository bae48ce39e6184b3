"""The compiled twin of arrival.py: memory that is not cleared, and bodies that are not copied."""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

SCRATCH_SIZE = 256 * 1024
FIRST_SIZE = 256 * 1024

cdef Py_ssize_t _FIRST = FIRST_SIZE


cdef class Scratch:
    """Memory for one read at a time."""

    cdef bytes _data
    cdef Py_ssize_t _size
    cdef Py_ssize_t _limit

    def __init__(self, Py_ssize_t size=SCRATCH_SIZE):
        self._data = PyBytes_FromStringAndSize(NULL, size)
        self._size = size
        self._limit = size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, PyBytes_AS_STRING(self._data), self._limit, 0, flags)

    def room(self, Py_ssize_t limit):
        """Where up to this many bytes may be put."""
        self._limit = min(max(limit, 0), self._size)
        return memoryview(self)

    def taken(self, Py_ssize_t count):
        """The first bytes of what was put there. Raises ValueError when it has not as many."""
        if count < 0 or count > self._size:
            raise ValueError(f"{count} bytes were put into {self._size}")
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self._data), count)


cdef class ArrivingBody:
    """The body of a frame, of which more is to come."""

    cdef bytes _data
    cdef Py_ssize_t _size
    cdef Py_ssize_t _room
    cdef readonly Py_ssize_t count

    def __init__(self, Py_ssize_t size, bytes begun not None):
        """`begun` has arrived already; it is less than all."""
        cdef Py_ssize_t count = len(begun)
        if count > size:
            raise ValueError(f"{count} bytes of {size} have arrived")
        self._size = size
        self.count = count
        self._room = min(size, max(_FIRST, 2 * count))
        self._data = PyBytes_FromStringAndSize(NULL, self._room)
        memcpy(PyBytes_AS_STRING(self._data), PyBytes_AS_STRING(begun), count)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(
            buffer, self, PyBytes_AS_STRING(self._data) + self.count, self._room - self.count, 0, flags
        )

    def room(self):
        """Where the next bytes may be put."""
        cdef bytes larger
        cdef Py_ssize_t size
        if self.count == self._room:
            size = min(self._size, 2 * self.count)
            larger = PyBytes_FromStringAndSize(NULL, size)
            memcpy(PyBytes_AS_STRING(larger), PyBytes_AS_STRING(self._data), self.count)
            self._data = larger
            self._room = size
        return memoryview(self)

    def add(self, Py_ssize_t count):
        """Count what was put there; whether that was the last of it. Raises ValueError for more than there was room."""
        if count < 0 or count > self._room - self.count:
            raise ValueError(f"{count} bytes were put into {self._room - self.count}")
        self.count += count
        return self.count == self._size

    def taken(self):
        """The body. Raises ValueError before it is whole."""
        if self.count != self._size:
            raise ValueError(f"{self.count} bytes of {self._size} have arrived")
        return self._data

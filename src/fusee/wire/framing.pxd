# C types of framing.py, for its compiled form: nothing here changes what it does.
cimport cython

cdef class FrameDecoder:
    cdef object _limits
    cdef Py_ssize_t _plain_max
    cdef Py_ssize_t _header_max
    cdef object _layouts
    cdef bytearray _tail
    cdef Py_ssize_t _need
    cdef object _body
    cdef object _command
    cdef bint _is_after_large
    cdef public object failure

    @cython.locals(length=cython.longlong, word=cython.longlong, body_start=cython.longlong, size=Py_ssize_t, header=bytes)
    cpdef list feed(self, bytes data)

    cpdef list _feed(self, bytes data)

    @cython.locals(tail=bytearray, position=Py_ssize_t, missing=Py_ssize_t, length=cython.longlong)
    cpdef Py_ssize_t _complete(self, bytes data) except? -2

    @cython.locals(
        size=Py_ssize_t, frame_max=cython.longlong, header_max=cython.longlong, need=Py_ssize_t, length=cython.longlong,
        word=cython.longlong, header_size=cython.longlong, end=cython.longlong, header_start=Py_ssize_t,
        body_start=Py_ssize_t,
    )
    cpdef _scan(self, bytes data, Py_ssize_t position, list commands)

    cpdef room(self, scratch)

    cpdef filled(self, Py_ssize_t count)

    @cython.locals(tail=bytearray, length=cython.longlong, word=cython.longlong, header_size=cython.longlong, body_start=cython.longlong)
    cpdef _begin_body(self)

    cpdef _decode(self, bytes header, cython.longlong word)

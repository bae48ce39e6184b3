# C types of link.py, for its compiled form: nothing here changes what it does.
cimport cython

cdef class Link:
    cdef public object _limits
    cdef public object _monotonic
    cdef public object _timers
    cdef public object _router
    cdef public object _recall
    cdef public object _listeners
    cdef public object _form
    cdef public bint _pauses_reading
    cdef public object _decoder
    cdef public object _scratch
    cdef public object _exchange
    cdef public object _transport
    cdef public object _deadline_timer
    cdef public double _deadline_at
    cdef public object _writable_waiters
    cdef public bint _write_paused
    cdef public object _close_error
    cdef public object remote_address
    cdef public object local_address
    cdef public bint is_open
    cdef public bint is_leaving
    cdef public double last_activity
    cdef public object partial_since
    cdef public dict attachments
    cdef object __weakref__

    cpdef get_buffer(self, size_hint)

    cpdef buffer_updated(self, Py_ssize_t count)

    cpdef data_received(self, bytes data)

    @cython.locals(flag=cython.longlong, out=list, pending=Py_ssize_t)
    cpdef _work(self, list commands)

    cpdef send(self, answer)

    cpdef send_frames(self, list frames)

    cpdef _collect(self, answer, list out)

    cpdef _write(self, list out)

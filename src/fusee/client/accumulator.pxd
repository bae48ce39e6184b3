# C types of accumulator.py, for its compiled form: nothing here changes what it does.
cimport cython

cdef class Accumulator

cdef class Kind:
    cdef Accumulator _accumulator
    cdef bint _flush_is_due
    cdef readonly object publication
    cdef readonly object queue
    cdef readonly bint wait_stored
    cdef readonly object tag
    cdef readonly double timeout
    cdef public Py_ssize_t in_flight
    cdef public object timer
    cdef public list entries
    cdef public list keys
    cdef public Py_ssize_t size
    cdef public Py_ssize_t full_size
    cdef Py_ssize_t _under_way

    cpdef flush_soon(self)

    @cython.locals(entries=list, keys=list)
    cpdef flush(self)

cdef class Accumulator:
    cdef object begin
    cdef object timers
    cdef double linger
    cdef Py_ssize_t batch_max_bytes
    cdef public Py_ssize_t held
    cdef public object loop
    cdef public object new_future
    cdef Py_ssize_t _total_max_bytes
    cdef dict _kinds
    cdef Kind _last
    cdef dict _last_of_queue

    @cython.locals(kind=Kind, before=Kind, entries=list, size=Py_ssize_t)
    cpdef add(
        self, publication, queue, bint wait_stored, tag, str unique_id, flag, bytes body, str properties, key,
        double timeout, waiting,
    )

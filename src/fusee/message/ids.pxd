# C types of ids.py, for its compiled form: nothing here changes what it does.
cimport cython

cdef class UniqueIds:
    cdef object _time_ms
    cdef object _timezone
    cdef str _prefix
    cdef str _stem
    cdef str _page
    cdef long long _now_ms
    cdef long long _month_start_ms
    cdef long long _month_end_ms
    cdef Py_ssize_t _counter
    cdef Py_ssize_t _left_in_ms

    @cython.locals(now_ms=cython.longlong, counter=Py_ssize_t, low=Py_ssize_t)
    cpdef str next_id(self)

    cpdef _enter(self, long long now_ms)

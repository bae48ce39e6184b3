# C types of usual_send.py, for its compiled form: nothing here changes what it does.

cdef class UsualSends:
    cdef public object state
    cdef public Py_ssize_t max_message_size
    cdef public object _dispatch
    cdef public dict _publications
    cdef public object _accumulator
    cdef public object _next_id
    cdef public Py_ssize_t _threshold
    cdef public object _timeout

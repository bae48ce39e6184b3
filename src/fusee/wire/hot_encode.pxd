# C types of hot_encode.py, for its compiled form: nothing here changes what it does.
cimport cython

cdef class PreparedAnswer:
    cdef readonly bytes body
    cdef readonly list heads
    cdef readonly bytes rest

    cpdef bytes frame_of(self, bytes digits)

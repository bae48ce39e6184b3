# C types of called_back.py, for its compiled form: nothing here changes what it does.

cdef class CalledBack:
    cdef object _callback

    cpdef set_result(self, result)

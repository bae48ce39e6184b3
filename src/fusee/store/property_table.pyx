"""The compiled twin of property_table.py: the same columns, filled from byte to byte."""

cimport cython
from libc.stdint cimport int32_t
from libc.string cimport memchr, memcmp, memcpy

import numpy as np

cdef enum:
    # Names of a row that are compared one by one; of more, a dictionary is made.
    COMPARED_MAX = 32


@cython.boundscheck(False)
@cython.wraparound(False)
cdef class PropertyTable:
    """The entries of many property strings: of a name that stands twice in a row the last value counts."""

    cdef object _arrow
    cdef Py_ssize_t _count
    cdef Py_ssize_t _entries
    cdef object _row_offsets
    cdef object _name_offsets
    cdef object _value_starts
    cdef object _value_ends
    cdef object _names
    cdef const unsigned char[::1] _raw

    def __init__(self, arrow, strings):
        cdef Py_ssize_t count = len(strings)
        self._arrow = arrow
        self._count = count
        _, offset_buffer, data = strings.buffers()
        cdef const int32_t[::1] offsets = np.frombuffer(offset_buffer, np.int32, count + 1)
        cdef Py_ssize_t size = offsets[count]
        self._raw = np.frombuffer(data, np.uint8, size) if size else np.empty(0, np.uint8)
        cdef const unsigned char *raw = &self._raw[0] if size else NULL
        cdef Py_ssize_t room = count
        cdef Py_ssize_t row, position
        if offsets[0] != 0:
            raise ValueError("the strings begin at the start of their buffer")
        for row in range(count):
            if offsets[row + 1] < offsets[row]:
                raise ValueError("the strings lie end to end")
        for position in range(size):
            if raw[position] == 2:
                room += 1
        self._row_offsets = np.zeros(count + 1, np.int32)
        self._name_offsets = np.zeros(room + 1, np.int32)
        self._value_starts = np.empty(room, np.int32)
        self._value_ends = np.empty(room, np.int32)
        self._names = np.empty(size, np.uint8)
        cdef int32_t[::1] row_offsets = self._row_offsets
        cdef int32_t[::1] name_offsets = self._name_offsets
        cdef int32_t[::1] value_starts = self._value_starts
        cdef int32_t[::1] value_ends = self._value_ends
        cdef unsigned char[::1] names = self._names
        cdef unsigned char *into = &names[0] if size else NULL
        cdef Py_ssize_t found = 0
        cdef Py_ssize_t first, known, end, entry_end, name_size
        cdef const unsigned char *stop
        cdef const unsigned char *mark
        cdef dict numbers
        for row in range(count):
            first = found
            numbers = None
            position, end = offsets[row], offsets[row + 1]
            while position < end:
                stop = <const unsigned char *>memchr(raw + position, 2, end - position)
                entry_end = end if stop == NULL else stop - raw
                mark = <const unsigned char *>memchr(raw + position, 1, entry_end - position)
                name_size = 0 if mark == NULL else mark - raw - position
                if name_size > 0 and position + name_size + 1 < entry_end:
                    known = -1
                    if found - first <= COMPARED_MAX:
                        for known in range(first, found):
                            if (
                                name_offsets[known + 1] - name_offsets[known] == name_size
                                and memcmp(into + name_offsets[known], raw + position, name_size) == 0
                            ):
                                break
                        else:
                            known = -1
                    else:
                        if numbers is None:
                            numbers = {
                                into[name_offsets[known] : name_offsets[known + 1]]: known
                                for known in range(first, found)
                            }
                        known = numbers.get(raw[position : position + name_size], -1)
                    if known < 0:
                        known = found
                        memcpy(into + name_offsets[found], raw + position, name_size)
                        name_offsets[found + 1] = <int32_t>(name_offsets[found] + name_size)
                        if numbers is not None:
                            numbers[raw[position : position + name_size]] = found
                        found += 1
                    value_starts[known] = <int32_t>(position + name_size + 1)
                    value_ends[known] = <int32_t>entry_end
                position = entry_end + 1
            row_offsets[row + 1] = <int32_t>found
        self._entries = found

    def maps(self):
        """A map for each row."""
        arrow = self._arrow
        cdef Py_ssize_t found = self._entries
        names = arrow.Array.from_buffers(
            arrow.string(), found, [None, arrow.py_buffer(self._name_offsets[: found + 1]), arrow.py_buffer(self._names)]
        )
        values = self._taken(np.arange(found, dtype=np.int32))
        # Not by arrow.array, which would load pandas.
        offsets = arrow.Array.from_buffers(
            arrow.int32(), self._count + 1, [None, arrow.py_buffer(self._row_offsets)]
        )
        return arrow.MapArray.from_arrays(offsets, names, values)

    def values_of(self, str name not None):
        """The values of one property, null where a row has none."""
        cdef bytes wanted = name.encode()
        cdef const unsigned char *text = wanted
        cdef Py_ssize_t size = len(wanted)
        cdef const int32_t[::1] row_offsets = self._row_offsets
        cdef const int32_t[::1] name_offsets = self._name_offsets
        cdef const unsigned char[::1] names = self._names
        places = np.full(self._count, -1, np.int32)
        cdef int32_t[::1] place = places
        cdef Py_ssize_t row, entry
        for row in range(self._count):
            for entry in range(row_offsets[row], row_offsets[row + 1]):
                if (
                    name_offsets[entry + 1] - name_offsets[entry] == size
                    and memcmp(&names[name_offsets[entry]], text, size) == 0
                ):
                    place[row] = <int32_t>entry
                    break
        return self._taken(places)

    cdef _taken(self, entries):
        """The values of these entries, in order; null for -1."""
        arrow = self._arrow
        cdef const int32_t[::1] chosen = entries
        cdef const int32_t[::1] starts = self._value_starts
        cdef const int32_t[::1] ends = self._value_ends
        cdef Py_ssize_t count = chosen.shape[0]
        cdef Py_ssize_t number, nulls = 0
        offset_array = np.zeros(count + 1, np.int32)
        cdef int32_t[::1] offsets = offset_array
        # Each entry is chosen once at most, so that all together are no longer than the strings.
        for number in range(count):
            offsets[number + 1] = offsets[number]
            if chosen[number] < 0:
                nulls += 1
            else:
                offsets[number + 1] += ends[chosen[number]] - starts[chosen[number]]
        data = np.empty(offsets[count], np.uint8)
        cdef unsigned char[::1] into = data
        for number in range(count):
            if offsets[number + 1] > offsets[number]:
                memcpy(&into[offsets[number]], &self._raw[starts[chosen[number]]], offsets[number + 1] - offsets[number])
        validity = None
        if nulls:
            validity = arrow.py_buffer(np.packbits(entries >= 0, bitorder="little"))
        return arrow.Array.from_buffers(
            arrow.string(), count, [validity, arrow.py_buffer(offset_array), arrow.py_buffer(data)], nulls
        )

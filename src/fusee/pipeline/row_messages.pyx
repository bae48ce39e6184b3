"""The compiled twin of row_messages.py, where the form is given: all rows are measured, then bytes are copied once.

Everything that Arrow's buffers say about places is checked against their sizes before anything is read.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcpy, memset

import numpy as np

from fusee.pipeline.row_faults import refuse_properties, refuse_property, refuse_size, refuse_text

cdef extern from "prefetch.h":
    void fusee_prefetch_copy(void *into, const void *at, size_t size) noexcept nogil

cdef enum:
    HEAD_SIZE = 20
    # So many rows before a body is copied its lines are asked for, the first of them.
    AHEAD = 2
    AHEAD_SIZE_MAX = 2048
    ELEMENT_EXTRA = 22
    PROPERTIES_SIZE_MAX = 32767
    TEXTS_MAX = 16
    DIGITS_MAX = 20

# Numbers of rows stay far from what 64 bits hold.
cdef int64_t ROWS_END = 10**17


cdef inline void write_int(unsigned char *at, uint32_t value) noexcept nogil:
    at[0] = value >> 24
    at[1] = value >> 16 & 0xFF
    at[2] = value >> 8 & 0xFF
    at[3] = value & 0xFF


cdef inline bint is_divided(const unsigned char *text, Py_ssize_t size) noexcept nogil:
    return memchr(text, 1, size) != NULL or memchr(text, 2, size) != NULL


cdef inline int write_number(unsigned char *end, int64_t number) noexcept nogil:
    """Digits that end here; how many."""
    cdef int count = 0
    while True:
        count += 1
        end[-count] = <unsigned char>(48 + number % 10)
        number //= 10
        if not number:
            return count


cdef struct Column:
    # NULL where every row has a value
    const unsigned char *validity
    int64_t first
    const int32_t *places
    const unsigned char *data


cdef inline Py_ssize_t size_at(Column *column, Py_ssize_t row) noexcept nogil:
    """Bytes of a value; 0 for one that is not there."""
    cdef int64_t bit
    if column.validity != NULL:
        bit = column.first + row
        if not column.validity[bit >> 3] >> (bit & 7) & 1:
            return 0
    return column.places[row + 1] - column.places[row]


cdef inline const unsigned char *value_at(Column *column, Py_ssize_t row) noexcept nogil:
    return column.data + column.places[row]


cdef class Held:
    """The buffers of a column, which stay where they are as long as this does."""

    cdef Column column
    cdef Py_ssize_t count
    cdef const unsigned char[::1] _validity
    cdef const int32_t[::1] _places
    cdef const unsigned char[::1] _data

    def __init__(self, array):
        cdef Py_ssize_t row, data_size
        cdef int64_t first = array.offset
        cdef int32_t before, place
        self.count = len(array)
        validity, places, data = array.buffers()
        if first < 0:
            raise ValueError("a column begins before its buffers")
        self.column.first = first
        self.column.validity = NULL
        self.column.data = b""
        data_size = 0
        if data is not None and len(data):
            self._data = memoryview(data).cast("B")
            self.column.data = &self._data[0]
            data_size = self._data.shape[0]
        if not self.count:
            return
        # A copy, so that places lie as C wants them and nobody changes them any more.
        if places is None or len(places) < 4 * (first + self.count + 1):
            raise ValueError("the places of a column are missing")
        self._places = np.frombuffer(places, np.int32, self.count + 1, 4 * first).copy()
        self.column.places = &self._places[0]
        if validity is not None and array.null_count:
            self._validity = memoryview(validity).cast("B")
            if 8 * self._validity.shape[0] < first + self.count:
                raise ValueError("a column does not say of all rows whether they have a value")
            self.column.validity = &self._validity[0]
        before = self.column.places[0]
        if before < 0:
            raise ValueError("a column has values outside its bytes")
        for row in range(1, self.count + 1):
            place = self.column.places[row]
            if place < before:
                raise ValueError("a column has values that end before they begin")
            before = place
        if before > data_size:
            raise ValueError("a column has values outside its bytes")


def join_messages(body, flags, texts, entries, key_head, first_row):
    """The messages of these rows."""
    return Messages(body, flags, texts, entries, key_head, first_row)


cdef class Messages:
    """The messages of a table."""

    cdef readonly object offsets
    cdef int32_t[::1] _property_sizes
    cdef Held _body
    cdef list _held
    cdef list _names
    cdef Column _texts[TEXTS_MAX]
    cdef Py_ssize_t _text_count
    cdef const unsigned char *_heads[TEXTS_MAX]
    cdef Py_ssize_t _head_sizes[TEXTS_MAX]
    cdef const int32_t[::1] _flags
    cdef bint _has_flags
    cdef bytes _key_head
    cdef int64_t _first_row
    cdef Held _map_names
    cdef Held _map_values
    cdef const int64_t[::1] _bounds
    cdef const uint8_t[::1] _valid
    cdef bint _has_valid
    cdef uint8_t[::1] _keeps

    def __init__(self, body, flags, texts, entries, key_head, first_row):
        cdef Held held
        cdef bytes head
        cdef Py_ssize_t number
        self._body = Held(body)
        self._first_row = first_row
        if not 0 <= self._first_row < ROWS_END:
            raise ValueError(f"row {first_row} is none")
        self._key_head = key_head
        self._held = []
        self._names = []
        if len(texts) > TEXTS_MAX:
            raise ValueError(f"{len(texts)} columns of text, and room for {TEXTS_MAX}")
        for number, (name, array) in enumerate(texts):
            held = Held(array)
            if held.count != self._body.count:
                raise ValueError("the columns are not of one length")
            head = name + b"\x01"
            self._held.append((held, head))
            self._names.append(name)
            self._texts[number] = held.column
            self._heads[number] = <const unsigned char *>PyBytes_AS_STRING(head)
            self._head_sizes[number] = len(head)
        self._text_count = len(texts)
        if flags is not None:
            self._flags = np.ascontiguousarray(flags, np.int32)
            if self._flags.shape[0] != self._body.count:
                raise ValueError("the columns are not of one length")
            self._has_flags = self._body.count > 0
        if entries is not None:
            self._take_map(entries)
        self.offsets = np.empty(self._body.count + 1, np.int64)
        self._property_sizes = np.empty(self._body.count + 1, np.int32)
        cdef int64_t[::1] begins = self.offsets
        begins[0] = 0
        if self._body.count:
            self._measure(begins)
        # What is written by is what was measured.
        self.offsets.flags.writeable = False

    cdef int _take_map(self, entries) except -1:
        """Look over the map, and note which entries count."""
        cdef Py_ssize_t row, index
        cdef int64_t start, end
        cdef frozenset left_out = entries.left_out
        cdef Py_ssize_t bad_name = -1
        cdef Py_ssize_t bad_value = -1
        cdef Py_ssize_t size, value_size
        cdef const unsigned char *name
        self._map_names = Held(entries.names)
        self._map_values = Held(entries.values)
        self._bounds = np.ascontiguousarray(entries.bounds, np.int64)
        if self._bounds.shape[0] != self._body.count + 1:
            raise ValueError("the map has another number of rows than the body")
        if entries.valid is not None:
            self._valid = np.ascontiguousarray(entries.valid, np.bool_).view(np.uint8)
            if self._valid.shape[0] != self._body.count:
                raise ValueError("the map has another number of rows than the body")
            self._has_valid = self._body.count > 0
        if self._map_names.count != self._map_values.count:
            raise ValueError("the map has entries that are not there")
        self._keeps = np.zeros(self._map_names.count + 1, np.uint8)
        start = self._bounds[0]
        for row in range(self._body.count):
            end = self._bounds[row + 1]
            if start < 0 or end < start or end > self._map_names.count:
                raise ValueError("the map has entries that are not there")
            if not self._has_valid or self._valid[row]:
                for index in range(start, end):
                    size = size_at(&self._map_names.column, index)
                    value_size = size_at(&self._map_values.column, index)
                    if not size or not value_size:
                        continue
                    name = value_at(&self._map_names.column, index)
                    if PyBytes_FromStringAndSize(<char *>name, size) in left_out:
                        continue
                    self._keeps[index] = 1
                    if bad_name < 0 and is_divided(name, size):
                        bad_name = index
                    if bad_value < 0 and is_divided(value_at(&self._map_values.column, index), value_size):
                        bad_value = index
            start = end
        if bad_name >= 0:
            refuse_property("name", text_of(&self._map_names.column, bad_name))
        if bad_value >= 0:
            refuse_property("value", text_of(&self._map_values.column, bad_value))
        return 0

    cdef int _measure(self, int64_t[::1] begins) except -1:
        cdef Py_ssize_t count = self._body.count
        cdef Py_ssize_t row, number, index, size
        cdef int64_t properties_size, element_size, total = 0
        cdef int64_t largest = 0
        cdef int64_t largest_element = 0
        cdef Py_ssize_t largest_row = 0
        cdef Py_ssize_t largest_element_row = 0
        cdef Py_ssize_t bad_number = TEXTS_MAX
        cdef Py_ssize_t bad_row = 0
        cdef Py_ssize_t key_size = 0
        cdef int64_t number_end = 10
        cdef Py_ssize_t digits = 1
        if self._key_head is not None:
            key_size = len(self._key_head) + 1
        while number_end <= self._first_row:
            number_end *= 10
            digits += 1
        for row in range(count):
            properties_size = 0
            for number in range(self._text_count):
                size = size_at(&self._texts[number], row)
                if size:
                    properties_size += self._head_sizes[number] + size + 1
                    if number < bad_number and is_divided(value_at(&self._texts[number], row), size):
                        bad_number, bad_row = number, row
            if self._map_names is not None:
                for index in range(self._bounds[row], self._bounds[row + 1]):
                    if self._keeps[index]:
                        properties_size += (
                            size_at(&self._map_names.column, index) + size_at(&self._map_values.column, index) + 2
                        )
            if key_size:
                if self._first_row + row == number_end:
                    number_end *= 10
                    digits += 1
                properties_size += key_size + digits
            if properties_size > largest:
                largest, largest_row = properties_size, row
            element_size = ELEMENT_EXTRA + size_at(&self._body.column, row) + properties_size
            if element_size > largest_element:
                largest_element, largest_element_row = element_size, row
            self._property_sizes[row] = <int32_t>properties_size
            total += element_size
            begins[row + 1] = total
        if bad_number < TEXTS_MAX:
            refuse_text(
                self._first_row + bad_row, self._names[bad_number], text_of(&self._texts[bad_number], bad_row)
            )
        if largest > PROPERTIES_SIZE_MAX:
            refuse_properties(self._first_row + largest_row, largest)
        if largest_element > INT32_MAX:
            refuse_size(self._first_row + largest_element_row, largest_element)
        return 0

    def fill_run(self, unsigned char[::1] into not None, Py_ssize_t first, Py_ssize_t end):
        """Write these messages end to end; they fill the memory exactly."""
        cdef const int64_t[::1] begins = self.offsets
        if not 0 <= first <= end <= self._body.count:
            raise ValueError("a row that the table does not have")
        cdef int64_t total = begins[end] - begins[first]
        if total != into.shape[0]:
            raise ValueError(f"{total} bytes of messages, and room for {into.shape[0]}")
        if total:
            self._fill(&into[0], NULL, first, end - first)

    def fill(self, unsigned char[::1] into not None, const int64_t[::1] rows not None):
        """The same in any order."""
        cdef Py_ssize_t number
        cdef int64_t row
        cdef int64_t total = 0
        for number in range(rows.shape[0]):
            row = rows[number]
            if not 0 <= row < self._body.count:
                raise ValueError("a row that the table does not have")
            total += ELEMENT_EXTRA + size_at(&self._body.column, row) + self._property_sizes[row]
        if total != into.shape[0]:
            raise ValueError(f"{total} bytes of messages, and room for {into.shape[0]}")
        if total:
            self._fill(&into[0], &rows[0], 0, rows.shape[0])

    cdef int _fill(self, unsigned char *at, const int64_t *rows, Py_ssize_t first, Py_ssize_t count) except -1:
        """Those of `rows`, or, without them, so many from `first` on."""
        cdef Py_ssize_t position, row, number, index, size, digits, ahead
        cdef int32_t properties_size
        cdef Py_ssize_t key_size = 0
        cdef const unsigned char *key_head = NULL
        cdef unsigned char written[DIGITS_MAX]
        if self._key_head is not None:
            key_size = len(self._key_head)
            key_head = <const unsigned char *>PyBytes_AS_STRING(self._key_head)
        for position in range(count):
            row = rows[position] if rows != NULL else first + position
            size = size_at(&self._body.column, row)
            properties_size = self._property_sizes[row]
            write_int(at, <uint32_t>(ELEMENT_EXTRA + size + properties_size))
            memset(at + 4, 0, 8)
            if position + AHEAD < count:
                ahead = rows[position + AHEAD] if rows != NULL else row + AHEAD
                # Most messages are as large as the one before.
                fusee_prefetch_copy(
                    at + AHEAD * (ELEMENT_EXTRA + size + properties_size),
                    value_at(&self._body.column, ahead),
                    min(size_at(&self._body.column, ahead), AHEAD_SIZE_MAX),
                )
            write_int(at + 12, <uint32_t>self._flags[row] if self._has_flags else 0)
            write_int(at + 16, <uint32_t>size)
            at += HEAD_SIZE
            memcpy(at, value_at(&self._body.column, row), size)
            at += size
            at[0] = properties_size >> 8
            at[1] = properties_size & 0xFF
            at += 2
            for number in range(self._text_count):
                size = size_at(&self._texts[number], row)
                if size:
                    memcpy(at, self._heads[number], self._head_sizes[number])
                    at += self._head_sizes[number]
                    memcpy(at, value_at(&self._texts[number], row), size)
                    at[size] = 2
                    at += size + 1
            if self._map_names is not None:
                for index in range(self._bounds[row], self._bounds[row + 1]):
                    if self._keeps[index]:
                        size = size_at(&self._map_names.column, index)
                        memcpy(at, value_at(&self._map_names.column, index), size)
                        at[size] = 1
                        at += size + 1
                        size = size_at(&self._map_values.column, index)
                        memcpy(at, value_at(&self._map_values.column, index), size)
                        at[size] = 2
                        at += size + 1
            if key_head != NULL:
                memcpy(at, key_head, key_size)
                at += key_size
                digits = write_number(written + DIGITS_MAX, self._first_row + row)
                memcpy(at, written + DIGITS_MAX - digits, digits)
                at[digits] = 2
                at += digits + 1
        return 0


cdef bytes text_of(Column *column, Py_ssize_t row):
    return PyBytes_FromStringAndSize(<char *>value_at(column, row), size_at(column, row))

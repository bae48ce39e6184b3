"""Log files of a broker on this machine, read where the broker says that records lie.

Nothing but disk and memory is between a reader and the files of a broker beside it, so the bytes need not travel
(HDFS: short-circuit local reads). The broker still says what there is to read, and counts it; here the bytes are taken
from its file. Whether the file is really that of the broker is proved by its mark (`fusee.broker.local_mark`), and
every record by its own place, size and checksum. Whatever does not fit ends this way of reading, not the reading: the
same is then asked for over the network.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from fusee.errors import ProtocolError, StoreError
from fusee.store.offline.files import Descriptors
from fusee.store.offline.queue_log import PlacedRecords, check_placed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fusee.pipeline.spare_memory import SpareMemory
    from fusee.store.record_scan import RecordParts
    from fusee.wire.headers.bulk_read import BulkReadResponse

SPAN_MAX: Final = 64 << 20
"""Bytes between the first and the last record of an answer, at most."""
_MARK_SIZE_MAX: Final = 256
_OPEN_MAX: Final = 8


class NotLocalError(Exception):
    """The files that a broker names are not here, or are not what it says. Not for users: they are read otherwise."""


class LocalLogs:
    """Open files, kept between tasks."""

    def __init__(self) -> None:
        self._proved: dict[str, str] = {}
        self._files = Descriptors(_OPEN_MAX)

    def close(self) -> None:
        self._files.close()

    def records(
        self, header: BulkReadResponse, sizes: NDArray[np.int64], places: NDArray[np.int64], spare: SpareMemory
    ) -> tuple[memoryview, NDArray[np.int64], RecordParts]:
        """The bytes from the first to the last record, in spare memory, where each begins, and the parts of each.

        Raises NotLocalError.
        """
        if header.log_file is None or header.log_file_offset is None or len(sizes) != len(places):
            raise ProtocolError("an answer that says where records lie names a file, and a place for each record")
        first, end = int(places[0]), int(places[-1] + sizes[-1])
        if not (0 <= first < end and end - first <= SPAN_MAX):
            raise ProtocolError(f"records from {first} to {end} of a file are more than {SPAN_MAX} bytes, or none")
        try:
            self._prove(header)
            data = spare.of(end - first)
            self._read(Path(header.log_file), first, data)
            placed = PlacedRecords(header.log_file_offset + first, data, places - first, sizes)
            return data, placed.positions, check_placed(placed, bodies=True)
        except (OSError, StoreError) as error:
            raise NotLocalError(str(error)) from error

    def _prove(self, header: BulkReadResponse) -> None:
        """See that the broker's mark is here."""
        if header.mark_file is None or not header.mark:
            raise ProtocolError("an answer that says where records lie names a mark")
        if self._proved.get(header.mark_file) == header.mark:
            return
        with Path(header.mark_file).open("rb") as file:
            found = file.read(_MARK_SIZE_MAX)
        if found != header.mark.encode():
            raise NotLocalError(f"{header.mark_file} is not the mark of this broker")
        self._proved[header.mark_file] = header.mark

    def _read(self, path: Path, position: int, memory: memoryview) -> None:
        self._files.drop_if_replaced(path)
        got = self._files.read_into(path, position, memory)
        if got < len(memory):
            raise NotLocalError(f"{path} ends at {position + got}")

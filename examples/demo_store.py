"""A store that loses power while it writes: part of `make demo`.

Writes messages, flushing some of them; shows the store with `fusee store inspect`; tears its end as a power failure
would; opens it again, which recovers; and counts: what was flushed is there, what was torn is cut, nothing is half.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from fusee.message.properties import encode_properties
from fusee.message.record import iterate_records
from fusee.store import GetStatus, MessageStore, NewRecord, StoreConfig

out = Console(highlight=False)

CONFIG = StoreConfig(mapped_file_size_commit_log=1024 * 1024)
FLUSHED = 3_000
UNFLUSHED = 5


def order(number: int) -> NewRecord:
    """The n-th order, in one of four queues, with a tag and a key."""
    properties = encode_properties({"TAGS": "paid" if number % 2 else "open", "KEYS": f"order-{number}"})
    return NewRecord("orders", number % 4, b"order %d" % number, properties)


def count(store: MessageStore) -> int:
    """How many orders consumers can read."""
    total = 0
    for queue_id in range(4):
        queue_offset = 0
        while (result := store.get("orders", queue_id, queue_offset, 32)).status is GetStatus.FOUND:
            total += sum(1 for piece in result.slices for _ in iterate_records(piece))
            queue_offset = result.next_offset
    return total


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        store = MessageStore(root, CONFIG)
        store.open()
        begun = time.perf_counter()
        for number in range(FLUSHED):
            store.put(order(number))
        store.flush()
        store.dispatch()
        took_ms = (time.perf_counter() - begun) * 1000
        out.print(f"[green]✓[/] {FLUSHED} messages written, flushed and dispatched in {took_ms:.0f} ms")
        store.flush_derived()

        subprocess.run([sys.executable, "-m", "fusee", "store", "inspect", str(root)], check=True)

        last = [store.put(order(FLUSHED + number)) for number in range(UNFLUSHED)][-1]
        store.write()
        log = root / "commitlog" / f"{last.log_offset - last.log_offset % 1024**2:020d}"
        # No close: the process is gone. And of the last record only the first half reached the disk.
        with log.open("r+b") as file:
            file.seek(last.log_offset % 1024**2 + 50)
            file.write(b"\0" * (last.end_offset - last.log_offset - 50))
        out.print(f"[yellow]✗[/] power failed; the record at log offset {last.log_offset} is torn in the middle")

        again = MessageStore(root, CONFIG)
        begun = time.perf_counter()
        report = again.open()
        took_ms = (time.perf_counter() - begun) * 1000
        out.print(f"[green]✓[/] recovered in {took_ms:.0f} ms: {report}")
        found = count(again)
        out.print(f"[green]✓[/] {found} messages can be read: all {FLUSHED} flushed ones, and {found - FLUSHED} more")
        key = f"order-{FLUSHED - 1}"
        answer = again.query.by_key("orders", key, 1)
        (message,) = iterate_records(answer.records[0])
        out.print(f"[green]✓[/] {key} is found by its key: {message.body.decode()!r}, tag {message.tag}")
        assert found == FLUSHED + UNFLUSHED - 1
        again.close()


if __name__ == "__main__":
    main()

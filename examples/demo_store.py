"""A store that loses power while it writes: part of `make demo`.

Writes messages, flushing some of them; shows the store with `fusee store inspect`; tears its end as a power failure
would; opens it again, which recovers; and counts: what was flushed is there, what was torn is cut, nothing is half.
"""

from __future__ import annotations

import os
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


def write_and_die(root: Path) -> None:
    """Put some more, tell where the last one went, and end without closing the store, as a killed process does."""
    store = MessageStore(root, CONFIG)
    store.open()
    last = [store.put(order(FLUSHED + number)) for number in range(UNFLUSHED)][-1]
    store.write()
    print(last.log_offset, last.end_offset, flush=True)
    os._exit(9)


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
        store.close()

        for what in ("log", "topics"):
            subprocess.run([sys.executable, "-m", "fusee", "store", "inspect", str(root), what], check=True)

        dead = subprocess.run([sys.executable, __file__, str(root)], capture_output=True, text=True)
        log_offset, end_offset = map(int, dead.stdout.split())
        base_offset = log_offset - log_offset % CONFIG.mapped_file_size_commit_log
        # Of the last record only the first half reached the disk.
        with (root / "commitlog" / f"{base_offset:020d}").open("r+b") as file:
            file.seek(log_offset - base_offset + 50)
            file.write(b"\0" * (end_offset - log_offset - 50))
        out.print(
            f"[yellow]✗[/] a process put {UNFLUSHED} more and died; the last, at {log_offset}, is torn in the middle"
        )

        again = MessageStore(root, CONFIG)
        begun = time.perf_counter()
        report = again.open()
        took_ms = (time.perf_counter() - begun) * 1000
        out.print(
            f"[green]✓[/] recovered in {took_ms:.0f} ms: log ends at {report.end_offset}, {report.cut_bytes} bytes cut"
        )
        out.print(f"  [dim]{report.cut_reason}[/]")
        found = count(again)
        out.print(f"[green]✓[/] {found} messages can be read: all {FLUSHED} flushed ones, and {found - FLUSHED} more")
        key = f"order-{FLUSHED - 1}"
        answer = again.query.by_key("orders", key, 1)
        (message,) = iterate_records(answer.records[0])
        out.print(f"[green]✓[/] {key} is found by its key: {message.body.decode()!r}, tag {message.tag}")
        assert found == FLUSHED + UNFLUSHED - 1
        again.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write_and_die(Path(sys.argv[1]))
    else:
        main()

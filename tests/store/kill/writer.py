"""A process that writes to a store until it is killed, and says on its standard output what it was promised.

    put <end offset> <queue id> <queue offset> <body>     one line for each message that survives the process
    flushed <offset>                                      everything before is on disk

Run as: python writer.py FOLDER SEED
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

from fusee.clock import SystemClock
from fusee.message.batch import BatchElement, join_batch
from fusee.message.properties import encode_properties
from fusee.store.batch_body import BatchBody
from fusee.store.config import StoreConfig
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord

CONFIG = StoreConfig(
    mapped_file_size_commit_log=64 * 1024,
    mapped_file_size_consume_queue=20 * 100,
    max_hash_slot_num=64,
    max_index_num=500,
    transaction_segment_entries=16,
    open_files_max=4,
    disk_free_bytes_min=0,
)


def run(root: Path, seed: int) -> None:
    """Write for ever."""
    chance = Random(seed)
    store = MessageStore(root, CONFIG, clock=SystemClock())
    store.noted_count_min = 1
    store.open()
    number = 0
    while True:
        waiting: list[str] = []
        for _ in range(chance.randint(1, 12)):
            number += 1
            queue_id = chance.randrange(3)
            body = f"{seed}-{number}-" + "x" * chance.choice((0, 10, 300, 2000))
            properties = encode_properties({"TAGS": "t", "KEYS": f"key{number % 50}", "UNIQ_KEY": f"{seed}-{number}"})
            if chance.random() < 0.2:
                elements = [BatchElement(0, f"{body}{place}".encode(), properties) for place in range(3)]
                result = store.put_batch(NewRecord("orders", queue_id, b""), BatchBody(join_batch(elements)))
                bodies = [element.body.decode() for element in elements]
            else:
                result = store.put(NewRecord("orders", queue_id, body.encode(), properties))
                bodies = [body]
            waiting += [
                f"put {result.end_offset} {queue_id} {result.queue_offset + place} {text}"
                for place, text in enumerate(bodies)
            ]
        store.write()
        say(waiting)
        if chance.random() < 0.7:
            store.dispatch()
        if chance.random() < 0.4:
            say([f"flushed {store.flush()}"])
        if chance.random() < 0.15:
            store.dispatch()
            store.flush_derived()
        if chance.random() < 0.1:
            store.prepare()


def say(lines: list[str]) -> None:
    """One write for all lines, so that the reader gets whole ones."""
    os.write(1, "".join(line + "\n" for line in lines).encode())


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]))

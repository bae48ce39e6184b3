"""A writing process is killed with SIGKILL, again and again on one store; everything it had written is there.

3 rounds; 50 with FUSEE_LONG=1.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

from fusee.store.engine import MessageStore
from tests.store.crash.ledger import (
    consume,
    expected_entries,
    expected_index,
    index_offsets,
    messages_of,
    raw_entries,
)
from tests.store.kill.writer import CONFIG

ROUNDS = 50 if os.environ.get("FUSEE_LONG") else 3
WRITER = Path(__file__).with_name("writer.py")


def killed_writer(root: Path, seed: int) -> list[str]:
    """What a writer said before it was killed."""
    lines_before_the_end = Random(seed).randint(1, 400)
    with subprocess.Popen([sys.executable, str(WRITER), str(root), str(seed)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(lines_before_the_end)]
        writer.kill()
        lines += writer.stdout.readlines()
    assert writer.returncode == -9, lines[-3:]
    return [line.decode().rstrip("\n") for line in lines if line.endswith(b"\n")]


def files_below(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_kill_of_a_writing_process_loses_nothing_it_had_written(tmp_path: Path) -> None:
    root = tmp_path / "store"
    expected: dict[tuple[int, int], str] = {}
    for seed in range(ROUNDS):
        for line in killed_writer(root, seed):
            if line.startswith("put "):
                _, _, queue, place, body = line.split(" ", 4)
                expected[int(queue), int(place)] = body

        store = MessageStore(root, CONFIG)
        report = store.open()
        try:
            assert report.unclean
            found = {message.log_offset: message for message in messages_of(store)}
            bodies = {(message.queue_id, message.queue_offset): message.body.decode() for message in found.values()}
            missing = [where for where, body in expected.items() if bodies.get(where) != body]
            assert not missing, f"round {seed}: {report}"
            entries = expected_entries(found)
            assert raw_entries(files_below(root), root, store.log.min_offset) == entries, f"round {seed}"
            for (topic, queue_id), rows in entries.items():
                got = [(message.queue_offset, message.log_offset) for message in consume(store, topic, queue_id)]
                assert got == [row[:2] for row in rows]
            index = expected_index(found)
            for topic, key in Random(seed).sample(sorted(index), min(len(index), 100)):
                assert index_offsets(store, topic, key) == index[topic, key][-64:], f"round {seed}, key {key}"
        finally:
            store.close()
    assert len(expected) > 3

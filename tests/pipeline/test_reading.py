"""What a process of a query loads: Spark starts several, and each pays for it before its first row."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fusee.compiled import is_compiled
from fusee.message.record import encode_record
from tests.pipeline.test_batches import KAFKA_NAMES, NAMES, message

HEAVY = (
    "fusee.admin",
    "fusee.broker",
    "fusee.client.session",
    "fusee.in_process",
    "fusee.store.engine",
    "fusee.transport",
)


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("fusee.pipeline.source", ()),
        ("fusee.pipeline.batch, fusee.pipeline.stream", ()),
        ("fusee.pipeline.batch, fusee.pipeline.fetch", ()),
        ("fusee.pipeline.batch, fusee.pipeline.store_dir, fusee.pipeline.store_view", ()),
        ("fusee.pipeline.stream, fusee.pipeline.cluster_view", ("fusee.client.session", "fusee.transport")),
    ],
)
def test_each_loads_no_more_than_its_part(modules: str, heavy: tuple[str, ...]) -> None:
    program = f"import sys, {modules}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert tuple(done.stdout.split()) == heavy


def test_decoding_loads_neither_pandas_nor_functions_of_arrow() -> None:
    """Arrow loads pandas on the sly, where it is installed, when it turns arrays of NumPy into its own or back."""
    record = encode_record(message(7, properties={"KEYS": "k", "TAGS": "t", "UNIQ_KEY": "u"}))
    columns = KAFKA_NAMES[:-1] if not is_compiled("fusee.store.property_table") else (*KAFKA_NAMES, *NAMES)
    program = (
        "import sys; from fusee.pipeline.batches import record_batches; "
        f"rows = sum(each.num_rows for each in record_batches([{record!r}], {columns!r}, broker_name='b')); "
        "print(rows, *sorted({'pandas', 'pyarrow.compute', 'asyncio', 'ssl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


def test_worker_does_not_search_what_it_has_loaded_for_garbage() -> None:
    """Spark's daemon collects after each task; a task on this process must leave little to look at."""
    program = (
        "import gc; from fusee.pipeline.options import read_options; "
        "from fusee.pipeline.reading import Task, read_task; "
        "options = read_options({'nameServer': '127.0.0.1:1', 'subscribe': 't'}, reading='batch'); "
        "tracked = len(gc.get_objects()); print(list(read_task(options, Task(()), ('body',)))); "
        "print(gc.get_freeze_count() >= tracked); gc.unfreeze(); list(read_task(options, Task(()), ('body',))); "
        "print(gc.get_freeze_count())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "True", "0"]

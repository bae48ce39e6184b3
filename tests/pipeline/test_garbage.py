"""What Spark's Python processes have loaded is left out of the search for garbage after the first call of each kind."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc
from pyspark.sql.types import BinaryType, StructField, StructType
from fusee.pipeline.sink import _commit
from fusee.pipeline.source import FuseeSource
from fusee.pipeline.write_options import write_options

rows = StructType([StructField("body", BinaryType())])
read = FuseeSource({"nameServer": "127.0.0.1:1", "subscribe": "T", "kafkaCompatible": "true"})
written = FuseeSource({"nameServer": "127.0.0.1:1", "topic": "T"})
columns = StructType([StructField("value", BinaryType())])
options = write_options(written.options, [("body", "binary")], writing="batch")
call = {
    "schema": read.schema,
    "reader": lambda: read.reader(columns),
    "streamReader": lambda: read.streamReader(columns),
    "writer": lambda: written.writer(rows, False),
    "streamWriter": lambda: written.streamWriter(rows, False),
    "commit": lambda: _commit(options, []),
}["CALL"]
before = gc.get_freeze_count()
call()
once = gc.get_freeze_count()
call()
print(before, once > 10_000, gc.get_freeze_count() <= once)
"""


@pytest.mark.parametrize("call", ["schema", "reader", "streamReader", "writer", "streamWriter", "commit"])
def test_what_is_loaded_is_set_aside_once(call: str) -> None:
    program = PROGRAM.replace("CALL", call)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True", "True"]

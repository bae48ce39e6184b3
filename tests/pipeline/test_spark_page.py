"""The programs of docs/spark.md run as they stand there, on a server and on folders of this test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fusee.sync
from tests.pipeline.topics_of_tests import fill, texts

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_blocks_of_the_page_run(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    store = tmp_path / "broker-a" / "store"
    topics = {"orders": 2, "paid": 1, "copies": 1}
    with fusee.sync.embedded(store=store, topics=topics) as server:
        bodies = fill(server, "orders", range(10), queues=2)
        names: dict[str, Any] = {}
        queries: list[Any] = []
        for number, block in enumerate(blocks, 1):
            program = block.replace("127.0.0.1:9876", server.name_server)
            program = program.replace("/backup/broker-a/store", str(store)).replace("/data/", f"{tmp_path}/")
            exec(compile(program, f"block {number}", "exec"), names)
            if names.get("query") not in (None, *queries):
                queries.append(names["query"])
        try:
            for query in queries:
                query.processAllAvailable()
        finally:
            for query in queries:
                query.stop()
        with server.connect() as mq:
            sent = {topic: sorted(found.body.decode() for found in mq.admin.browse(topic)) for topic in topics}
    assert names["spark"] is spark or names["spark"].sparkContext is spark.sparkContext
    assert names["kept"].count() == 10
    assert sent["paid"] == sorted(bodies[::2])
    assert sent["copies"] == sorted(bodies)
    assert texts(spark.read.parquet(str(tmp_path / "orders")).collect()) == sorted(bodies)
    shown = capsys.readouterr().out
    assert shown.count("|paid|    5|") == 2
    assert len(queries) == 2

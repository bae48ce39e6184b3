"""Audit, dead letters, rebuild and declared pipelines as a user runs them: tables, pages with charts, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fusee.client.trace import TraceRecord, TraceType, encode_record
from fusee.message.topics import TRACE_TOPIC
from tests.cli.scene import bury
from tests.cli.scene import server as embedded
from tests.cli.test_pipeline import SMALL
from tests.store.test_rebuild import files_below

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fusee.sync import EmbeddedServer

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with embedded(topics={"orders": 2}) as running:
        yield running


def fusee(*arguments: str, name_server: str = "") -> subprocess.CompletedProcess[str]:
    """The command `fusee pipeline ...` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "fusee", "pipeline", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "NAMESRV_ADDR": name_server, "COLUMNS": "160", "NO_COLOR": "1"},
        timeout=300,
    )


def ok(*arguments: str, name_server: str = "") -> str:
    ran = fusee(*arguments, name_server=name_server)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def cells(text: str, first: str) -> list[str]:
    """The words of the first line that begins with this word."""
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [first])


def test_audit_shows_tables_writes_a_page_and_ends_with_1_when_something_is_lost(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    here = server.name_server
    with server.connect(enable_trace=True) as mq:
        for number in range(5):
            mq.send("orders", b"%d" % number)
        mq.send("orders", b"due in two hours", delay_level=18)
        with mq.consumer("orders", group="billing", consume_from="first") as messages:
            for count, _ in enumerate(messages, 1):
                if count == 5:
                    break
    report = tmp_path / "audit.html"
    said = ok("audit", "orders", "--report", str(report), *SMALL, name_server=here)
    assert cells(said, "orders") == ["orders", "6", "5", "1", "0", "0", "0"]
    assert cells(said, "billing")[:4] == ["billing", "orders", "5", "5"]
    assert f"report: {report}" in said
    page = report.read_text()
    assert page.count("<svg") == 3
    assert "From broker to consumer" in page

    with server.connect() as mq:
        now = max(message.store_timestamp_ms for message in mq.admin.browse("orders"))
        gone = TraceRecord(
            kind=TraceType.PUB, timestamp_ms=int(now), group="shop", topic="orders", message_id="NEVER-STORED"
        )
        mq.send(TRACE_TOPIC, encode_record(gone).encode())
    ran = fusee("audit", "orders", "--json", *SMALL, name_server=here)
    assert ran.returncode == 1, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["ok"], told["facts"]["lost"], told["facts"]["not yet due"]) == (False, 1, 1)


def test_dead_letters_are_shown_drawn_and_sent_again(server: EmbeddedServer, tmp_path: Path) -> None:
    here = server.name_server
    with server.connect() as mq:
        bury(mq, "orders", "billing", count=3)
    report = tmp_path / "dlq.html"
    said = ok("dlq", "--report", str(report), *SMALL, name_server=here)
    assert cells(said, "billing")[:5] == ["billing", "orders", "paid", "1", "3"]
    assert "By cause" in report.read_text()
    assert "<svg" in report.read_text()

    refused = fusee("dlq", "billing", "--replay", name_server=here)
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    again = ok("dlq", "billing", "--replay", "--yes", "--json", *SMALL, name_server=here)
    assert json.loads(again)["facts"]["sent"] == 3
    with server.connect() as mq:
        assert sorted(message.body for message in mq.admin.browse("orders")) == sorted(
            [b"poison %d" % number for number in range(3)] * 2
        )


def test_rebuild_writes_the_files_of_a_stopped_broker(tmp_path: Path) -> None:
    store, to, settings = tmp_path / "store", tmp_path / "again", tmp_path / "broker.conf"
    sizes = {"mapped_file_size_consume_queue": 2_000, "max_hash_slot_num": 100, "max_index_num": 500}
    with embedded(store=store, topics={"orders": 2}, **sizes) as server, server.connect() as mq:
        for number in range(250):
            mq.send("orders", b"%d" % number, tag="paid", key=f"k{number}")
        refused = fusee("rebuild", str(store), "--to", str(to), *SMALL)
        assert (refused.returncode, "stop the broker" in refused.stderr) == (2, True)
    settings.write_text("mappedFileSizeConsumeQueue=2000\nmaxIndexNum=500\nmaxHashSlotNum=100\n")
    said = ok("rebuild", str(store), "--to", str(to), "-c", str(settings), *SMALL)
    queues = files_below(to / "consumequeue")
    assert queues == files_below(store / "consumequeue")
    assert len(queues) > 2
    index, own = files_below(to / "index"), files_below(store / "index")
    assert len(index) == 2
    assert {name: len(data) for name, data in index.items()} == {name: len(data) for name, data in own.items()}
    assert cells(said, "records") == ["records", "250"]
    twice = fusee("rebuild", str(store), "--to", str(to), *SMALL)
    assert (twice.returncode, "is there already" in twice.stderr) == (2, True)


def test_run_of_a_declared_pipeline_tells_what_each_sink_took(server: EmbeddedServer, tmp_path: Path) -> None:
    file = tmp_path / "paid.yaml"
    text = f"""
        defaults: {{nameServer: "{server.name_server}"}}
        sources: {{orders: {{topic: orders, startingOffsets: earliest, maxOffsetsPerTrigger: 4}}}}
        steps: {{paid: {{sql: "select cast(body as string) as text from orders where tags = 'paid'"}}}}
        sinks: {{files: {{from: paid, format: json, path: ./paid}}}}
    """
    file.write_text(text)
    assert cells(ok("run", str(file), "--check"), "paid") == ["paid", "step", "sql"]
    with server.connect() as mq:
        for number in range(10):
            mq.send("orders", b"order %d" % number, tag=("paid", "open")[number % 2])
    assert cells(ok("run", str(file), *SMALL), "files") == ["files", "3", "10"]
    written = "".join(path.read_text() for path in tmp_path.glob("paid/*.json"))
    assert sorted(json.loads(line)["text"] for line in written.splitlines()) == [
        f"order {number}" for number in range(0, 10, 2)
    ]

    file.write_text(text.replace("cast(body as string) as text", "raise_error('no') as text").replace("./paid", "./no"))
    with server.connect() as mq:
        mq.send("orders", b"x", tag="paid")
    failed = fusee("run", str(file), *SMALL)
    assert (failed.returncode, "sink 'files' of pipeline 'paid'" in failed.stderr) == (1, True)

"""kill -9 of the commands that archive and replay: run again, they have done everything once.

Once each in the short form, more often with FUSEE_LONG=1; the moment comes from a seed that a failure shows. Either the
command alone is killed, and Java is left to notice, or all that it has started with it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fusee.pipeline.jobs.archive import read_archive
from fusee.pipeline.jobs.replay import ORIGIN
from tests.pipeline.kill.driver import program, said, seen, wait_for_a_moment
from tests.pipeline.topics_of_tests import fill
from tests.pipeline.written import messages_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from fusee.sync import EmbeddedServer

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(3000)]

KILLS = 5 if os.environ.get("FUSEE_LONG") else 1
SMALL = ("--master", "local[2]", "--conf", "spark.driver.memory=512m", "--conf", "spark.sql.shuffle.partitions=2")
MESSAGES = 900 * KILLS


@pytest.fixture
def orders(server: EmbeddedServer) -> EmbeddedServer:
    server.create_topics({"orders": 4, "again": 4})
    fill(server, "orders", range(MESSAGES))
    return server


def is_at(step: int, done: Callable[[], int], running: subprocess.Popen[str]) -> bool:
    return done() >= step or running.poll() is not None


def run_again_after_kills(
    command: tuple[str, ...], server: EmbeddedServer, folder: Path, done: Callable[[], int], chooser: random.Random
) -> None:
    """Runs `fusee` until it ends, after some runs that are killed when `done` says that one of some steps is done."""
    arguments = ("fusee", "pipeline", *command, *SMALL)
    environment = {"NAMESRV_ADDR": server.name_server}
    for _ in range(KILLS):
        with program(*arguments, folder=folder, environment=environment) as running:
            enough = done() + chooser.randrange(1, 3)
            seen("a step of the job", partial(is_at, enough, done, running))
            wait_for_a_moment(chooser)
            assert running.poll() is None, said(folder)
            chooser.choice([os.kill, os.killpg])(running.pid, signal.SIGKILL)
            running.wait()
    with program(*arguments, folder=folder, environment=environment) as last:
        assert last.wait(600) == 0, said(folder)


def test_archive_that_is_killed_and_run_again_has_every_message_once(
    spark: SparkSession, orders: EmbeddedServer, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    archive = tmp_path / "archive"
    run_again_after_kills(
        ("archive", "orders", "--to", str(archive), "-o", "maxOffsetsPerTrigger=150"),
        orders,
        tmp_path,
        lambda: len(list(archive.glob("_catalog/[0-9]*.json"))),
        random.Random(seed),
    )
    rows = read_archive(spark, str(archive)).select("queueId", "queueOffset", "body").collect()
    assert len(rows) == MESSAGES, f"seed {seed}"
    found = {(row["queueId"], row["queueOffset"]): bytes(row["body"]) for row in rows}
    wanted = {
        (queue.queue_id, message.queue_offset): message.body
        for queue, messages in messages_in(orders.name_server, "orders").items()
        for message in messages
    }
    assert found == wanted, f"seed {seed}"


def test_replay_that_is_killed_and_run_again_sends_every_message_once(orders: EmbeddedServer, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    state = tmp_path / "replay.json"
    run_again_after_kills(
        # The rate makes the chunks small.
        ("replay", "orders", "--to", "again", "--rate", "150", "--state", str(state), "--yes"),
        orders,
        tmp_path,
        lambda: len(json.loads(state.read_text())["counts"]) if state.exists() else 0,
        random.Random(seed),
    )
    sent = [message for messages in messages_in(orders.name_server, "again").values() for message in messages]
    wanted = Counter(b"orders %d" % number for number in range(MESSAGES))
    assert Counter(message.body for message in sent) == wanted, f"seed {seed}"
    assert len({message.properties[ORIGIN] for message in sent}) == MESSAGES, f"seed {seed}"

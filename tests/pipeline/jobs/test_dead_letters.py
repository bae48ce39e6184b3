"""Dead letters in bulk: by cause, and back to the topics they were sent to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fusee.errors import ConfigError
from fusee.pipeline.jobs.dead_letters import dead_letters, replay_dead_letters
from fusee.pipeline.jobs.tables import Place
from tests.cli.scene import bury

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fusee.sync import EmbeddedServer


def kill(server: EmbeddedServer, group: str, topic: str, count: int, tag: str) -> None:
    with server.connect() as mq:
        bury(mq, topic, group, count=count, tag=tag)


def test_dead_letters_are_counted_by_cause_and_sent_back(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    server.create_topics({"orders": 1, "payments": 1})
    kill(server, "billing", "orders", 3, "paid")
    kill(server, "shipping", "payments", 2, "open")
    place = Place({"nameServer": server.name_server})
    outcome = dead_letters(spark, place=place, report_path=tmp_path / "dlq.html")
    causes = [(*row[:3], row[4]) for row in outcome.tables[0].rows]
    assert causes == [("billing", "orders", "paid", 3), ("shipping", "payments", "open", 2)]
    assert "By cause" in (tmp_path / "dlq.html").read_text()

    here = {"nameServer": server.name_server}
    looked = replay_dead_letters(spark, place=place, group="billing", sink=here, dry_run=True)
    assert looked.facts["would be sent"] == 3
    sent = replay_dead_letters(spark, place=place, group="billing", sink=here)
    assert sent.facts["sent"] == 3
    with server.connect() as mq:
        bodies = sorted(message.body for message in mq.admin.browse("orders"))
    assert bodies == sorted([b"poison %d" % number for number in range(3)] * 2)
    none = replay_dead_letters(spark, place=place, group="billing", sink=here, origin_topic="payments", dry_run=True)
    assert none.facts["would be sent"] == 0
    with pytest.raises(ConfigError, match="groups that have: billing, shipping"):
        dead_letters(spark, place=place, groups=["nobody"])


def test_dead_letters_of_more_causes_than_are_shown_are_all_counted(
    spark: SparkSession, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ("billing", "shipping", "returns")
    server.create_topics(dict.fromkeys((f"of-{group}" for group in groups), 1))
    for count, group in enumerate(groups, 1):
        kill(server, group, f"of-{group}", count, "paid")
    monkeypatch.setattr("fusee.pipeline.jobs.dead_letters.CAUSES_MAX", 2)
    outcome = dead_letters(spark, place=Place({"nameServer": server.name_server}))
    assert [(row[0], row[4]) for row in outcome.tables[0].rows] == [("returns", 3), ("shipping", 2)]
    assert outcome.facts == {"dead letters": 6, "groups": 3, "causes": 3}

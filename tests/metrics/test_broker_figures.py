"""A broker's figures: what is counted, lag by queue with its owner, and nothing that is not in the catalogue."""

from __future__ import annotations

from random import randbytes

import pytest
from prometheus_client.parser import text_string_to_metric_families

import fusee
from fusee.in_process.server import EmbeddedServer
from fusee.metrics import BrokerSource, NameServerSource
from fusee.metrics.catalogue import ALL
from fusee.metrics.exposition import _Gathered
from fusee.metrics.families import OTHERS, Figures
from fusee.service import run


class Samples:
    """What one scrape told, by name and some labels."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float:
        found = [
            sample.value for sample in self.samples if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"{name} {labels} is not told"
        return sum(found)

    def labels_of(self, name: str) -> list[dict[str, str]]:
        return [dict(sample.labels) for sample in self.samples if sample.name == name]


async def scrape(server: EmbeddedServer, source: BrokerSource | None = None) -> Samples:
    from prometheus_client import generate_latest

    figures = await (source or BrokerSource(server.broker)).figures()
    return Samples(generate_latest(_Gathered(figures.families())).decode())


def test_counts_what_came_in_and_went_out_and_who_is_behind() -> None:
    async def story() -> None:
        async with fusee.embedded(topics={"orders": 2}) as server, server.connect() as mq:
            for number in range(6):
                await mq.send("orders", b"0123456789", key=str(number))
            async with mq.consumer("orders", group="billing", consume_from="first") as messages:
                await anext(aiter(messages))
                seen = await scrape(server)
            common = seen.labels_of("rocketmq_topic_number")[0]
            assert common == {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "embedded"}
            assert seen("rocketmq_messages_in_total", topic="orders", is_system="false") == 6
            assert seen("rocketmq_throughput_in_total", topic="orders") > 60
            assert seen("rocketmq_messages_out_total", topic="orders", consumer_group="billing") >= 1
            assert seen("rocketmq_consumer_connections", consumer_group="billing", consume_mode="push") == 1
            assert seen("rocketmq_producer_connections") >= 1
            assert seen("fusee_broker_up") == 1
            assert seen("rocketmq_storage_size") > 0
            assert 0 < seen("fusee_storage_disk_used_ratio") <= 1

    run(story())


def test_lag_of_each_queue_names_its_owner_and_adds_up() -> None:
    async def story() -> None:
        async with fusee.embedded(topics={"orders": 2}) as server, server.connect() as mq:
            for _ in range(6):
                await mq.send("orders", b"more")
            async with mq.consumer("orders", group="billing", consume_from="first") as messages:
                await anext(aiter(messages))
            alone = await scrape(server)
            assert {labels["owner"] for labels in alone.labels_of("fusee_consumer_queue_lag_messages")} == {""}
            lag = alone("rocketmq_consumer_lag_messages", consumer_group="billing", topic="orders")
            assert lag == alone("fusee_consumer_queue_lag_messages", consumer_group="billing", topic="orders") > 0
            assert alone("rocketmq_consumer_lag_latency", consumer_group="billing", topic="orders") >= 0
            async with mq.consumer("orders", group="billing") as messages:
                await anext(aiter(messages))
                owned = await scrape(server)
                owners = {labels["owner"] for labels in owned.labels_of("fusee_consumer_queue_lag_messages")}
                assert len(owners - {""}) == 1
                assert owned("fusee_scrape_unknown_owners") == 0

    run(story())


def test_sizes_of_messages_and_times_to_make_topics_and_groups_are_told_by_ranges() -> None:
    async def story() -> None:
        async with fusee.embedded(topics={"orders": 1}) as server, server.connect() as mq:
            before = await scrape(server)
            for size in (10, 900, 2_000, 3_000, 600_000):
                await mq.send("orders", randbytes(size))
            await mq.send_batch([fusee.Message("orders", randbytes(2_000))] * 3)
            await mq.admin.create_group("billing")
            middle = await scrape(server)
            await mq.admin.create_topic("parts")
            with pytest.raises(fusee.InvalidRequestError):
                await mq.admin.create_topic("parts", queues=2_000_000)
            seen = await scrape(server)
            assert before("rocketmq_message_size_count") == 0
            ranges = {labels["le"] for labels in seen.labels_of("rocketmq_message_size_bucket")}
            assert ranges == {"1024.0", "4096.0", "524288.0", "1048576.0", "2097152.0", "4194304.0", "+Inf"}
            told = [seen("rocketmq_message_size_bucket", le=le) for le in ("1024.0", "4096.0", "524288.0", "+Inf")]
            assert told == [1, 7, 7, 8]
            assert seen("rocketmq_message_size_count") == seen("rocketmq_messages_in_total") == 8
            assert seen("rocketmq_message_size_sum") == seen("rocketmq_throughput_in_total")
            made = "rocketmq_topic_create_execution_time_count"
            assert seen(made, invocation_status="success") == middle(made, invocation_status="success") + 1
            assert seen(made, invocation_status="failure", is_system="false") == 1
            assert seen("rocketmq_consumer_group_create_execution_time_count", invocation_status="success") == 1
            assert "rocketmq_consumer_group_create_execution_time" not in before.families

    run(story())


def test_transactions_delays_and_dead_letters_are_counted() -> None:
    async def story() -> None:
        async with fusee.embedded(topics=["orders"]) as server, server.connect() as mq:
            await mq.send("orders", b"later", delay_level=18)
            async with mq.transaction_producer("shop", check=lambda _: None) as shop:
                async with shop.transaction("orders", b"yes"):
                    pass
                with pytest.raises(ZeroDivisionError):
                    async with shop.transaction("orders", b"no"):
                        _ = 1 / 0
            seen = await scrape(server)
            assert seen("rocketmq_commit_messages_total") == 1
            assert seen("rocketmq_finish_message_latency_bucket", le="5.0") == 1
            assert seen("rocketmq_finish_message_latency_sum") < 5
            assert seen("rocketmq_rollback_messages_total") == 1
            assert seen("fusee_delayed_messages", level="18") == 1

    run(story())


def test_series_are_bounded_the_greatest_stay_and_the_rest_is_told_together() -> None:
    figures = Figures(ALL, {"cluster": "c", "node_type": "broker", "node_id": "n"}, series_max=3)
    for number in range(10):
        figures.add("rocketmq_messages_in_total", number, f"topic-{number}", "false")
    family = next(iter(figures.families()))
    values = {sample.labels["topic"]: sample.value for sample in family.samples}
    assert values == {"topic-9": 9, "topic-8": 8, "topic-7": 7, OTHERS: sum(range(7))}
    assert figures.folded == 7


def test_name_server_tells_how_many_it_knows() -> None:
    async def story() -> None:
        async with fusee.embedded(topics=["orders"]) as server:
            source = NameServerSource(server._name_server)  # type: ignore[arg-type]
            names = {family.name: family.samples[0].value for family in (await source.figures()).families()}
            assert names["fusee_namesrv_brokers"] == 1
            assert names["fusee_namesrv_topics"] > 1
            assert source.missing() == []

    run(story())
